// The proof of work that a join may demand: a counter for which SHA-256(seed|user|counter)
// begins with so many zero bits. It costs a crowd of robots more than one person.

const BATCH = 256; // digests at once; between batches the page stays alive

// solve answers "<seed>:<counter>", or null when it ran out or was ended.
export async function solve({ seed, difficulty, expires_at: until }, user, now, signal) {
  const text = new TextEncoder();
  const end = Date.parse(until);
  for (let from = 0; !signal?.aborted && now() < end; from += BATCH) {
    const digests = await Promise.all(Array.from({ length: BATCH }, (_, i) =>
      crypto.subtle.digest('SHA-256', text.encode(`${seed}|${user}|${from + i}`))));
    const found = digests.findIndex((d) => leadingZeros(new Uint8Array(d)) >= difficulty);
    if (found >= 0) return `${seed}:${from + found}`;
  }
  return null;
}

function leadingZeros(bytes) {
  let bits = 0;
  for (const b of bytes) {
    if (b !== 0) return bits + Math.clz32(b) - 24;
    bits += 8;
  }
  return bits;
}
