// The alternatives of a token: one shared list, shown next to the selected token.

import { percent, spelt } from "./spelling.js";

const LINGER = 250;
const box = document.getElementById("choices");
let shown = null;
let leaving = null;
let muted = false;

/** Shows the alternatives of a token. `take(choice)` selects one; null if none can be selected any more. */
export function open(span, token, take) {
  clearTimeout(leaving);
  if (muted || (shown?.span === span && shown.token === token)) return;
  close();
  shown = { span, token, take };
  span.classList.add("open");
  const rank = token.top.findIndex((choice) => choice.id === token.id);
  const title = document.createElement("p");
  // An incomplete character has no text yet, so show the token by itself.
  const name = Object.assign(document.createElement("b"), { textContent: spelt(token.text || token.top[rank]?.text || "") });
  const place = rank >= 0 ? `choice ${rank + 1}` : token.top.length ? `not of the first ${token.top.length}` : "";
  title.append(name, ` ${percent(token.logprob)}`, Object.assign(document.createElement("span"), { textContent: place }));
  const list = document.createElement("ol");
  token.top.forEach((choice, at) => list.append(row(choice, at, choice.id === token.id)));
  box.replaceChildren(title, list);
  if (!take && token.top.length) {
    box.append(Object.assign(document.createElement("p"), { className: "hint", textContent: "This token cannot be replaced." }));
  }
  box.hidden = false;
  put();
}

function row(choice, at, taken) {
  const item = document.createElement("li");
  const button = Object.assign(document.createElement("button"), { type: "button", tabIndex: -1 });
  const cell = (kind, text) => Object.assign(document.createElement("span"), { className: kind, textContent: text });
  const bar = cell("bar", "");
  bar.style.setProperty("--share", Math.exp(choice.logprob));
  const digit = at < 10 ? `${(at + 1) % 10}` : "";
  button.append(cell("digit", digit), cell("name", spelt(choice.text)), bar, cell("share", percent(choice.logprob)));
  button.setAttribute("aria-label", `${spelt(choice.text)}, ${percent(choice.logprob)}${taken ? ", what came" : ""}`);
  button.classList.toggle("taken", taken);
  if (!shown.take) button.disabled = true;
  button.addEventListener("click", () => take(at));
  item.append(button);
  return item;
}

/** Positions the list below its token, or above if there is more room, and within the window's width. */
function put() {
  const parent = box.offsetParent.getBoundingClientRect();
  // A token that spans two lines has two boxes; use the first.
  const at = shown.span.getClientRects()[0] ?? shown.span.getBoundingClientRect();
  const above = at.bottom + box.offsetHeight + 12 > window.innerHeight && at.top > box.offsetHeight + 12;
  const left = Math.min(at.left - 12, document.documentElement.clientWidth - box.offsetWidth - 12);
  box.style.left = `${Math.max(left, 12) - parent.left}px`;
  box.style.top = `${(above ? at.top - box.offsetHeight - 3 : at.bottom + 3) - parent.top}px`;
}

/** Selects the alternative at an index. Returns false if there is none. */
export function take(at) {
  const choice = shown?.token.top[at];
  if (!choice || !shown.take) return false;
  const { take: taken } = shown;
  close();
  taken(choice);
  return true;
}

/** Moves the keyboard focus into the list. */
export function enter() {
  const buttons = [...box.querySelectorAll("button:enabled")];
  (buttons.find((button) => button.classList.contains("taken")) ?? buttons[0])?.focus();
}

/** Closes the list and returns the focus to its token. Returns false if it was not open. */
export function close() {
  clearTimeout(leaving);
  if (!shown) return false;
  const { span } = shown;
  const within = box.contains(document.activeElement);
  shown = null;
  span.classList.remove("open");
  box.hidden = true;
  if (within && span.isConnected) quietly(() => span.focus());
  return true;
}

/** Runs `act` without opening the list. */
export function quietly(act) {
  muted = true;
  act();
  muted = false;
}

/** Closes the list after a delay, unless the pointer or the focus returns. */
export function leave() {
  clearTimeout(leaving);
  leaving = setTimeout(() => {
    if (!box.contains(document.activeElement) && shown?.span !== document.activeElement) close();
  }, LINGER);
}

export const isOpen = () => shown !== null;

window.addEventListener("resize", () => shown && put());
box.addEventListener("pointerenter", () => clearTimeout(leaving));
box.addEventListener("pointerleave", leave);
box.addEventListener("focusout", leave);
box.addEventListener("keydown", (event) => {
  const buttons = [...box.querySelectorAll("button:enabled")];
  const at = buttons.indexOf(document.activeElement);
  const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: buttons.length - 1 }[event.key];
  if (to !== undefined) {
    event.preventDefault();
    buttons[(to + buttons.length) % buttons.length]?.focus();
  } else if (digit(event) !== null && take(digit(event))) {
    event.preventDefault();
  }
});

/** The index that a digit key selects: 1 is the first, 0 the tenth. */
export function digit(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || !/^[0-9]$/.test(event.key)) return null;
  return (Number(event.key) + 9) % 10;
}
