// The page: the model, the mode (write or chat), and messages shared by both modes.

import { statusLine } from "./actions.js";
import * as card from "./card.js";
import { Chat } from "./chat.js";
import * as choices from "./choices.js";
import { recall, remember } from "./memory.js";
import { models } from "./server.js";
import { begin, restore } from "./settings.js";
import { Write } from "./write.js";

const by = (id) => document.getElementById(id);
const page = { model: null, ready: null, changed };
let known = [];
const modes = { write: new Write(page), chat: new Chat(page) };
let mode = "write";

/** Handles events of both modes. Screen readers announce an answer once, when it is complete. */
function changed(what, answer) {
  const failed = what === "failed" ? answer.message : "";
  if (by("alert").textContent !== failed) by("alert").textContent = failed;
  by("legend").hidden = !answer?.current?.tokens.length;
  if (what === "ended") by("announce").textContent = `${answer.content}. ${statusLine(answer.current, page.model)}`;
  if (what === "begun") by("announce").textContent = "";
  // A run that is being trained may have progressed.
  if (what === "ended") look(false);
}

function choose(id) {
  page.model = known.find((model) => model.id === id) ?? known[0];
  by("model").value = page.model.id;
  remember("localStorage", "model", page.model.id);
  by("state").textContent = known.length > 1 ? "" : page.model.id;
  card.draw(page.model);
  begin(page.model.sampling);
  by("modes").hidden = !page.model.chat;
  turn(page.model.chat ? mode : "write");
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
  const names = known.map((model) => model.id);
  if (names.join("\n") !== [...by("model").options].map((option) => option.value).join("\n")) {
    by("model").replaceChildren(...names.map((name) => new Option(name, name)));
  }
  by("model-choice").hidden = known.length < 2;
  if (known.length === 0) by("alert").textContent = "The server has no decoder, and this page needs one.";
  else if (first) choose(recall("localStorage", "model"));
  else card.draw((page.model = known.find((model) => model.id === page.model.id) ?? page.model));
}

function turn(to) {
  if (to !== mode) modes[mode].answer?.stop();
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
  by("legend").hidden = !modes[mode].answer?.current?.tokens.length;
}

by("model").addEventListener("change", () => choose(by("model").value));
by("modes").addEventListener("click", (event) => {
  const tab = event.target.closest("[role=tab]");
  if (tab) turn(tab.id.replace("-tab", ""));
});
by("modes").addEventListener("keydown", (event) => {
  if (!["ArrowLeft", "ArrowRight"].includes(event.key)) return;
  turn(mode === "write" ? "chat" : "write");
  by(`${mode}-tab`).focus();
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || document.querySelector("dialog[open]")) return;
  if (choices.close()) return;
  by("alert").textContent = "";
  modes[mode].answer?.stop();
});
by("alert").addEventListener("click", () => { by("alert").textContent = ""; });
document.addEventListener("pointerdown", (event) => {
  if (!event.target.closest?.("#choices, .token")) choices.close();
});

if (matchMedia("(max-width: 60rem)").matches) by("settings-box").open = false;
restore();
page.ready = look(true);
