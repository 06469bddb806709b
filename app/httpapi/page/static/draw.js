// The draw, checked here. Before joining opened the service published a commitment to a
// secret; at the opening it reveals the secret, the root of the join log and the public
// value. From these follows everybody's rank, and nobody could choose one.

const FIRST_VERSION = 1; // later versions of an activity keep its draw
export const DRAWN = 2 ** 52; // ranks of the draw end here; who joined later follows by sequence

const text = new TextEncoder();

// canVerify is false on pages that are not served securely: browsers give them no digests.
export const canVerify = () => globalThis.crypto?.subtle !== undefined;

// verify answers {commitment, seed, rank}: whether the revealed secret is the one that was
// committed to, the seed as hex, and the user's rank.
export async function verify(draw, activityID, userID) {
  const secret = fromHex(draw.secret);
  const committed = await crypto.subtle.digest('SHA-256', join(secret, `|${activityID}|${FIRST_VERSION}`));
  const seed = await hmac(secret, `${draw.join_root}|${draw.public_value ?? ''}`);
  const place = await hmac(seed, `${activityID}|${userID}`);
  const view = new DataView(place.buffer);
  return {
    commitment: toHex(new Uint8Array(committed)) === draw.commitment,
    seed: toHex(seed),
    rank: view.getUint32(0) * 2 ** 20 + (view.getUint32(4) >>> 12), // the first 52 bits
  };
}

async function hmac(key, message) {
  const use = await crypto.subtle.importKey('raw', key, { name: 'HMAC', hash: 'SHA-256' }, false, ['sign']);
  return new Uint8Array(await crypto.subtle.sign('HMAC', use, text.encode(message)));
}

function join(bytes, suffix) {
  const tail = text.encode(suffix);
  const all = new Uint8Array(bytes.length + tail.length);
  all.set(bytes);
  all.set(tail, bytes.length);
  return all;
}

function fromHex(hex) {
  return Uint8Array.from(hex.match(/../g) ?? [], (pair) => parseInt(pair, 16));
}

function toHex(bytes) {
  return Array.from(bytes, (b) => b.toString(16).padStart(2, '0')).join('');
}
