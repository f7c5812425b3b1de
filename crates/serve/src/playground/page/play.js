// The page: the model, the mode (such as chat), and messages shared by all modes.

import { statusLine } from "./actions.js";
import * as card from "./card.js";
import { Chat } from "./chat.js";
import * as choices from "./choices.js";
import { Labels } from "./labels.js";
import { recall, remember } from "./memory.js";
import { fill, names } from "./models.js";
import { spoken } from "./parts.js";
import { Ranking } from "./ranking.js";
import { models } from "./server.js";
import { begin, restore } from "./settings.js";
import { Similarity } from "./similarity.js";
import { Write } from "./write.js";

const by = (id) => document.getElementById(id);
const page = { model: null, name: null, ready: null, changed, report, announce };
let known = [];
const modes = {
  write: new Write(page), chat: new Chat(page), similarity: new Similarity(page), labels: new Labels(page), ranking: new Ranking(page),
};
let mode = "write";

/** The modes of a model. */
function modesOf({ kind, chat, labels }) {
  if (kind !== "encoder") return chat ? ["write", "chat"] : ["write"];
  // A classifier with one label compares a query with documents.
  const scores = { 0: [], 1: ["ranking"] }[labels.length] ?? ["labels"];
  return [...scores, "similarity"];
}

/** Shows an error; none if it is empty. */
function report(message) {
  if (by("alert").textContent !== message) by("alert").textContent = message;
}

/** Announces a text to screen readers. */
function announce(text) {
  by("announce").textContent = text;
}

/** Handles events of answers. Screen readers announce an answer once, when it is complete. */
function changed(what, answer) {
  report(what === "failed" ? answer.message : "");
  by("legend").hidden = !answer?.tokens.length;
  if (what === "ended") announce(`${spoken(answer.tokens)}. ${statusLine(answer.current, page.model)}`);
  if (what === "begun") announce("");
  // A run that is being trained may have progressed.
  if (what === "ended") look(false);
}

function choose(name) {
  const found = known.find((model) => names(model).includes(name));
  page.model = found ?? known[0];
  page.name = found ? name : page.model.id;
  by("model").value = page.name;
  remember("localStorage", "model", page.name);
  by("state").textContent = by("model-choice").hidden ? page.name : "";
  card.draw(page.model);
  const generates = page.model.kind !== "encoder";
  by("settings-box").hidden = !generates;
  if (generates) begin(page.model.sampling);
  by("picks").hidden = page.model.kind !== "decoder";
  const able = modesOf(page.model);
  for (const each of Object.keys(modes)) {
    by(`${each}-tab`).hidden = !able.includes(each);
    if (able.includes(each)) modes[each].choose(page.model);
  }
  by("modes").hidden = able.length < 2;
  turn(able.includes(mode) ? mode : able[0]);
}

/** Fetches the list of models. */
async function look(first) {
  try {
    known = await models();
  } catch (error) {
    if (!first) return;
    by("state").textContent = "";
    by("alert").textContent = error.message;
    return;
  }
  fill(by("model"), known);
  by("model-choice").hidden = known.flatMap(names).length < 2;
  if (first) choose(recall("localStorage", "model"));
  else if (page.model) card.draw((page.model = known.find((model) => model.id === page.model.id) ?? page.model));
}

function turn(to) {
  if (to !== mode) stop();
  mode = to;
  for (const name of Object.keys(modes)) {
    const tab = by(`${name}-tab`);
    tab.setAttribute("aria-selected", `${name === mode}`);
    tab.tabIndex = name === mode ? 0 : -1;
    by(name).hidden = name !== mode;
    for (const [attribute, value] of [["role", "tabpanel"], ["aria-labelledby", tab.id]]) {
      if (by("modes").hidden) by(name).removeAttribute(attribute); else by(name).setAttribute(attribute, value);
    }
  }
  choices.close();
  by("legend").hidden = !modes[mode].answer?.tokens.length;
}

/** Stops the answer of the current mode. */
function stop() {
  (modes[mode].answer ?? modes[mode]).stop?.();
}

by("model").addEventListener("change", () => choose(by("model").value));
by("modes").addEventListener("click", (event) => {
  const tab = event.target.closest("[role=tab]");
  if (tab) turn(tab.id.replace("-tab", ""));
});
by("modes").addEventListener("keydown", (event) => {
  if (!["ArrowLeft", "ArrowRight"].includes(event.key)) return;
  const able = modesOf(page.model);
  const step = event.key === "ArrowLeft" ? -1 : 1;
  turn(able[(able.indexOf(mode) + step + able.length) % able.length]);
  by(`${mode}-tab`).focus();
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || document.querySelector("dialog[open]")) return;
  if (choices.close()) return;
  by("alert").textContent = "";
  stop();
});
by("alert").addEventListener("click", () => { by("alert").textContent = ""; });
document.addEventListener("pointerdown", (event) => {
  if (!event.target.closest?.("#choices, .token")) choices.close();
});

if (matchMedia("(max-width: 60rem)").matches) by("settings-box").open = false;
restore();
page.ready = look(true);
