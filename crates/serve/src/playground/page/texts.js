// A view of an encoder: a form with texts, and results below it.

import { posted } from "./server.js";

/** The texts of a field, one per line. Empty lines are none. */
export const lines = (field) => field.value.split("\n").map((line) => line.trim()).filter((line) => line !== "");

export class Texts {
  /** `page` holds the model and is notified of events. `id` is that of the view. */
  constructor(page, id) {
    this.page = page;
    this.panel = document.getElementById(id);
    this.field = this.panel.querySelector("textarea");
    this.result = this.panel.querySelector(".result");
    this.go = this.panel.querySelector(".go");
    this.running = null;
    this.panel.querySelector("form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.send();
    });
    this.field.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
      event.preventDefault();
      this.send();
    });
  }

  /** Hides the results of the model before. */
  choose() {
    this.stop();
    this.result.hidden = true;
  }

  stop() {
    this.running?.abort();
    this.running = null;
    this.go.setAttribute("aria-disabled", "false");
  }

  async send() {
    await this.page.ready;
    const texts = lines(this.field);
    if (!this.page.model || texts.length === 0) return;
    this.stop();
    const running = new AbortController();
    this.running = running;
    this.go.setAttribute("aria-disabled", "true");
    this.page.report("");
    try {
      const { path, body } = this.request(texts);
      const answer = await posted(path, { model: this.page.name, ...body }, running.signal);
      if (this.running !== running) return;
      this.result.replaceChildren(...this.shown(texts, answer));
      this.result.hidden = false;
      this.page.announce(this.summary(texts, answer));
    } catch (error) {
      if (!running.signal.aborted) this.page.report(error.message);
    } finally {
      if (this.running === running) this.stop();
    }
  }
}
