// Text shown token by token, shaded by probability. It is a single tab stop; arrow keys move between tokens.

import * as choices from "./choices.js";
import { percent, spelt } from "./spelling.js";

const REST = 120;

export class TokenText {
  /** `pick(at, choice)` replaces a token of the answer; null if tokens cannot be replaced any more. */
  constructor(element, pick, label = "the model's text, token by token") {
    this.element = element;
    this.pick = pick;
    // The tokens with their places in the answer, which may have other parts.
    this.entries = [];
    this.resting = null;
    element.setAttribute("role", "group");
    element.setAttribute("aria-label", label);
    this.listen();
  }

  get length() { return this.entries.length; }

  get isEmpty() { return this.entries.length === 0; }

  show(tokens) {
    if (this.element.querySelector(".open")) choices.close();
    this.entries = [];
    this.element.replaceChildren();
    tokens.forEach((token, at) => this.append(token, at));
  }

  /** Appends text to the last token that was held back as the possible beginning of a stop string. */
  complete(tokens, { text }) {
    const last = tokens.at(-1);
    if (!last) return;
    last.text += text;
    this.write(this.element.lastElementChild, last, last.text);
  }

  /** Appends the token at the place `at` of the answer, or the `text` of it that belongs here. */
  append(token, at, text = token.text) {
    const span = document.createElement("span");
    span.className = "token";
    span.tabIndex = this.isEmpty ? 0 : -1;
    span.dataset.at = this.length;
    span.setAttribute("role", "button");
    span.style.setProperty("--share", Math.exp(token.logprob));
    this.write(span, token, text);
    this.entries.push({ token, at });
    this.element.append(span);
  }

  write(span, token, text) {
    // Make line breaks and incomplete characters visible, so they can be selected.
    span.classList.toggle("break", /^[\r\n]+$/.test(text));
    span.textContent = text;
    span.setAttribute("aria-label", `${spelt(text)}, ${percent(token.logprob)}`);
  }

  /** Focuses the answer's token `at` without opening its alternatives. Returns false if it is not here. */
  focus(at) {
    const place = this.entries.findIndex((entry) => entry.at === at);
    if (place >= 0) choices.quietly(() => this.go(place));
    return place >= 0;
  }

  go(place) {
    const span = this.element.children[Math.min(Math.max(place, 0), this.length - 1)];
    span?.focus();
  }

  open(span) {
    const { token, at } = this.entries[Number(span.dataset.at)];
    choices.open(span, token, this.pick && ((choice) => this.pick(at, choice)));
  }

  listen() {
    const token = (event) => event.target.closest?.(".token");
    this.element.addEventListener("pointerover", (event) => {
      const span = token(event);
      clearTimeout(this.resting);
      if (span && event.pointerType !== "touch") this.resting = setTimeout(() => this.open(span), choices.isOpen() ? REST : REST / 2);
    });
    this.element.addEventListener("pointerout", () => {
      clearTimeout(this.resting);
      choices.leave();
    });
    this.element.addEventListener("click", (event) => {
      const span = token(event);
      if (!span) return;
      span.focus();
      this.open(span);
    });
    this.element.addEventListener("focusin", (event) => {
      this.element.querySelector('[tabindex="0"]')?.setAttribute("tabindex", "-1");
      event.target.tabIndex = 0;
      this.open(event.target);
    });
    this.element.addEventListener("focusout", choices.leave);
    this.element.addEventListener("keydown", (event) => this.key(event, token(event)));
  }

  key(event, span) {
    if (!span || event.ctrlKey || event.metaKey || event.altKey) return;
    const at = Number(span.dataset.at);
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: this.length - 1 }[event.key];
    const digit = choices.digit(event);
    if (to !== undefined) {
      this.go(to);
    } else if (["Enter", " ", "ArrowDown"].includes(event.key)) {
      this.open(span);
      choices.enter();
    } else if (digit !== null) {
      this.open(span);
      choices.take(digit);
    } else {
      return;
    }
    event.preventDefault();
  }
}
