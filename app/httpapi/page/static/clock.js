// Server time on a clock that nobody can set.
//
// Every document says when it was made. It was made before it arrived, so server time
// now is at least that, plus what has passed on the monotonic clock since. The largest
// of the last few such bounds is the best: late by the fastest answer's way here, and
// never early, so nobody is told "open" before it is.

const WINDOW = 20; // answers; so a server whose clock was set back is believed again

export class Clock {
  #bounds = [];

  // heard takes the server_time of an answer, and how long a cache had kept it, in seconds.
  heard(serverTime, age = 0) {
    const made = Date.parse(serverTime);
    if (Number.isNaN(made)) return;
    this.#bounds.push(made + age * 1000 - performance.now());
    if (this.#bounds.length > WINDOW) this.#bounds.shift();
  }

  get known() { return this.#bounds.length > 0; }

  // now is server time in ms since 1970; this device's own time until a server was heard.
  now() {
    return this.known ? performance.now() + Math.max(...this.#bounds) : Date.now();
  }

  // certain is a moment that has come for sure: 0 until a server was heard, so that nothing
  // is called over on this device's word alone.
  get certain() { return this.known ? this.now() : 0; }
}
