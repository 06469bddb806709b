// The card's faces: what is said and offered in each phase. A face is built once when its
// phase begins; its texts then follow the facts.

import { el } from "./dom.js";
import { looksOn, mayAskAgain } from "./phase.js";
import { AUTOMATIC_TRIES } from "./purchase.js";

// face builds the nodes of a phase. v is the view: v.facts, v.words, v.now(), v.sale(action).
export function face(v, bind, phase) {
  return (faces[phase] ?? faces.loading)(v, bind);
}

// headline is the phase in a few words: heading, window title and announcement.
export function headline(v, phase) {
  const { facts, words } = v;
  switch (phase) {
    case 'waiting': {
      const n = facts.standing.ahead;
      return n === 1 ? words.say('waitingOne') : words.say('waiting', { n: words.about(n) });
    }
    case 'order': return words.say(facts.result?.already || facts.result?.status === 'DUPLICATE' ? 'orderAlready' : 'order');
    case 'soldOutMine': return words.say('soldOut');
    case 'sending': return words.say('sending');
    default: return words.say(phase);
  }
}

// detail is the sentence that goes with it; announced, too.
export function detail(v, phase) {
  const { facts, words } = v;
  switch (phase) {
    case 'signIn': return words.say(v.development ? 'signInText' : 'signInSite');
    case 'join': return joinText(v);
    case 'joined': return isDrawn(facts) ? words.say('joinedRandom', { time: drawCloses(v) }) : words.say('joinedOther');
    case 'waiting': return waitText(v);
    case 'unlikely': return words.say('unlikelyText', { n: words.about(facts.standing.ahead) });
    case 'order': return facts.order ? words.say('orderText', { time: words.time(Date.parse(facts.order.pay_before), v.now()) }) : words.say('orderWait');
    case 'soldOut': return words.say(looksOn(facts) ? 'soldOutWatch' : 'soldOutText');
    case 'soldOutMine': return words.say(looksOn(facts) ? 'soldOutMineWatch' : 'soldOutMine');
    case 'sending':
      if (facts.attempt?.stage === 'asking') return words.say('asking');
      return facts.tries > 1 ? words.say(facts.attempt?.cut ? 'sendingCut' : 'sendingAgain', { n: facts.tries, all: AUTOMATIC_TRIES }) : words.say('sendingText');
    default: return words.say(`${phase}Text`);
  }
}

const plain = (phase) => (v, bind) => [heading(v, bind, phase), text(v, bind, phase)];

const faces = {
  loading: plain('loading'),
  missing: plain('missing'),
  opening: plain('opening'),
  drawn: plain('drawn'),
  joined: plain('joined'),
  next: plain('next'),
  paused: plain('paused'),
  paid: (v, bind) => [...plain('paid')(v, bind), receipt(v)],
  noCapacity: plain('noCapacity'),
  duplicate: plain('duplicate'),
  ended: plain('ended'),
  reserved: (v, bind) => [...plain('reserved')(v, bind), busyBar()],
  sending: (v, bind) => [...plain('sending')(v, bind), busyBar()],

  signIn: (v, bind) => [...plain('signIn')(v, bind), v.development && signInForm(v, bind)],
  join: (v, bind) => [...plain('join')(v, bind), actions(button(v, bind, 'join', ['joinButton', 'joinBusy']))],

  waiting: (v, bind) => [
    heading(v, bind, 'waiting'), line(v, bind),
    bind.text('p.wait', () => waitText(v)),
    el('p.small', {}, v.words.say('waitingText')),
  ],
  unlikely: (v, bind) => [...plain('unlikely')(v, bind), line(v, bind)],

  turn: (v, bind) => [...plain('turn')(v, bind), quantity(v), actions(button(v, bind, 'buy', ['buyButton', 'buyButton']))],

  order: (v, bind) => [...plain('order')(v, bind), ...payTimer(v, bind), receipt(v), cancel(v, bind)],
  cancelled: (v, bind) => [
    ...plain('cancelled')(v, bind), receipt(v),
    mayAskAgain(v.facts)
      ? v.facts.queue?.state === 'OPEN' && actions(quiet(v, 'anotherButton', 'another'))
      : el('p.small', {}, v.words.say(v.facts.activity.rebuy_after_cancel ? 'attemptsUsed' : 'oneAttempt')),
  ],

  soldOut: (v, bind) => [
    ...plain('soldOut')(v, bind),
    actions(v.facts.needSignIn ? null : quiet(v, 'lookButton', 'join'), again(v, bind)),
    v.facts.needSignIn && v.development && [el('p.apart', {}, v.words.say('soldOutSignIn')), signInForm(v, bind)],
  ],
  soldOutMine: (v, bind) => [...plain('soldOutMine')(v, bind), actions(again(v, bind))],
};

function heading(v, bind, phase) {
  return bind.text('h2', () => headline(v, phase), { tabIndex: -1 });
}

function text(v, bind, phase) {
  return bind.text('p', () => detail(v, phase));
}

function actions(...buttons) { return el('div.actions', {}, buttons); }

// button is the one that a face is about. keys are its words, and those while it is busy.
function button(v, bind, action, keys) {
  const node = el('button.primary', { type: 'button', 'data-act': action, onclick: () => { if (!isBusy(node)) v.sale(action); } });
  whileBusy(v, bind, node, [action, 'challenge'], keys);
  return [node, bind.text('p.small', () => v.facts.busy === 'challenge' ? v.words.say('challenge') : '')];
}

function quiet(v, key, action) {
  return el('button.quiet', { type: 'button', 'data-act': action, onclick: () => v.sale(action) }, v.words.say(key));
}

// whileBusy says what a button does while the service is asked, and takes no second press.
// It is not disabled: a browser takes the focus away from what is.
function whileBusy(v, bind, node, busy, [idle, working]) {
  bind.follow(() => {
    const on = busy.includes(v.facts.busy);
    const text = v.words.say(on ? working : idle);
    if (node.textContent !== text) node.textContent = text;
    if (isBusy(node) !== on) node.setAttribute('aria-disabled', String(on));
  });
}

const isBusy = (node) => node.getAttribute('aria-disabled') === 'true';

// again is offered where the page has stopped looking by itself.
function again(v, bind) {
  const node = quiet(v, 'againButton', 'again');
  bind.follow(() => { node.hidden = looksOn(v.facts); });
  return node;
}

function busyBar() { return el('div.busy', { 'aria-hidden': 'true' }, el('div.busyness')); }

function signInForm(v, bind) {
  const field = el('input', {
    id: 'user', name: 'user', inputMode: 'numeric', autocomplete: 'off', maxLength: 19, required: true,
    pattern: '[1-9][0-9]{0,18}', 'aria-describedby': 'user-hint', value: v.draft,
    oninput: () => { v.draft = field.value; },
  });
  const send = el('button.primary', { type: 'submit', 'data-act': 'signIn' });
  whileBusy(v, bind, send, ['sign-in'], ['signInButton', 'signInBusy']);
  return el('form.sign-in', {
    noValidate: true,
    onsubmit: (event) => {
      event.preventDefault();
      if (isBusy(send)) return;
      if (field.checkValidity()) v.sale('signIn', field.value);
      else v.complain('badUser', field);
    },
  },
  el('label', { for: 'user' }, v.words.say('userID')),
  el('div.field', {}, field, send),
  el('p.small', { id: 'user-hint' }, v.words.say('userIDHint')));
}

function quantity(v) {
  const sku = v.sku();
  if (!sku || sku.limit_per_user <= 1) return null;
  const field = el('input.quantity', {
    id: 'quantity', type: 'number', inputMode: 'numeric', min: 1, max: sku.limit_per_user, value: v.facts.quantity,
    onchange: () => {
      const n = Math.min(Math.max(Math.trunc(Number(field.value)) || 1, 1), sku.limit_per_user);
      field.value = n;
      v.sale('choose', undefined, n);
    },
  });
  return el('div.field', {}, el('label', { for: 'quantity' }, v.words.say('quantity')), field);
}

// line draws how far the line has moved and where the person stands in it.
function line(v, bind) {
  const done = el('div.line-done');
  const you = el('div.line-you');
  const node = el('div.line', { role: 'img', 'aria-label': v.words.say('lineLabel') }, done, you);
  bind.follow(() => {
    const s = v.facts.standing;
    if (!s) return;
    done.style.setProperty('width', percent(s.done));
    you.style.setProperty('left', percent(s.share));
  });
  return node;
}

const percent = (share) => `${(Math.min(Math.max(share, 0), 1) * 100).toFixed(2)}%`;

function payTimer(v, bind) {
  const left = () => v.facts.order ? Date.parse(v.facts.order.pay_before) - v.now() : 0;
  return [
    bind.text('p.eyebrow', () => v.facts.order && left() > 0 ? v.words.say('payIn') : ''),
    bind.text('p.clock', () => v.facts.order && left() > 0 ? v.countdown(left()) : '', { role: 'timer' }),
    bind.text('p.small', () => v.facts.order && left() <= 0 ? v.words.say('payOver') : ''),
  ];
}

function receipt(v) {
  const { order, result, activity } = v.facts;
  const rows = [];
  const row = (key, value) => rows.push(el('dt', {}, v.words.say(key)), el('dd', {}, value));
  const id = order?.order_id ?? result?.order_id;
  if (!id) return null;
  row('orderNumber', id);
  if (order) {
    const sku = activity?.skus.find((s) => s.sku_id === order.sku_id);
    row('orderItem', sku ? `${sku.name}, ${v.words.money(sku.price)}` : order.sku_id);
    row('orderQuantity', v.words.number(order.quantity));
    row('orderCreated', v.words.time(Date.parse(order.created_at), v.now()));
  }
  return el('dl.receipt', {}, rows);
}

// cancel asks once more before it gives a unit away.
function cancel(v, bind) {
  const ask = el('button.quiet', { type: 'button', 'data-act': 'ask', onclick: () => turn(true) }, v.words.say('cancelButton'));
  const keep = el('button.quiet', { type: 'button', 'data-act': 'keep', onclick: () => turn(false) }, v.words.say('cancelNo'));
  const yes = el('button.danger', { type: 'button', 'data-act': 'cancel', onclick: () => { if (!isBusy(yes)) v.sale('cancel'); } });
  const sure = el('div.sure', { role: 'group', 'aria-labelledby': 'sure', hidden: true },
    el('p', { id: 'sure' }, v.words.say('cancelSure')), actions(keep, yes));
  const turn = (on) => {
    ask.hidden = on;
    sure.hidden = !on;
    (on ? keep : ask).focus();
  };
  whileBusy(v, bind, yes, ['cancel'], ['cancelYes', 'cancelBusy']);
  return el('div', {}, actions(ask), sure);
}

function isDrawn(facts) { return ['random', 'lottery'].includes(facts.activity.fairness.mode); }

function drawCloses(v) { return v.words.time(Date.parse(v.facts.activity.fairness.draw_closes_at), v.now()); }

function joinText(v) {
  const { activity } = v.facts;
  if (isDrawn(v.facts)) {
    const open = v.now() < Date.parse(activity.fairness.draw_closes_at);
    return open ? v.words.say('joinRandom', { time: drawCloses(v) }) : v.words.say('joinLate');
  }
  return v.words.say(activity.fairness.mode === 'fifo' ? 'joinFifo' : 'joinOther');
}

function waitText(v) {
  const { low, high } = v.facts.standing;
  const range = low < 5_000 ? '' : v.words.range(low, high);
  return range ? v.words.say('waitBetween', { range }) : v.words.say('waitBelow', { high: v.words.duration(high) });
}
