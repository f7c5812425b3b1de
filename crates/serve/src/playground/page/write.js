// Write mode: continues a prompt.

import { Actions } from "./actions.js";
import { Answer } from "./answer.js";
import { TokenText } from "./tokens.js";

// The number of characters at the end of the prompt that are shown before its continuation.
const SHOWN = 400;

export class Write {
  /** `page` holds the model and is notified of events. */
  constructor(page) {
    this.page = page;
    this.panel = document.getElementById("write");
    this.prompt = document.getElementById("prompt");
    this.go = this.panel.querySelector(".go");
    this.sheet = document.getElementById("written");
    this.answer = new Answer((pick) => new TokenText(this.panel.querySelector(".tokens"), pick), (what) => this.changed(what));
    this.pick = this.answer.text.pick;
    this.actions = new Actions(this.panel.querySelector(".actions"), () => this.answer, [["Use as prompt", () => this.use()]]);
    this.panel.querySelector("form").addEventListener("submit", (event) => {
      event.preventDefault();
      if (this.answer.running) this.answer.stop(); else this.begin();
    });
    this.prompt.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
      event.preventDefault();
      this.begin();
    });
  }

  /** Starts generating, once the list of models has loaded. */
  async begin() {
    await this.page.ready;
    if (this.page.model) this.answer.write({ model: this.page.name, prompt: this.prompt.value });
  }

  /** Adapts to the model: an encoder–decoder generates a target for a source, and cannot continue one. */
  choose({ kind }) {
    this.continues = kind === "decoder";
    this.answer.text.pick = this.continues ? this.pick : null;
    this.actions.allows(this.continues, this.actions.further);
    this.panel.querySelector("label[for=prompt]").textContent = this.continues ? "Prompt" : "Source text";
    this.prompt.placeholder = this.continues ? "Once upon a time" : "translate English to German: How old are you?";
  }

  /** Appends the generated text to the prompt, for editing and continuing. */
  use() {
    this.answer.stop();
    this.prompt.value = this.answer.current.request.prompt + this.answer.content;
    this.prompt.focus();
    this.prompt.setSelectionRange(this.prompt.value.length, this.prompt.value.length);
    this.prompt.scrollTop = this.prompt.scrollHeight;
  }

  changed(what) {
    this.go.textContent = this.answer.running ? "Stop" : "Generate";
    const { request } = this.answer.current;
    // A request that was rejected at once has no text to show.
    this.sheet.hidden = this.answer.message !== "" && this.answer.content === "";
    this.sheet.classList.toggle("running", this.answer.running !== null);
    this.panel.querySelector(".prompt").textContent = !this.continues ? "" : (request.prompt.length > SHOWN ? "…" : "") + request.prompt.slice(-SHOWN);
    this.actions.draw(this.page.model);
    if (this.sheet.hidden) this.actions.place.hidden = true;
    this.page.changed(what, this.answer);
  }
}
