// All that is known of one person's way through one sale. It is what the page shows, and
// what the tab that leads tells the others; so it is plain, and tabs can copy it.

export const newFacts = () => ({
  activity: null,   // the public document
  queue: null,      // the public queue document
  missing: false,   // there is no such sale
  user: '',         // who is signed in; '' nobody, or a gateway knows
  needSignIn: false,
  place: null,      // {user, pass, lane, sequence, opens_at, rank?, elsewhere}
  standing: null,   // line.js
  check: null,      // {state: 'verified' | 'mismatch' | 'insecure', …} once revealed
  sku: '',
  quantity: 1,
  attempt: null,    // {stage: 'ready' | 'sending' | 'asking' | 'queued' | 'done', request_id, …}
  pressed: false,   // the person has asked to buy
  tries: 0,         // submits since then
  result: null,     // {status, order_id?, already?}
  order: null,
  cancelled: [],    // request_ids of this person's cancelled orders
  gone: [],         // SKUs that a personal answer called sold out, sooner than the document
  soldOut: false,   // all of them
  soldOutAt: 0,     // server time in ms at which a personal answer said so; 0: none did
  ended: false,
  lost: false,      // the connection
  stopped: false,   // nothing is being asked
  busy: '',         // '', 'sign-in', 'join', 'challenge', 'cancel'
  notice: '',       // a key of words.js
});
