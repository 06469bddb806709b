// Where somebody stands, worked out here from the public document: a million people who
// want to know their place cost the service nothing.

import { DRAWN } from "./draw.js";
import { readPayload } from "./session.js";

// What "unlikely" means: this much beyond the people whom the stock is expected to
// reach. It must not be said to somebody whose turn comes.
const BEYOND_REACH = 1.2;

// readPass takes what a pass says of its place.
export function readPass(pass) {
  const claims = readPayload(pass);
  return { user: String(claims?.user_id ?? ''), lane: claims?.lane ?? 'default', sequence: claims?.sequence ?? 0, joined: claims?.joined_ms ?? 0 };
}

// rankBySequence is the rank of somebody whom the draw does not cover; null when it does,
// or when it is not over.
export function rankBySequence(mode, place, draw) {
  if (mode === 'fifo') return place.sequence;
  if (draw?.join_root && readPass(place.pass).joined >= draw.before_ms) return DRAWN + place.sequence;
  return null;
}

// More numbers than a room gives between two documents: one so far on is of a store that has
// lost its count, of which no document tells yet.
const UNHEARD = 1e9;

// aheadByNumber is about how many joined before. Numbers leap at each gap, people do not.
function aheadByNumber(sequence, { joined, last, gaps = [] }) {
  let before = 0;
  let through = 0;
  for (const gap of gaps) {
    if (sequence <= gap.through) return before + share(sequence - through, gap.joined - before, gap.last - through);
    before = gap.joined;
    through = gap.through;
  }
  return before + share(sequence - through, joined - before, last - through);
}

// share is about how many of the people to whom numbers were given have one before the n-th:
// some numbers are nobody's.
function share(n, people, numbers) {
  if (n - numbers > UNHEARD) return people;
  return numbers > people ? Math.min(Math.floor((n - 1) * people / numbers), Math.max(people - 1, 0)) : n - 1;
}

// standing is {rank, released, ahead, low, high, unlikely, share}: people ahead and the
// range of the wait in ms are estimates; share is how far along the line somebody stands.
export function standing(queue, mode, place, rank, now) {
  const lane = queue.lanes.find((l) => l.lane === place.lane) ?? queue.lanes.find((l) => l.lane === 'default')
    ?? { watermark: 0, released: 0, joined: queue.joined, release_per_s: 0 };
  const byRank = mode !== 'fifo' && rank < DRAWN;
  const position = byRank ? Math.floor(rank / DRAWN * queue.draw.drawn) : aheadByNumber(place.sequence, queue);
  const ahead = Math.max(0, position - lane.released);
  const all = Math.max(queue.joined, position + 1, 1);
  const found = {
    rank,
    released: rank < lane.watermark,
    ahead,
    share: position / all,
    done: Math.min(lane.released, all) / all,
    unlikely: queue.reach > 0 && position > BEYOND_REACH * queue.reach,
  };
  const wait = ahead / Math.max(lane.release_per_s, 1) * 1000 + Math.max(0, Date.parse(queue.opens_at) - now);
  found.low = wait * 0.7;
  found.high = wait * 1.5 + 1000;
  return found;
}
