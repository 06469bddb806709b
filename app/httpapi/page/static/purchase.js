// One purchase, from the ticket to the order.
//
// It keeps its request_id whatever happens: tabs, reloads, lost answers. After an answer
// that was lost it sends the same again once, then asks; and it asks before it believes a
// "sold out" that follows a lost answer. Every step answers how long to wait for the next.

import { Unreachable } from "./api.js";
import { fullJitter, spread } from "./pace.js";
import { looksOn } from "./phase.js";

export const STOP = Infinity;     // nothing to ask until somebody acts
export const AUTOMATIC_TRIES = 8; // of one press; then the person decides
const TICKET_MARGIN = 2_000;      // ms before its end a ticket is exchanged anew
const ORDER_POLL = { low: 5_000, high: 10_000 }; // an order waits for a payment, not for us

export class Purchase {
  #sale;
  #id;
  #api;
  #clock;
  #ticketAt = 0; // server time before which no ticket is asked for

  // sale gives facts, and shows, keeps and paces what the purchase does to them.
  constructor(sale, { activityID, api, clock }) {
    this.#sale = sale;
    this.#id = activityID;
    this.#api = api;
    this.#clock = clock;
  }

  // press: the person wants to buy.
  press() {
    const { facts } = this.#sale;
    const { attempt } = facts;
    if (attempt?.stage !== 'ready') return;
    facts.pressed = true;
    facts.tries = 0;
    attempt.quantity = facts.quantity;
    const fresh = attempt.expires_ms - TICKET_MARGIN > this.#clock.now();
    if (fresh && attempt.sku_id === facts.sku) attempt.stage = 'sending';
    this.#ticketAt = 0; // else the next step exchanges the place anew, and then sends
    this.#sale.keep();
  }

  // exchange turns a place whose turn has come into a ticket.
  async exchange(signal) {
    const { facts } = this.#sale;
    const now = this.#clock.now();
    if (now < this.#ticketAt) return;
    const answer = await this.#api.ticket(this.#id, facts.sku, facts.place.pass, signal);
    const { body } = answer;
    const elsewhere = facts.place.elsewhere;
    if (answer.ok && body.ticket) {
      facts.place.elsewhere = false;
      facts.attempt = {
        sku_id: facts.sku,
        quantity: facts.quantity,
        request_id: body.request_id,
        path_id: body.path_id,
        ticket: body.ticket,
        expires_ms: Date.parse(body.expires_at),
        stage: elsewhere ? 'asking' : facts.pressed ? 'sending' : 'ready',
        then: elsewhere ? 'ready' : 'retry',
        sent: false,
        losses: 0,
        unknown: false,
      };
      this.#sale.keep();
      this.#sale.show({});
      return;
    }
    switch (body.code) {
      case 'QUEUE_WAITING':
        facts.place.elsewhere = false;
        if (Number.isFinite(body.rank)) facts.place.rank = body.rank;
        this.#ticketAt = now + Math.max(body.next_poll_after_ms ?? 0, 500);
        if (facts.pressed) this.#sale.show({ pressed: false, attempt: null, notice: 'backInLine' });
        return;
      case 'SECKILL_SOLD_OUT':
        facts.place.elsewhere = false;
        this.#soldOut(facts.sku);
        return;
      case 'ACTIVITY_ENDED':
        this.#sale.show({ ended: true, pressed: false });
        return;
      case 'TOKEN_INVALID': // the place belongs to another session, or to a key that is gone
        this.#sale.rejoin();
        return;
      case 'UNAUTHENTICATED':
        this.#sale.signedOut();
        return;
      default:
        this.#ticketAt = now + this.#sale.missed(answer.retryAfter, false);
    }
  }

  // send tries once. What it did not hear of may have happened.
  async send(attempt, signal) {
    const { facts } = this.#sale;
    if (facts.tries >= AUTOMATIC_TRIES) return this.#backToReady(attempt, 'stillBusy');
    facts.tries++;
    attempt.sent = true;
    this.#sale.keep(); // before it is sent: a reload must know that it may have been
    this.#sale.show({});
    let answer;
    try {
      answer = await this.#api.submit(this.#id, attempt, signal);
    } catch (fault) {
      if (signal.aborted || !(fault instanceof Unreachable)) throw fault;
      attempt.unknown = attempt.cut = true;
      if (++attempt.losses > 1) this.#inquire(attempt, 'retry');
      this.#sale.keep();
      return fullJitter(attempt.losses);
    }
    attempt.cut = false;
    this.#sale.answered();
    const { body } = answer;
    const backoff = this.#sale.demand(answer.retryAfter, fullJitter(facts.tries));
    switch (body.next_action) {
      case 'POLL':
      case 'FOLLOW_RESULT':
        return this.#take(attempt, body);
      case 'RETRY_SAME_ID':
        this.#sale.show({ notice: body.status === 'RATE_LIMITED' ? 'tooFast' : 'busy' });
        return backoff;
      case 'QUERY_THEN_RETRY_SAME_ID':
        attempt.unknown = true;
        return this.#inquire(attempt, 'retry', backoff);
      case 'QUERY_THEN_REQUEUE':
        return this.#inquire(attempt, 'requeue');
      case 'QUERY':
        return this.#holder(attempt, body);
      case 'REAUTHENTICATE':
        this.#backToReady(attempt, 'signInAgain');
        this.#sale.signedOut();
        return STOP;
    }
    // What remains ends the attempt. One that may have happened is asked about first.
    if (attempt.unknown) return this.#inquire(attempt, body.code === 'SECKILL_SOLD_OUT' ? 'soldOut' : 'requeue');
    switch (body.code) {
      case 'SECKILL_SOLD_OUT':
        return this.#soldOut(attempt.sku_id);
      case 'ACTIVITY_ENDED':
        this.#forgetAttempt();
        this.#sale.show({ ended: true });
        return STOP;
      case 'TOKEN_INVALID':
        this.#forgetAttempt();
        this.#sale.rejoin();
        this.#sale.show({ notice: 'ticketInvalid' });
        return backoff;
      case 'ACTIVITY_NOT_OPEN':
      case 'SYSTEM_OVERLOADED': // back to the line, or the sale is paused
        this.#forgetAttempt();
        this.#sale.show({ notice: body.next_action === 'STOP' ? 'paused' : 'backInLine' });
        this.#ticketAt = this.#clock.now() + backoff;
        return backoff;
      default: // an edge's own page, or a refusal that this page does not know
        return answer.http >= 500 ? this.#inquire(attempt, 'retry', backoff) : this.#backToReady(attempt, 'refused');
    }
  }

  // ask reads the current result of the request.
  async ask(attempt, signal) {
    const answer = await this.#api.result(this.#id, attempt.sku_id, attempt.request_id, signal);
    if (answer.ok) {
      this.#sale.answered();
      return this.#take(attempt, answer.body);
    }
    if (answer.http === 401) {
      this.#sale.signedOut();
      return STOP;
    }
    if (answer.http !== 404) return this.#sale.missed(answer.retryAfter, answer.body.code !== 'RATE_LIMITED');
    this.#sale.answered();
    attempt.unknown = false;
    switch (attempt.stage === 'queued' ? 'requeue' : attempt.then) {
      case 'ready':
        return this.#backToReady(attempt, '');
      case 'soldOut':
        return this.#soldOut(attempt.sku_id);
      case 'requeue':
        this.#sale.show({ pressed: attempt.stage !== 'queued', attempt: null });
        this.#sale.keep();
        return 0;
      default:
        attempt.stage = 'sending';
        attempt.losses = 0;
        this.#sale.keep();
        return fullJitter(this.#sale.facts.tries);
    }
  }

  #inquire(attempt, then, wait = 0) {
    attempt.stage = 'asking';
    attempt.then = then;
    this.#sale.keep();
    return wait;
  }

  // holder: somebody holds a reservation or an order already, perhaps by another request.
  #holder(attempt, body) {
    if (body.existing_request_id) attempt.request_id = body.existing_request_id;
    attempt.already = true;
    if (body.order_id) return this.#take(attempt, { status: 'ORDER_CREATED', order_id: body.order_id });
    return this.#inquire(attempt, 'requeue');
  }

  // take takes a status of the request.
  #take(attempt, body) {
    const already = attempt.already === true || attempt.then === 'ready'; // found, not made now
    switch (body.status) {
      case 'QUEUED':
        attempt.stage = 'queued';
        attempt.reservation_id = body.reservation_id;
        this.#sale.show({ notice: '' });
        this.#sale.keep();
        return Math.max(body.next_poll_after_ms || spread(), 200);
      case 'ORDER_CREATED':
      case 'PAID':
      case 'CANCELLED':
      case 'FAILED': {
        attempt.stage = 'done';
        const status = body.status === 'FAILED' ? body.code : body.status;
        const told = status === 'CANCELLED' && !this.#cancelled(attempt); // another was asked for, and this one came again
        this.#sale.show({ result: { status, order_id: body.order_id ?? '', already }, pressed: false, notice: told ? 'notAnother' : '' });
        this.#sale.keep();
        return body.order_id ? 0 : STOP;
      }
      default: // SOLD_OUT as a replayed result
        return this.#soldOut(attempt.sku_id);
    }
  }

  #backToReady(attempt, notice) {
    attempt.stage = 'ready';
    this.#sale.show({ pressed: false, notice });
    this.#sale.keep();
    return 0;
  }

  #forgetAttempt() {
    this.#sale.show({ attempt: null, pressed: false });
    this.#sale.keep();
  }

  // follow reads the order until it is paid or cancelled.
  async follow(signal) {
    const answer = await this.#api.order(this.#sale.facts.result.order_id, this.#sale.either(signal));
    if (answer.http === 401) {
      this.#sale.signedOut();
      return STOP;
    }
    if (answer.http === 404) return STOP;
    if (!answer.ok) return this.#sale.missed(answer.retryAfter);
    this.#sale.answered();
    return this.hold(answer.body);
  }

  // hold takes an order as it is now.
  hold(order) {
    const { facts } = this.#sale;
    if (order.status !== 'CREATED') facts.result.status = order.status;
    if (order.status === 'CANCELLED' && facts.attempt) this.#cancelled(facts.attempt);
    this.#sale.show({ order });
    this.#sale.keep();
    return order.status === 'CREATED' ? spread(ORDER_POLL) : STOP;
  }

  // cancelled counts an attempt that was cancelled; false: it is counted already.
  #cancelled({ request_id }) {
    const { facts } = this.#sale;
    if (facts.cancelled.includes(request_id)) return false;
    facts.cancelled = [...facts.cancelled, request_id];
    return true;
  }

  // soldOut marks a SKU. While there are others the person may choose one of them.
  #soldOut(sku) {
    const { facts } = this.#sale;
    const gone = [...new Set([...facts.gone, sku])];
    const left = facts.activity.skus.filter((s) => !gone.includes(s.sku_id));
    this.#sale.show({ gone, soldOut: left.length === 0, soldOutAt: this.#clock.now(), ...(left.length > 0 && { sku: left[0].sku_id, notice: 'skuGone' }) });
    return this.rest(spread(facts.queue?.poll_after_ms));
  }

  // rest answers the next wait: a sold-out sale is asked about no more, unless it says that units may come back.
  rest(next) {
    this.#forgetAttempt();
    return this.#sale.facts.soldOut && !looksOn(this.#sale.facts) ? STOP : next;
  }

  // resume: what was being sent when the tab went away may have arrived.
  resume() {
    const { attempt } = this.#sale.facts;
    if (attempt?.stage !== 'sending' || !attempt.sent) return;
    attempt.unknown = true;
    this.#inquire(attempt, 'retry');
  }
}
