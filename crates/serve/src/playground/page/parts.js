// An answer of a chat with its parts: reasoning in a block that can be closed, text, and calls of functions.

import { make } from "./elements.js";
import { counted } from "./spelling.js";
import { TokenText } from "./tokens.js";

/** The parts of tokens. A token without parts is text. */
const partsOf = (tokens) => tokens.flatMap((token) => token.parts ?? [{ text: token.text }]);

/** The assistant's message with the parts of `tokens`, as in requests. */
export function message(tokens) {
  const joined = (kind) => partsOf(tokens).map((part) => part[kind] ?? "").join("");
  const made = { role: "assistant", content: joined("text") };
  if (joined("reasoning")) made.reasoning_content = joined("reasoning");
  const called = calls(tokens);
  if (called.length) {
    made.tool_calls = called.map(({ id, name, text }) => ({ id, type: "function", function: { name, arguments: text || "{}" } }));
  }
  return made;
}

/** The calls in `tokens`: identifier, name and arguments as text. */
export function calls(tokens) {
  const made = [];
  for (const part of partsOf(tokens)) {
    if (part.call) made.push({ ...part.call, text: "" });
    if (part.arguments && made.length) made.at(-1).text += part.arguments;
  }
  return made;
}

/** The answer of `tokens` for screen readers: its text and its calls, without reasoning and markers. */
export function spoken(tokens) {
  return [message(tokens).content, ...calls(tokens).map(({ name }) => `Call of ${name}`)].filter((text) => text !== "").join(". ");
}

/** Arguments with line breaks, if they are complete. */
export function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

export class AnswerParts {
  /** `pick(at, choice)` replaces a token; null if tokens cannot be replaced any more. */
  constructor(element, pick) {
    const text = make("div", { className: "text" });
    const thoughts = make("div", { className: "text" });
    this.title = make("summary", {}, "Reasoning");
    this.block = make("details", { className: "reasoning", hidden: true, open: true }, this.title, thoughts);
    this.calls = make("div", { className: "calls" });
    element.append(this.block, text, this.calls);
    this.text = new TokenText(text, pick);
    this.thoughts = new TokenText(thoughts, pick, "the model's reasoning, token by token");
    // The block closes when the answer begins, unless the reader has opened or closed it.
    this.touched = false;
    this.title.addEventListener("click", () => { this.touched = true; });
  }

  get pick() { return this.text.pick; }

  set pick(pick) {
    this.text.pick = pick;
    this.thoughts.pick = pick;
  }

  show(tokens) {
    this.text.show([]);
    this.thoughts.show([]);
    this.calls.replaceChildren();
    this.block.hidden = true;
    tokens.forEach((token, at) => this.append(token, at));
  }

  append(token, at) {
    if (token.parts) this.place(token, at, token.parts); else this.text.append(token, at);
  }

  /** Adds text and parts that were held back to the last token. */
  complete(tokens, { text, parts }) {
    const last = tokens.at(-1);
    if (!last) return;
    if (!last.parts || !parts) return this.text.complete(tokens, { text });
    last.text += text;
    last.parts.push(...parts);
    this.place(last, tokens.length - 1, parts);
  }

  place(token, at, parts) {
    for (const part of parts) {
      if (part.reasoning) this.thoughts.append(token, at, part.reasoning);
      if (part.text) this.text.append(token, at, part.text);
      if (part.call) this.begin(part.call);
      if (part.arguments) this.extend(part.arguments);
    }
    const begun = !this.thoughts.isEmpty;
    if (begun && this.block.hidden) this.block.hidden = false;
    if (!this.touched) this.block.open = this.text.isEmpty && this.calls.childElementCount === 0;
    if (begun) this.title.textContent = `Reasoning · ${counted(this.thoughts.length, "token")}`;
  }

  begin({ name }) {
    const written = make("pre", { tabIndex: 0 });
    written.setAttribute("role", "region");
    written.setAttribute("aria-label", `arguments of ${name}`);
    this.calls.append(make("section", { className: "call" }, make("p", {}, "Call of ", make("b", {}, name)), written));
    this.written = "";
  }

  extend(text) {
    this.written += text;
    this.calls.lastElementChild.querySelector("pre").textContent = pretty(this.written);
  }

  focus(at) {
    if (!this.thoughts.focus(at)) this.text.focus(at);
  }
}
