// One person's way through one sale: join, wait, try, follow the result. It runs in the
// tab that leads, one step after the other, and shows what it knows as facts.

import { Unreachable } from "./api.js";
import { solve } from "./challenge.js";
import { canVerify, verify } from "./draw.js";
import { newFacts } from "./facts.js";
import { rankBySequence, readPass, standing } from "./line.js";
import { forget, recallObject, remember } from "./memory.js";
import { fullJitter, spread } from "./pace.js";
import { Purchase, STOP } from "./purchase.js";
import { currentSession, dropSession, keepSession } from "./session.js";

const LOST_AFTER = 2;           // polls without an answer: one is noise
const CATCHES_UP = 3_000;       // ms within which the queue document knows of a sell-out
const RANK_SPREAD = 10_000;     // ms over which a crowd asks for ranks that it cannot work out
const ELSEWHERE = 10_000;       // ms: joined so long before this answer, it was on another device
const DRAWN_MODES = ['random', 'lottery'];

export class Sale {
  facts = newFacts();

  #id;
  #api;
  #clock;
  #purchase;
  #development;
  #changed;
  #wishes = [];
  #wake = () => {};
  #idle = new AbortController(); // ends a poll when there is something better to do
  #failures = 0;
  #rankAt = 0;     // server time of the next question for a rank
  #rejoined = false;
  #demanded = false; // the wait is the service's demand: nothing shortens it
  #owner = '';     // whose place is remembered; '' when only a gateway knows
  #verified = null; // {of, …} so that it is worked out once

  constructor({ activityID, api, clock, development, changed }) {
    this.#id = activityID;
    this.#api = api;
    this.#clock = clock;
    this.#development = development;
    this.#changed = changed;
    this.#purchase = new Purchase(this, { activityID, api, clock });
    this.#recognise();
  }

  // What a person may wish. Each is carried out by the loop, in order.
  signIn(user) { this.#wish({ do: 'signIn', user }, 'sign-in'); }
  signOut() { this.#wish({ do: 'signOut' }); }
  join() { this.#wish({ do: 'join' }, 'join'); }
  choose(sku, quantity) { this.#wish({ do: 'choose', sku, quantity }); }
  buy() { this.#wish({ do: 'buy' }); }
  cancel() { this.#wish({ do: 'cancel' }, 'cancel'); }
  another() { this.#wish({ do: 'another' }); }
  again() { this.#wish({ do: 'again' }); }

  // hurry asks now rather than later: the device is back in somebody's hand or online.
  hurry() {
    if (this.facts.stopped || this.#demanded) return;
    this.#failures = Math.min(this.#failures, 1);
    this.#wake();
  }

  // offline: the device itself says that nothing can be asked, sooner than questions fail.
  offline() {
    if (!this.facts.stopped) this.show({ lost: true });
  }

  // sessionChanged: the site, or another tab, signed somebody in or out.
  sessionChanged() {
    this.#wish({ do: 'recognise' });
  }

  // adopt takes over what another tab knew.
  adopt(facts) { this.facts = facts; }

  // lead is the loop. It ends with the signal, between two steps or within one.
  async lead(signal) {
    Object.assign(this.facts, { stopped: false, busy: '' });
    this.#wishes = []; // what was wished when this tab led before is stale
    this.#restore();
    while (!signal.aborted) {
      let wait;
      this.#demanded = false;
      this.#idle = new AbortController();
      try {
        wait = await this.#step(signal);
      } catch (fault) {
        if (signal.aborted) return;
        if (!(fault instanceof Unreachable)) console.error(fault);
        if (this.#wishes.length > 0 && this.#idle.signal.aborted) continue;
        wait = this.missed();
      }
      if (signal.aborted) return;
      this.show({ stopped: wait === STOP });
      await this.#rest(wait, signal);
    }
  }

  async #step(signal) {
    while (this.#wishes.length > 0) {
      const wait = await this.#grant(this.#wishes[0], signal);
      if (wait > 0) return wait; // not now: the wish stays
      this.#wishes.shift();
    }
    const { facts } = this;
    if (!facts.activity) {
      const wait = await this.#load(signal);
      if (wait > 0) return wait;
    }
    switch (facts.attempt?.stage) {
      case 'sending': return this.#purchase.send(facts.attempt, signal);
      case 'asking':
      case 'queued': return this.#purchase.ask(facts.attempt, signal);
    }
    if (facts.result && !facts.queue) await this.#recall(signal);
    if (facts.result?.order_id) return this.#purchase.follow(signal);
    if (facts.result) return STOP;
    return this.#watch(signal);
  }

  // ---- the public documents

  async #load(signal) {
    const answer = await this.#api.activity(this.#id, this.either(signal));
    if (answer.http === 404) {
      this.show({ missing: true });
      return STOP;
    }
    if (!answer.ok || !answer.body.skus) return this.missed(answer.retryAfter);
    const skus = answer.body.skus;
    const sku = skus.some((s) => s.sku_id === this.facts.sku) ? this.facts.sku : skus[0].sku_id;
    this.show({ activity: answer.body, missing: false, sku });
    if (this.facts.place && this.facts.place.opens_at !== answer.body.opens_at) this.rejoin();
    return 0;
  }

  // recall reads the queue document once for somebody who comes back to a result: how the
  // places were given, and whether the sale goes on. The result does not depend on it.
  async #recall(signal) {
    const answer = await this.#api.queue(this.#id, this.either(signal));
    if (!answer.ok || !answer.body.lanes) return;
    this.facts.queue = answer.body;
    await this.#locate(signal);
  }

  // watch reads the queue document and takes a turn when it has come.
  async #watch(signal) {
    const { facts } = this;
    const answer = await this.#api.queue(this.#id, this.either(signal));
    if (!answer.ok || !answer.body.lanes) return this.missed(answer.retryAfter);
    this.answered();
    const queue = answer.body;
    facts.queue = queue;
    if (queue.activity_version !== facts.activity.activity_version) {
      const wait = await this.#load(signal);
      if (wait > 0) return wait;
    }
    if (facts.soldOut && queue.state === 'OPEN' && queue.reopening === true && Date.parse(queue.server_time) > facts.soldOutAt + CATCHES_UP) {
      Object.assign(facts, { soldOut: false, gone: [], notice: 'reopened' });
    }
    await this.#locate(signal);
    const next = spread(queue.poll_after_ms);
    if (facts.ended || queue.state === 'ENDED') {
      this.show({ pressed: false });
      return STOP;
    }
    if (facts.place?.elsewhere && this.#opened()) {
      await this.#purchase.exchange(signal); // there may be an order already, made on another device
    } else if (facts.soldOut || queue.state === 'SOLD_OUT') {
      this.show({ soldOut: true });
      return this.#purchase.rest(next);
    } else if (queue.state === 'OPEN' && facts.standing?.released && (!facts.attempt || facts.pressed)) {
      await this.#purchase.exchange(signal);
    }
    if (facts.pressed && queue.state !== 'OPEN') this.show({ pressed: false, attempt: null, notice: 'backInLine' });
    const stage = facts.attempt?.stage;
    if (stage === 'sending' || stage === 'asking') return 0; // also of a sale that is sold out: there may be an order
    return facts.soldOut ? this.#purchase.rest(next) : next;
  }

  #opened() {
    return ['OPEN', 'SOLD_OUT', 'PAUSED'].includes(this.facts.queue?.state);
  }

  // ---- the place

  // locate works out where the person stands, and checks the draw once it is revealed.
  async #locate(signal) {
    const { facts } = this;
    const { place, queue, activity } = facts;
    if (!place) {
      facts.standing = null;
      return;
    }
    const mode = activity.fairness.mode;
    const draw = queue.draw ?? {};
    let rank = rankBySequence(mode, place, draw);
    if (draw.secret && draw.join_root && DRAWN_MODES.includes(mode)) rank = await this.#check(draw, place, rank);
    if (rank === null) rank = place.rank ?? null;
    if (rank === null && draw.join_root && this.#opened()) await this.#askRank(signal);
    facts.standing = rank === null ? null : standing(queue, mode, place, rank, this.#clock.now());
    this.#changed();
  }

  // check verifies the revealed draw and answers the rank that follows from it.
  async #check(draw, place, late) {
    if (!canVerify()) {
      this.facts.check = { state: 'insecure' };
      return late;
    }
    const of = [draw.secret, draw.join_root, draw.public_value, place.user].join('|');
    if (this.#verified?.of !== of) this.#verified = { of, ...await verify(draw, this.#id, place.user) };
    const found = this.#verified;
    const rank = late ?? found.rank;
    const told = place.rank === undefined || place.rank === rank;
    const kept = !place.commitment || place.commitment === draw.commitment;
    this.facts.check = {
      state: found.commitment && told && kept ? 'verified' : 'mismatch',
      late: late !== null,
      rank,
      told: place.rank ?? null,
      seed: found.seed,
    };
    return rank;
  }

  // askRank asks the service for a rank that cannot be worked out here, not all at once.
  async #askRank(signal) {
    const now = this.#clock.now();
    if (this.#rankAt === 0) this.#rankAt = now + Math.random() * RANK_SPREAD;
    if (now < this.#rankAt) return;
    this.#rankAt = now + RANK_SPREAD + Math.random() * RANK_SPREAD;
    const answer = await this.#api.join(this.#id, { pass: this.facts.place.pass }, this.either(signal));
    if (answer.ok && Number.isFinite(answer.body.rank)) this.facts.place.rank = answer.body.rank;
  }

  // ---- wishes

  #wish(wish, busy = '') {
    this.#wishes.push(wish);
    this.show({ notice: '', ...(busy && { busy }) });
    this.#idle.abort();
    this.#wake();
  }

  // grant carries a wish out. It answers 0, or how long to wait before it is tried again.
  async #grant(wish, signal) {
    const { facts } = this;
    const busy = facts.busy;
    switch (wish.do) {
      case 'signIn': return this.#idleWhen(await this.#grantSignIn(wish.user, signal), busy);
      case 'join': return this.#idleWhen(await this.#grantJoin(signal), busy);
      case 'cancel': return this.#idleWhen(await this.#grantCancel(signal), busy);
      case 'signOut':
        dropSession();
        this.#recognise();
        return 0;
      case 'recognise':
        this.#recognise();
        return 0;
      case 'choose':
        this.show({ sku: wish.sku ?? facts.sku, quantity: wish.quantity ?? facts.quantity });
        this.keep();
        return 0;
      case 'buy':
        this.#purchase.press();
        return 0;
      case 'another': // whether there is one more, the service knows
        facts.place.elsewhere = true;
        this.show({ attempt: null, result: null, order: null, pressed: false });
        this.keep();
        return 0;
      default: // again
        this.show({ soldOut: false, soldOutAt: 0, gone: [], ended: false, missing: false });
        return 0;
    }
  }

  #idleWhen(wait, busy) {
    this.show({ busy: wait > 0 ? busy : '' });
    return wait;
  }

  async #grantSignIn(user, signal) {
    const answer = await this.#api.signIn(user, signal);
    if (answer.ok && answer.body.session) {
      this.answered();
      keepSession(answer.body.session);
      this.#recognise();
      return 0;
    }
    if (answer.retryAfter > 0) return this.#later(answer);
    this.show({ notice: answer.http === 404 ? 'noSignIn' : 'badUser' });
    return 0;
  }

  async #grantJoin(signal, solution = '') {
    const answer = await this.#api.join(this.#id, { challenge: solution }, signal);
    const { body } = answer;
    if (answer.ok && body.pass) {
      this.answered();
      const { user, lane, sequence } = readPass(body.pass);
      const elsewhere = body.joined_ms < this.#clock.now() - ELSEWHERE;
      this.show({
        place: {
          user, lane, sequence, elsewhere, pass: body.pass, rank: body.rank,
          opens_at: this.facts.activity?.opens_at, commitment: this.facts.queue?.draw?.commitment,
        },
        user: this.facts.user || user,
        needSignIn: false,
      });
      this.keep();
      return 0;
    }
    switch (body.code) {
      case 'CHALLENGE_REQUIRED': {
        if (solution || !canVerify()) break;
        this.show({ busy: 'challenge' });
        const solved = await solve(body.challenge, this.facts.user, () => this.#clock.now(), signal);
        if (solved) return this.#grantJoin(signal, solved);
        break;
      }
      case 'UNAUTHENTICATED':
        this.signedOut();
        return 0;
      case 'ACTIVITY_ENDED':
        this.show({ ended: true });
        return 0;
    }
    if (answer.retryAfter > 0 || answer.http >= 500) return this.#later(answer);
    this.show({ notice: 'refused' });
    return 0;
  }

  async #grantCancel(signal) {
    const { facts } = this;
    if (!facts.result?.order_id) return 0;
    const answer = await this.#api.cancel(facts.result.order_id, signal);
    if (answer.ok && answer.body.status) {
      this.answered();
      this.#purchase.hold(answer.body);
      return 0;
    }
    if (answer.http === 401) {
      this.signedOut();
      return 0;
    }
    if (answer.retryAfter > 0 || answer.http >= 500) return this.#later(answer);
    this.show({ notice: 'notCancelled' }); // paid meanwhile: the order is read next
    return 0;
  }

  #later(answer) {
    return this.demand(answer.retryAfter, 250) + fullJitter(++this.#failures, 250);
  }

  // ---- who, and what is kept

  // recognise reads who is signed in, and what this browser knows of them.
  #recognise() {
    const session = currentSession(this.#clock.certain);
    const user = session?.user ?? '';
    const before = this.#owner;
    this.#owner = user;
    this.facts.user = user;
    this.facts.needSignIn = this.#development && !session;
    if (before !== user || !session) {
      Object.assign(this.facts, { place: null, standing: null, check: null, attempt: null, result: null, order: null, pressed: false, cancelled: [] });
      this.#restore();
    }
    this.#changed();
  }

  signedOut() {
    dropSession();
    const { user } = this.facts;
    this.#recognise();
    this.show({ needSignIn: true, notice: user ? 'signInAgain' : '', busy: '' });
  }

  rejoin() {
    this.facts.place = null;
    this.facts.standing = null;
    forget(this.#key());
    if (this.#rejoined) return; // once; then the person decides
    this.#rejoined = true;
    this.#wishes.push({ do: 'join' });
  }

  #key() { return `place.${this.#id}.${this.#owner}`; }

  // keep remembers what must survive this tab.
  keep() {
    const { place, attempt, result, cancelled, sku, quantity, pressed, tries } = this.facts;
    if (place) remember(this.#key(), JSON.stringify({ place, attempt, result, cancelled, sku, quantity, pressed, tries }));
    this.#changed();
  }

  #restore() {
    if (this.facts.place) {
      this.#purchase.resume();
      return;
    }
    const kept = recallObject(this.#key());
    if (!kept?.place?.pass || this.#development && !this.#owner) return;
    const { place, attempt = null, result = null, cancelled = [], sku = '', quantity = 1, pressed = false, tries = 0 } = kept;
    Object.assign(this.facts, { place, attempt, result, cancelled, sku, quantity, pressed, tries, user: this.facts.user || place.user });
    this.#purchase.resume();
  }

  // ---- time, and what the purchase uses too

  answered() {
    this.#failures = 0;
    if (this.facts.lost) this.show({ lost: false });
  }

  // missed counts a question without an answer, and says when to ask again.
  missed(retryAfter = 0, counts = true) {
    if (counts && ++this.#failures >= LOST_AFTER) this.show({ lost: true });
    return this.demand(retryAfter, spread(this.facts.queue?.poll_after_ms)) + fullJitter(this.#failures);
  }

  // demand is the longer of what the service demands and what this page would wait.
  demand(retryAfter, wait) {
    this.#demanded ||= retryAfter > 0;
    return Math.max(retryAfter, wait);
  }

  show(change) {
    Object.assign(this.facts, change);
    this.#changed();
  }

  either(signal) { return AbortSignal.any([signal, this.#idle.signal]); }

  #rest(wait, signal) {
    if (wait <= 0 || this.#wishes.length > 0 && this.#idle.signal.aborted) return Promise.resolve();
    return new Promise((done) => {
      const timer = wait === STOP ? 0 : setTimeout(done, wait);
      const end = () => {
        clearTimeout(timer);
        done();
      };
      this.#wake = end;
      signal.addEventListener('abort', end, { once: true });
    });
  }
}
