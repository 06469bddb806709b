// Elements, made without markup: what comes from outside is text and stays text.

// el makes an element. props are properties, except on* (listeners), aria* and data*;
// children are nodes, text, or falsy and left out.
export function el(tag, props = {}, ...children) {
  const [name, ...classes] = tag.split('.');
  const node = document.createElement(name || 'div');
  if (classes.length > 0) node.className = classes.join(' ');
  for (const [key, value] of Object.entries(props)) {
    if (value === undefined || value === null) continue;
    if (key.startsWith('on')) node.addEventListener(key.slice(2), value);
    else if (key.includes('-') || key === 'role' || key === 'for' || key === 'lang') node.setAttribute(key, value);
    else node[key] = value;
  }
  node.append(...children.flat(Infinity).filter((c) => c !== null && c !== undefined && c !== false));
  return node;
}

// Bindings are texts that follow the facts. Each is written only when it has changed, so
// that a screen reader and a selection are left alone.
export class Bindings {
  #all = [];

  // text makes an element whose text is what() from now on; it is hidden while that is ''.
  text(tag, what, props = {}) {
    const node = el(tag, props);
    this.follow(() => {
      const now = what();
      if (node.textContent !== now) node.textContent = now;
      node.hidden = now === '';
    });
    return node;
  }

  // follow runs at once and with every paint.
  follow(update) {
    this.#all.push(update);
    update();
  }

  paint() { for (const update of this.#all) update(); }
}
