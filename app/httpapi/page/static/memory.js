// What this browser remembers. A browser that refuses to (private windows, full disks)
// gets a memory that lasts as long as the tab: the server knows the place anyway.

const PREFIX = 'sluice.';
const fallback = new Map();

export function recall(name) {
  try {
    return localStorage.getItem(PREFIX + name) ?? fallback.get(name) ?? null;
  } catch {
    return fallback.get(name) ?? null;
  }
}

export function remember(name, value) {
  try {
    localStorage.setItem(PREFIX + name, value);
    fallback.delete(name);
  } catch {
    fallback.set(name, value);
  }
}

export function forget(name) {
  fallback.delete(name);
  try {
    localStorage.removeItem(PREFIX + name);
  } catch { /* it was not kept there */ }
}

// recallObject is null for what is absent or was damaged.
export function recallObject(name) {
  try {
    const value = JSON.parse(recall(name));
    return value !== null && typeof value === 'object' ? value : null;
  } catch {
    return null;
  }
}

// onChange calls back when another tab, or the site, changes what is remembered.
export function onChange(name, changed) {
  addEventListener('storage', (event) => {
    if (event.key === PREFIX + name) changed();
  });
}
