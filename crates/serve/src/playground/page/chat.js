// Chat mode. Only the last answer can be changed.

import { Actions } from "./actions.js";
import { Answer } from "./answer.js";
import * as choices from "./choices.js";
import { make } from "./elements.js";
import { AnswerParts, calls, message } from "./parts.js";
import { Results, defined } from "./tools.js";

// The page scrolls automatically if at most this many pixels of the text are out of sight.
const NEAR = 120;

export class Chat {
  /** `page` holds the model and is notified of events. */
  constructor(page) {
    this.page = page;
    this.panel = document.getElementById("chat");
    this.list = document.getElementById("messages");
    this.system = document.getElementById("system");
    this.input = document.getElementById("message");
    this.go = this.panel.querySelector(".go");
    this.effort = document.getElementById("effort");
    this.turns = [];
    this.results = new Results(document.getElementById("results"), (results) => this.return(results));
    this.actions = new Actions(this.panel.querySelector(".actions"), () => this.answer, [
      ["Edit message", () => this.edit()],
      ["New chat", () => this.reset()],
    ]);
    this.form = this.panel.querySelector("form");
    this.following = false;
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (this.answer?.running) this.answer.stop(); else this.send();
    });
    this.input.addEventListener("keydown", (event) => {
      // Enter also confirms IME composition.
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.send();
    });
  }

  get answer() { return this.turns.at(-1)?.answer ?? null; }

  /** Adapts to the model: the controls of its reasoning, and if it can continue an answer. */
  choose({ kind, reasoning }) {
    this.continues = kind === "decoder";
    this.actions.allows(this.continues);
    const levels = [["", "model's default"]];
    if (reasoning.switch) levels.push(["none", "off"]);
    if (reasoning.effort) levels.push(["low", "low"], ["medium", "medium"], ["high", "high"]);
    else if (reasoning.switch) levels.push(["medium", "on"]);
    document.getElementById("effort-choice").hidden = levels.length === 1;
    const before = this.effort.value;
    this.effort.replaceChildren(...levels.map(([value, label]) => new Option(label, value)));
    this.effort.value = levels.some(([value]) => value === before) ? before : "";
  }

  /** Sends the text of the input field. */
  send() {
    const said = this.input.value;
    if (!this.page.model || said.trim() === "") return;
    const asked = this.ask([{ role: "user", content: said }], { said }, () => {
      const mine = this.item("user", "You");
      mine.append(make("div", { className: "text" }, said));
      return [mine];
    });
    if (asked) this.input.value = "";
  }

  /** Sends the results of the last answer's calls. */
  return(results) {
    const called = calls(this.answer.tokens);
    const messages = called.map(({ id }, at) => ({ role: "tool", tool_call_id: id, content: results[at] }));
    this.ask(messages, { results }, () => called.map(({ name }, at) => {
      const item = this.item("tool", `Result of ${name}`);
      item.append(make("div", { className: "text" }, results[at]));
      return item;
    }));
  }

  /** Asks for an answer after more messages. Returns false if the tools are invalid. */
  ask(messages, turn, shown) {
    let tools;
    try {
      tools = defined();
    } catch (error) {
      this.page.report(error.message);
      return false;
    }
    this.answer?.stop();
    if (this.answer) this.answer.text.pick = null;
    const system = this.system.value.trim() === "" ? [] : [{ role: "system", content: this.system.value }];
    const before = this.turns.flatMap(({ messages: others, answer }) => [...others, message(answer.tokens)]);
    const elements = shown();
    const its = this.item("assistant", "Model");
    const answer = new Answer((pick) => new AnswerParts(its, this.continues ? pick : null), (what) => this.changed(what, answer));
    this.turns.push({ ...turn, messages, answer, elements: [...elements, its] });
    const effort = this.effort.value === "" ? {} : { reasoning_effort: this.effort.value };
    answer.write({ model: this.page.name, messages: [...system, ...before, ...messages], ...tools, ...effort });
    return true;
  }

  item(role, name) {
    const item = make("li", { className: role }, make("p", { className: "who" }, name));
    this.list.append(item);
    return item;
  }

  /** Moves the last message, or the results, back to their fields for editing. */
  edit() {
    const last = this.turns.pop();
    last.answer.stop();
    last.elements.forEach((element) => element.remove());
    if (this.answer && this.continues) this.answer.text.pick = (at, choice) => this.answer.pick(at, choice);
    this.draw();
    if (last.results) {
      this.results.fill(last.results);
    } else {
      this.input.value = last.said;
      this.input.focus();
    }
    this.page.changed("turned", this.answer);
  }

  reset() {
    this.answer?.stop();
    this.turns = [];
    this.list.replaceChildren();
    this.input.focus();
    this.draw();
    this.page.changed("turned", null);
  }

  draw() {
    this.go.textContent = this.answer?.running ? "Stop" : "Send";
    this.turns.forEach(({ answer, elements }) => elements.at(-1).classList.toggle("running", answer.running !== null));
    this.results.draw(this.answer?.running === null ? calls(this.answer.tokens) : []);
    this.actions.draw(this.page.model);
  }

  changed(what, answer) {
    // An answer that was removed may still report its end.
    if (answer !== this.answer) return;
    this.draw();
    this.page.changed(what, answer);
    if (what === "begun" || what === "token" || what === "ended") this.follow(what === "begun");
  }

  /** Scrolls with the growing text, unless the reader has scrolled away or is inspecting a token. */
  follow(surely) {
    if (this.following) return;
    const below = () => this.panel.querySelector(".actions").getBoundingClientRect().bottom - this.form.getBoundingClientRect().top;
    if (!surely && (below() > NEAR || choices.isOpen())) return;
    this.following = true;
    requestAnimationFrame(() => {
      this.following = false;
      if (below() > 0) window.scrollBy(0, below());
    });
  }
}
