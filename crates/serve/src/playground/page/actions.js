// The buttons below an answer, and its status line.

import { counted, grouped } from "./spelling.js";

const ENDS = { stop: "finished", length: "token limit reached", stopped: "stopped", failed: "broke off" };

export class Actions {
  /** `answer()` returns the current answer or null. `more` are further buttons, as [name, action]. */
  constructor(place, answer, more) {
    this.answer = answer;
    this.place = place;
    const step = (name, label, by) => {
      const button = this.button(name, () => answer().turn(by));
      button.setAttribute("aria-label", label);
      return button;
    };
    this.more = this.button("Continue", () => answer().more());
    this.further = more.map(([name, act]) => this.button(name, act));
    this.again = this.button("Regenerate", () => answer().again());
    this.before = step("‹", "the try before", -1);
    this.after = step("›", "the next try", 1);
    this.which = document.createElement("span");
    this.tries = document.createElement("span");
    this.tries.className = "tries";
    this.tries.append(this.before, this.which, this.after);
    this.status = Object.assign(document.createElement("p"), { className: "status" });
    place.append(this.more, this.again, this.tries, ...this.further, this.status);
    this.draw(null);
  }

  /** Shows the button that continues an answer, and the `others`, if the model can continue one. */
  allows(continues, others = []) {
    [this.more, ...others].forEach((button) => { button.hidden = !continues; });
  }

  /** A disabled button stays focusable for keyboard users, but does nothing. */
  button(name, act) {
    const button = Object.assign(document.createElement("button"), { type: "button", textContent: name });
    button.addEventListener("click", () => {
      if (button.getAttribute("aria-disabled") !== "true") act();
    });
    return button;
  }

  draw(model) {
    const answer = this.answer();
    const made = answer?.current;
    this.place.hidden = !made;
    if (!made) return;
    const idle = answer.running === null;
    const allow = (button, able) => button.setAttribute("aria-disabled", `${!able}`);
    allow(this.more, idle && made.tokens.length > 0);
    allow(this.again, idle);
    allow(this.before, answer.at > 0);
    allow(this.after, answer.at < answer.tries.length - 1);
    this.tries.hidden = answer.tries.length < 2;
    this.which.textContent = `${answer.at + 1} of ${answer.tries.length}`;
    this.status.textContent = statusLine(made, model);
  }
}

/** The status of an answer in one line. */
export function statusLine(made, model) {
  const parts = [counted(made.tokens.length, "token")];
  if (made.fresh > 1 && made.seconds > 0) parts.push(`${+(made.fresh / made.seconds).toPrecision(3)} tokens/s`);
  if (made.finish) parts.push(ENDS[made.finish] ?? made.finish);
  // The context of an encoder–decoder holds the target only.
  if (made.asked !== undefined && model?.context && model.kind === "decoder") {
    parts.push(`${grouped(made.asked + made.fresh)} of ${grouped(model.context)} in context`);
  }
  if (made.finish) parts.push(`seed ${made.seed}`);
  return parts.join(" · ");
}
