// Who is asking: the session of the person and the id of the device.
//
// The site in front of Sluice hands a session over in either of two ways:
//   localStorage.setItem('sluice.session', session)          before or while this page is open
//   window.postMessage({type: 'sluice.session', session})    to this page, from the same origin
// An empty session signs out. Sluice verifies it; here it is only read to show who
// somebody is, and to stop using one that has ended.

import { forget, onChange, recall, remember } from "./memory.js";

const SESSION = 'session';
const DEVICE = 'device';
const DEVICE_BYTES = 18; // 24 characters: 16 to 128 are allowed

// deviceID is this browser's id, made once. It is bound into passes and tickets.
export function deviceID() {
  let id = recall(DEVICE);
  if (!/^[A-Za-z0-9._:-]{16,128}$/.test(id ?? '')) {
    const bytes = crypto.getRandomValues(new Uint8Array(DEVICE_BYTES));
    id = btoa(String.fromCharCode(...bytes)).replaceAll('+', '-').replaceAll('/', '_');
    remember(DEVICE, id);
  }
  return id;
}

// currentSession is {token, user, expires} (ms), or null when there is none in force.
export function currentSession(now) {
  const token = recall(SESSION);
  if (!token) return null;
  const claims = readPayload(token);
  const expires = Number.isFinite(claims?.exp) ? claims.exp * 1000 : Infinity;
  if (expires <= now) return null;
  return { token, user: String(claims?.sub ?? ''), expires };
}

export function keepSession(token) { remember(SESSION, token); }

export function dropSession() { forget(SESSION); }

// onSession calls back when the site or another tab signs somebody in or out.
export function onSession(changed) {
  onChange(SESSION, changed);
  addEventListener('message', (event) => {
    if (event.origin !== location.origin || event.data?.type !== 'sluice.session') return;
    if (typeof event.data.session !== 'string') return;
    if (event.data.session) keepSession(event.data.session);
    else dropSession();
    changed();
  });
}

// readPayload reads the claims of a compact JWS; null when it is none. It proves nothing.
export function readPayload(token) {
  try {
    const part = token.split('.')[1].replaceAll('-', '+').replaceAll('_', '/');
    const bytes = Uint8Array.from(atob(part), (c) => c.charCodeAt(0));
    return JSON.parse(new TextDecoder().decode(bytes));
  } catch {
    return null;
  }
}
