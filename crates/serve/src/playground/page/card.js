// The description of a model and its loss curve.

import { Chart, short, show, view } from "./chart.js";
import { grouped } from "./spelling.js";

const LINE = { colour: "#0072b2", dash: [] };
const OPTIONS = { x: "step", smoothing: 0, log: false };

let model = null;
const chart = new Chart(document.getElementById("loss"), "Loss", "with markers on validation data", false, () => [
  { name: "training", line: LINE, points: model?.loss ?? [] },
  { name: "validation", line: LINE, marked: true, points: model?.validation ?? [] },
]);
view.changed = () => chart.draw(OPTIONS);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => view.changed());

const FACTS = [
  ["family", (m) => m.family],
  ["parameters", (m) => m.parameters && short(m.parameters)],
  ["layers", (m) => m.layers],
  ["width", (m) => m.d_model],
  ["heads", (m) => m.heads],
  ["context", (m) => m.context && `${grouped(m.context)} tokens`],
  ["tokenizer", (m) => m.tokenizer],
  ["vocabulary", (m) => m.vocab_size && grouped(m.vocab_size)],
];

/** Shows the description of a model. */
export function draw(shown) {
  const another = shown.id !== model?.id;
  model = shown;
  document.getElementById("card").hidden = false;
  document.getElementById("about").textContent = model.about ?? "";
  const cell = (tag, text) => Object.assign(document.createElement(tag), { textContent: text });
  const rows = FACTS.flatMap(([name, value]) => {
    const text = value(model);
    if (text === undefined || text === null || text === "") return [];
    const row = document.createElement("div");
    row.append(cell("dt", name), cell("dd", `${text}`));
    return [row];
  });
  document.getElementById("facts").replaceChildren(...rows);
  if (another) show(null); else view.changed();
}
