// Chat mode. Only the last answer can be changed.

import { Actions } from "./actions.js";
import { Answer } from "./answer.js";
import * as choices from "./choices.js";

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
    this.turns = [];
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

  send() {
    const said = this.input.value;
    if (!this.page.model || said.trim() === "") return;
    this.answer?.stop();
    if (this.answer) this.answer.text.pick = null;
    const system = this.system.value.trim() === "" ? [] : [{ role: "system", content: this.system.value }];
    const before = this.turns.flatMap(({ said: content, answer }) => [
      { role: "user", content }, { role: "assistant", content: answer.content },
    ]);
    this.input.value = "";
    const mine = this.message("user", "You");
    mine.lastElementChild.textContent = said;
    const its = this.message("assistant", "Model");
    const answer = new Answer(its.lastElementChild, (what) => this.changed(what, answer));
    this.turns.push({ said, answer, elements: [mine, its] });
    answer.write({ model: this.page.model.id, messages: [...system, ...before, { role: "user", content: said }] });
  }

  message(role, name) {
    const item = document.createElement("li");
    item.className = role;
    const who = Object.assign(document.createElement("p"), { className: "who", textContent: name });
    const text = Object.assign(document.createElement("div"), { className: "text" });
    item.append(who, text);
    this.list.append(item);
    return item;
  }

  /** Moves the last message back to the input field for editing. */
  edit() {
    const last = this.turns.pop();
    last.answer.stop();
    last.elements.forEach((element) => element.remove());
    if (this.answer) this.answer.text.pick = (at, choice) => this.answer.pick(at, choice);
    this.input.value = last.said;
    this.input.focus();
    this.draw();
    this.page.changed("turned", this.answer);
  }

  reset() {
    this.answer.stop();
    this.turns = [];
    this.list.replaceChildren();
    this.input.focus();
    this.draw();
    this.page.changed("turned", null);
  }

  draw() {
    this.go.textContent = this.answer?.running ? "Stop" : "Send";
    this.turns.forEach(({ answer, elements }) => elements[1].classList.toggle("running", answer.running !== null));
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
