// The wire. Every answer becomes one plain object; only a call that got no answer throws.

const PATIENCE = 8_000; // ms: the service answers within 2 s or not at all

// Unreachable says that there was no answer. What was asked may have happened.
export class Unreachable extends Error {}

export class Api {
  #identity;
  #clock;

  // identity() is {token, device}; an empty token sends no session.
  constructor(identity, clock) {
    this.#identity = identity;
    this.#clock = clock;
  }

  activity(id, signal) { return this.#call('GET', `/v1/activities/${id}`, { signal, personal: false }); }

  queue(id, signal) { return this.#call('GET', `/v1/activities/${id}/queue`, { signal, personal: false }); }

  signIn(user, signal) {
    return this.#call('POST', '/v1/session', { signal, personal: false, body: { user_id: user } });
  }

  // join gets a place, or the same again. A pass given with it puts its place back where it was lost.
  join(id, { challenge, pass }, signal) {
    return this.#call('POST', `/v1/activities/${id}/queue/join`, { signal, body: { ...(challenge && { challenge }), ...(pass && { pass }) } });
  }

  ticket(id, sku, pass, signal) {
    return this.#call('POST', `/v1/activities/${id}/tickets`, { signal, body: { sku_id: sku, pass } });
  }

  submit(id, attempt, signal) {
    return this.#call('POST', `/s/${attempt.path_id}/${attempt.sku_id}`, {
      signal,
      headers: { 'Idempotency-Key': attempt.request_id, 'X-Seckill-Ticket': attempt.ticket },
      body: { request_id: attempt.request_id, activity_id: id, sku_id: attempt.sku_id, quantity: attempt.quantity },
    });
  }

  result(id, sku, request, signal) {
    return this.#call('GET', `/v1/requests/${request}?activity_id=${id}&sku_id=${sku}`, { signal });
  }

  order(order, signal) { return this.#call('GET', `/v1/orders/${order}`, { signal }); }

  cancel(order, signal) { return this.#call('POST', `/v1/orders/${order}/cancel`, { signal, body: {} }); }

  // #call answers {ok, http, body, retryAfter}: the wait in ms that the service demands, 0 for none.
  async #call(method, path, { signal, headers = {}, body, personal = true }) {
    const send = { ...headers };
    if (body !== undefined) send['Content-Type'] = 'application/json';
    if (personal) {
      const { token, device } = this.#identity();
      send['X-Device-Id'] = device;
      if (token) send.Authorization = `Bearer ${token}`;
    }
    const limits = [AbortSignal.timeout(PATIENCE)];
    if (signal) limits.push(signal);
    let response;
    let text;
    try {
      response = await fetch(path, {
        method,
        headers: send,
        body: body === undefined ? undefined : JSON.stringify(body),
        signal: AbortSignal.any(limits),
        // The browser's own cache tells no age, and its documents carry the time.
        cache: personal ? 'default' : 'no-cache',
        credentials: 'same-origin',
        redirect: 'error',
        referrerPolicy: 'no-referrer',
      });
      text = await response.text();
    } catch (cause) {
      throw new Unreachable(`${method} ${path}`, { cause });
    }
    const answer = parse(text);
    if (answer.server_time) {
      this.#clock.heard(answer.server_time, Number(response.headers.get('Age')) || 0);
    }
    const seconds = Number(response.headers.get('Retry-After')) || 0;
    return {
      ok: response.ok,
      http: response.status,
      body: answer,
      retryAfter: Math.max(0, answer.retry_after_ms || seconds * 1000),
    };
  }
}

// parse reads an answer; what is no JSON object (an edge's error page) is an empty one.
function parse(text) {
  try {
    const value = JSON.parse(text);
    return value !== null && typeof value === 'object' ? value : {};
  } catch {
    return {};
  }
}
