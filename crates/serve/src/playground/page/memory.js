// What the browser keeps for this page. Where it keeps nothing, the page works all the same.

export function recall(storage, name) {
  try {
    return window[storage].getItem(`emberlm ${name}`);
  } catch {
    return null;
  }
}

export function remember(storage, name, value) {
  try {
    window[storage].setItem(`emberlm ${name}`, value);
  } catch {
    // A browser that keeps nothing for pages.
  }
}
