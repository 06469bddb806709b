// Several tabs are one place. One tab, the one that leads, asks the service; the others
// show what it knows. The tab that a person touches or looks at takes the lead, because
// browsers slow hidden ones down.

const PATIENCE = 700; // ms within which a living leader answers

export class Tabs {
  #name;
  #lead;
  #mirror;
  #snapshot;
  #channel = null;
  #waiting = null; // ends the wait for the lead
  #leading = null; // ends the lead
  #heard = null;   // resolves when the leader answers

  // lead(signal) runs while this tab leads; snapshot() is what it knows; mirror(s) shows
  // another's. Without locks (a page not served securely) every tab leads itself, and
  // only the server makes them one place.
  constructor(name, { lead, snapshot, mirror }) {
    this.#name = name;
    this.#lead = lead;
    this.#snapshot = snapshot;
    this.#mirror = mirror;
  }

  get leads() { return this.#leading !== null; }

  start() {
    if (!navigator.locks || !globalThis.BroadcastChannel) {
      this.#hold();
      return;
    }
    this.#channel = new BroadcastChannel(this.#name);
    this.#channel.onmessage = (event) => this.#receive(event.data);
    document.addEventListener('visibilitychange', () => this.#look());
    this.#wait();
    this.#look();
  }

  // publish shows the other tabs what this one knows.
  publish() {
    if (this.leads) this.#channel?.postMessage({ snapshot: this.#snapshot(), visible: !document.hidden });
  }

  // takeOver makes this tab the leader, now.
  async takeOver() {
    if (this.leads) return;
    this.#waiting?.abort();
    await new Promise((taken) => this.#request({ steal: true }, taken));
  }

  #wait() {
    this.#waiting = new AbortController();
    this.#request({ signal: this.#waiting.signal });
  }

  #request(options, taken = () => {}) {
    navigator.locks.request(this.#name, options, () => {
      const held = this.#hold();
      taken();
      return held;
    }).catch(() => {
      // Either the wait was ended by takeOver, or another tab has taken the lead.
      if (!this.#leading || options.signal?.aborted) return;
      this.#leading.abort();
      this.#leading = null;
      this.#wait();
    });
  }

  // #hold leads until another tab takes the lead or this one is closed.
  #hold() {
    this.#waiting = null;
    this.#leading = new AbortController();
    this.#lead(this.#leading.signal);
    return new Promise(() => {});
  }

  // #look takes the lead from a hidden or dead leader when somebody looks at this tab.
  async #look() {
    if (this.leads || document.hidden) {
      this.publish();
      return;
    }
    const answer = new Promise((resolve) => { this.#heard = resolve; });
    this.#channel.postMessage({ hello: true });
    const late = new Promise((resolve) => { setTimeout(resolve, PATIENCE, { visible: false }); });
    const { visible } = await Promise.race([answer, late]);
    if (!visible && !document.hidden) this.takeOver();
  }

  #receive(message) {
    if (message.hello) {
      this.publish();
      return;
    }
    this.#heard?.(message);
    if (!this.leads) this.#mirror(message.snapshot);
  }
}
