// How long to wait. Everything here is random, because a crowd that is told one time
// comes back at one time.

// Bounds of what a document may ask for, in ms.
const SOONEST = 200;
const LATEST = 60_000;

// spread picks a time within the range of a hint.
export function spread(hint) {
  const low = clamp(hint?.low ?? 1000);
  const high = Math.max(low, clamp(hint?.high ?? 3000));
  return low + Math.random() * (high - low);
}

// fullJitter is uniform(0, min(cap, base * 2^n)) after n failures, in ms.
export function fullJitter(failures, base = 500, cap = 30_000) {
  return Math.random() * Math.min(cap, base * 2 ** Math.min(failures, 16));
}

function clamp(ms) {
  return Number.isFinite(ms) ? Math.min(Math.max(ms, SOONEST), LATEST) : SOONEST;
}
