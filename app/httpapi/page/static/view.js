// What is seen and heard. It holds no knowledge of its own beyond the language and what
// was typed: everything follows the facts of the sale and the server's clock.

import { Bindings, el } from "./dom.js";
import { detail, face, headline } from "./faces.js";
import { fairness, fairnessKey } from "./fairness.js";
import { recall, remember } from "./memory.js";
import { isBefore, looksOn, mayAskAgain, phaseOf } from "./phase.js";
import { preferredLanguage, Words } from "./words.js";

const REFRESH = 250; // ms between paints of clocks
const MARKS = [[60_000, 'inAMinute'], [10_000, 'inTenSeconds']]; // before the opening, said aloud
const PLACE_EVERY = 30_000; // ms between announcements of a place that moves
const URGENT = ['turn', 'order', 'reserved'];

const part = (id) => document.getElementById(id);

// nameOf is a selector of the element that does the same after the card is built anew.
const nameOf = (node) => node.id ? `#${node.id}` : node.dataset.act ? `[data-act="${node.dataset.act}"]` : 'h2';

export class View {
  draft = ''; // a user id that is being typed

  #act;
  #clock;
  #leads;
  #bind = new Bindings();
  #statusBind = new Bindings();
  #key = '';
  #goodsKey = '';
  #fairnessKey = '';
  #phase = '';
  #wasLost = false;
  #saidPlaceAt = -Infinity;
  #saidNotice = '';
  #saidStep = '';
  #marked = Infinity;

  // act(action, ...args) carries out what a person wishes; leads() tells whether this tab asks.
  constructor({ act, clock, leads, development }) {
    this.#act = act;
    this.#clock = clock;
    this.#leads = leads;
    this.development = development;
    this.facts = { activity: null };
    this.words = new Words(recall('language') ?? preferredLanguage(navigator.languages));
  }

  start() {
    for (const button of document.querySelectorAll('[data-language]')) {
      button.addEventListener('click', () => {
        this.#speak(button.dataset.language);
        this.#repeat();
      });
    }
    this.#buildStatus();
    this.#speak(this.words.language);
    setInterval(() => this.#paint(), REFRESH);
  }

  show(facts) {
    this.facts = facts;
    this.#paint();
  }

  // What faces may use.
  now() { return this.#clock.now(); }

  sale(action, ...args) { this.#act(action, ...args); }

  sku() { return this.facts.activity?.skus.find((s) => s.sku_id === this.facts.sku); }

  complain(key, field) {
    this.facts.notice = key;
    this.#paint();
    field.setAttribute('aria-invalid', 'true');
    field.focus();
  }

  // countdown writes a time that runs down; a long one always has its hours.
  countdown(ms, long = false) {
    const seconds = Math.max(0, Math.ceil(ms / 1000));
    const two = (n) => String(n).padStart(2, '0');
    const days = Math.floor(seconds / 86_400);
    const hours = long || seconds >= 3600 ? `${two(Math.floor(seconds / 3600) % 24)}:` : '';
    const clock = `${hours}${two(Math.floor(seconds / 60) % 60)}:${two(seconds % 60)}`;
    return days > 0 ? this.words.say('countdownDays', { days, clock }) : clock;
  }

  #speak(language) {
    this.words = new Words(language === 'zh' ? 'zh' : 'en');
    document.documentElement.lang = this.words.language === 'zh' ? 'zh-CN' : 'en';
    for (const button of document.querySelectorAll('[data-language]')) {
      button.setAttribute('aria-pressed', String(button.dataset.language === this.words.language));
      button.addEventListener('click', () => remember('language', this.words.language), { once: true });
    }
    this.#paint();
  }

  #paint() {
    const { facts } = this;
    const held = document.activeElement;
    const now = this.now();
    const phase = phaseOf(facts, now);
    const before = isBefore(facts, now);
    const key = [phase, before, this.words.language, facts.needSignIn, facts.order?.status, facts.result?.order_id,
      phase === 'turn' ? facts.sku : '', phase === 'cancelled' ? [facts.queue?.state, mayAskAgain(facts)].join() : ''].join('|');
    if (key !== this.#key) this.#build(phase, before);
    this.#key = key;
    this.#bind.paint();
    this.#statusBind.paint();
    this.#paintGoods();
    this.#paintFairness();
    this.#keepFocus(held);
    this.#announce(phase, before, now);
  }

  // keepFocus: where what had the focus is gone, the heading of what came instead has it.
  #keepFocus(held) {
    const now = document.activeElement;
    if (held === document.body || now !== document.body && now.checkVisibility()) return;
    part('card').querySelector('h2')?.focus({ preventScroll: true });
  }

  #build(phase, before) {
    const card = part('card');
    const held = document.activeElement;
    const within = card.contains(held);
    const nowhere = held === document.body && !['', 'loading'].includes(this.#phase); // a page that opens takes no focus
    this.#bind = new Bindings();
    const body = face(this, this.#bind, phase).flat(Infinity).filter(Boolean);
    const notice = this.#bind.text('p.notice', () => this.facts.notice ? this.words.say(this.facts.notice) : '');
    card.replaceChildren(...(before ? this.#countdown() : []), ...body.slice(0, 1), notice, ...body.slice(1));
    card.className = `card is-${phase}`;
    card.hidden = false;
    // A new phase is read from its heading; within one, what had the focus has it again.
    if (phase !== this.#phase) {
      if (within || nowhere) card.querySelector('h2').focus({ preventScroll: true });
    } else if (within) {
      card.querySelector(nameOf(held))?.focus({ preventScroll: true });
    }
  }

  #countdown() {
    const opens = Date.parse(this.facts.activity.opens_at);
    return [
      el('p.eyebrow', {}, this.words.say('opensIn')),
      this.#bind.text('p.clock.clock-large', () => this.countdown(opens - this.now(), true), { role: 'timer' }),
      this.#bind.text('p.opens', () => this.words.say(this.words.isToday(opens, this.now()) ? 'opensAt' : 'opensOn', { time: this.words.time(opens, this.now()) })),
    ];
  }

  #paintGoods() {
    const { activity, sku, gone = [], result } = this.facts;
    const goods = part('goods');
    goods.hidden = !activity;
    if (!activity) return;
    const several = activity.skus.length > 1;
    const choose = several && !result && !this.facts.pressed && this.facts.attempt?.stage !== 'queued';
    const key = [activity.activity_version, activity.name, this.words.language, sku, gone.join(), choose].join('|');
    if (key === this.#goodsKey) return;
    this.#goodsKey = key;
    const held = document.activeElement?.value;
    const holding = goods.contains(document.activeElement);
    const rows = activity.skus.map((s) => {
      const limit = s.limit_per_user > 1 ? this.words.say('limit', { n: this.words.number(s.limit_per_user) }) : this.words.say('oneEach');
      const about = [
        el('span.sku-name', {}, s.name, el('span.sku-limit', {}, gone.includes(s.sku_id) ? this.words.say('goneTag') : limit)),
        el('span.sku-price', {}, this.words.money(s.price)),
      ];
      if (!several) return el('div.sku', {}, about);
      return el('label.sku.sku-choice', {}, el('input', {
        type: 'radio', name: 'sku', value: s.sku_id, checked: s.sku_id === sku, disabled: !choose || gone.includes(s.sku_id),
        onchange: () => this.sale('choose', s.sku_id),
      }), about);
    });
    const list = several ? el('fieldset', {}, el('legend', {}, this.words.say('choose')), rows) : rows;
    goods.replaceChildren(el('h1', {}, activity.name), ...[list].flat());
    if (holding) goods.querySelector(`input[value="${held}"]`)?.focus();
  }

  #paintFairness() {
    const section = part('fairness');
    section.hidden = !this.facts.activity || !this.facts.queue;
    if (section.hidden) return;
    const key = fairnessKey(this);
    if (key === this.#fairnessKey) return;
    this.#fairnessKey = key;
    const open = section.querySelector('details')?.open ?? false;
    const held = section.contains(document.activeElement);
    section.replaceChildren(...fairness(this));
    section.querySelector('details').open = open;
    if (held) section.querySelector('summary').focus();
  }

  #buildStatus() {
    const bind = this.#statusBind;
    const dot = el('span.dot', { 'aria-hidden': 'true' });
    bind.follow(() => {
      part('status').hidden = !this.facts.activity && !this.facts.lost;
      const outage = part('outage');
      const text = this.facts.lost ? this.#lost() : '';
      if (outage.textContent !== text) outage.textContent = text;
      outage.hidden = text === '';
      dot.className = `dot ${this.facts.lost ? 'dot-lost' : this.facts.stopped ? 'dot-rest' : 'dot-good'}`;
    });
    const out = el('button.link', { type: 'button', onclick: () => this.sale('signOut') });
    bind.follow(() => {
      out.textContent = this.words.say('signOut');
      out.hidden = !this.development || !this.facts.user;
    });
    part('status').replaceChildren(
      el('span.status-item', {}, dot, bind.text('span', () => this.#connection())),
      bind.text('span.status-item', () => this.#clock.known ? this.words.say('serverTime', { time: this.words.clock(this.now()) }) : ''),
      bind.text('span.status-item', () => this.#leads() ? '' : this.words.say('otherTab')),
      el('span.status-item', {}, bind.text('span', () => this.facts.user ? this.words.say('signedInAs', { user: this.facts.user }) : ''), out),
    );
  }

  #connection() {
    if (this.facts.lost) return this.words.say('notConnected');
    return this.words.say(this.facts.stopped ? 'resting' : 'connected');
  }

  // lost says what is safe, and promises nothing to those who have nothing yet.
  #lost() {
    const { result, place } = this.facts;
    return this.words.say(result?.order_id ? 'lostOrder' : place ? 'lost' : 'lostPlain');
  }

  // announce tells a screen reader, politely, what has changed; and the window's title.
  #announce(phase, before, now) {
    const { facts, words } = this;
    const title = headline(this, phase);
    // Within a phase, too, something may be known that was not: when to pay, that an answer was lost.
    const step = [facts.order?.status, phase === 'sending' && facts.attempt?.stage === 'asking', looksOn(facts)].join('|');
    document.title = facts.activity ? `${URGENT.includes(phase) ? '● ' : ''}${title} · ${facts.activity.name}` : title;
    if (phase !== this.#phase || step !== this.#saidStep && ['order', 'sending', 'soldOut', 'soldOutMine'].includes(phase)) {
      if (this.#phase !== '') this.#say(`${title}. ${detail(this, phase)}`);
      this.#phase = phase;
      this.#saidStep = step;
      this.#saidPlaceAt = now;
    } else if (facts.lost !== this.#wasLost && facts.lost !== undefined) {
      this.#say(facts.lost ? this.#lost() : words.say('restored'));
    } else if (facts.notice && facts.notice !== this.#saidNotice) {
      this.#say(words.say(facts.notice));
    } else if (phase === 'waiting' && now - this.#saidPlaceAt > PLACE_EVERY) {
      this.#say(`${title}. ${detail(this, phase)}`);
      this.#saidPlaceAt = now;
    } else if (before) {
      this.#announceOpening(Date.parse(facts.activity.opens_at) - now);
    }
    this.#wasLost = facts.lost ?? false;
    this.#saidNotice = facts.notice;
  }

  #announceOpening(left) {
    for (const [mark, key] of MARKS) {
      if (left <= mark && this.#marked > mark && left > mark - 2_000) this.#say(this.words.say(key));
    }
    this.#marked = left;
  }

  // repeat: what was last said aloud stays to be read, and is read in the language that is spoken now.
  #repeat() {
    if (this.facts.activity) this.#say(`${headline(this, this.#phase)}. ${detail(this, this.#phase)}`);
  }

  #say(text) { part('live').textContent = text; }
}
