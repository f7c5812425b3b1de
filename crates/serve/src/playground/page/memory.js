// Values that the browser stores for this page. The page also works without storage.

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
    // The browser does not allow storage.
  }
}
