// The page: asks its server every second, and shows what is new.

import { Chart, duration, short, show, view } from "./chart.js";
import { Run, get } from "./runs.js";

// Colours that the colour-blind tell apart (Okabe and Ito 2008).
const COLOURS = ["#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9"];
const EVERY = 1000;

const runs = new Map();
const hidden = new Set();
const controls = document.getElementById("controls");
const options = { x: "step", smoothing: 0, log: false };
const colour = (run) => COLOURS[[...runs.keys()].indexOf(run.name) % COLOURS.length];
const shown = () => [...runs.values()].filter((run) => !hidden.has(run.name));

/** A curve of each shown run: `of(run)` gives the events, `value` the number. */
function curves(of, value, more = {}) {
  return () => shown().map((run) => {
    const points = [];
    for (const event of of(run)) {
      const [x, y] = [run.place(event.step, options.x), value(event)];
      if (x !== null && y !== undefined) points.push([x, y]);
    }
    return { name: run.name, colour: colour(run), points, smooth: true, ...more };
  });
}

const steps = (run) => run.steps;
const paces = (run) => run.paces;
const trained = curves(steps, (event) => event.loss);
const validated = curves((run) => run.evaluations, (event) => event.loss, { dashed: true, smooth: false });
const place = document.getElementById("charts");
const MIB = 1 << 20;
const charts = [
  new Chart(place, "Loss", "training, and dashed on validation data", true, () => [
    ...trained(),
    ...validated().map((curve) => ({ ...curve, name: `${curve.name}, validation` })),
  ]),
  new Chart(place, "Learning rate", "", false, curves(steps, (event) => event.learning_rate, { smooth: false })),
  new Chart(place, "Gradient norm", "before clipping", false, curves(steps, (event) => event.gradient_norm)),
  new Chart(place, "Speed", "tokens per second", false, curves(paces, (event) => event.tokens_per_second)),
  new Chart(place, "Utilization", "% of the machine's matrix product", false,
    curves(paces, (event) => (event.utilization === null ? undefined : 100 * event.utilization))),
  new Chart(place, "Memory", "MiB resident", false, curves(paces, (event) => event.memory_mib ?? undefined, { smooth: false })),
  new Chart(place, "Device memory", "MiB in use", false,
    curves(paces, (event) => (event.device_in_use === undefined ? undefined : event.device_in_use / MIB), { smooth: false })),
];

function draw() {
  controls.elements.reset.disabled = view.range === null;
  charts.forEach((chart) => chart.draw(options));
}
view.changed = draw;

controls.addEventListener("input", () => {
  const { x, smoothing, log, smoothed } = controls.elements;
  if (x.value !== options.x) view.range = null;
  Object.assign(options, { x: x.value, smoothing: Number(smoothing.value), log: log.checked });
  smoothed.textContent = smoothing.value;
  draw();
});
controls.addEventListener("submit", (event) => event.preventDefault());
controls.elements.reset.addEventListener("click", () => show(null));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);

function cells(run) {
  const [step, pace, evaluation] = [run.steps.at(-1), run.paces.at(-1), run.evaluations.at(-1)];
  const left = run.status === "running" ? duration(pace?.seconds_left) : "–";
  const skipped = run.skipped ? ` (${run.skipped} skipped)` : "";
  return [
    run.status ?? "–", `${run.step}${run.planned ? ` / ${run.planned}` : ""}${skipped}`, short(step?.loss), short(evaluation?.loss),
    short(run.best), short(pace?.tokens_per_second), left,
  ];
}

/** The table's rows are kept, so that a box that is looked at keeps the focus. */
const rows = new Map();
function table() {
  const body = document.querySelector("#runs tbody");
  for (const [name, row] of rows) {
    if (runs.has(name)) continue;
    row.element.remove();
    rows.delete(name);
  }
  for (const run of runs.values()) {
    let row = rows.get(run.name);
    if (!row) {
      row = newRow(run);
      rows.set(run.name, row);
    }
    row.swatch.style.background = colour(run);
    cells(run).forEach((text, n) => {
      if (row.cells[n].textContent !== text) row.cells[n].textContent = text;
    });
    if (body.lastElementChild !== row.element && !row.element.isConnected) body.append(row.element);
  }
}

function newRow(run) {
  const element = document.createElement("tr");
  const label = document.createElement("label");
  const box = Object.assign(document.createElement("input"), { type: "checkbox", checked: !hidden.has(run.name) });
  box.addEventListener("change", () => {
    if (box.checked) hidden.delete(run.name); else hidden.add(run.name);
    draw();
  });
  const swatch = document.createElement("span");
  swatch.className = "swatch";
  label.append(box, swatch, run.name);
  element.insertCell().append(label);
  return { element, swatch, cells: Array.from({ length: 7 }, () => element.insertCell()) };
}

const chosen = document.getElementById("sample-controls");
let newest = true;
function samples() {
  const { run: select, at, step } = chosen.elements;
  const with_samples = [...runs.values()].filter((run) => run.samples.length > 0);
  document.getElementById("samples").hidden = with_samples.length === 0;
  if (with_samples.length === 0) return;
  const names = with_samples.map((run) => run.name);
  if (names.join("\n") !== [...select.options].map((option) => option.value).join("\n")) {
    const before = select.value;
    select.replaceChildren(...names.map((name) => new Option(name, name)));
    if (names.includes(before)) select.value = before;
  }
  const made = runs.get(select.value)?.samples ?? [];
  at.max = made.length - 1;
  if (newest) at.value = made.length - 1;
  const sample = made[Number(at.value)];
  step.textContent = `${sample?.step ?? ""}`;
  const text = document.getElementById("sample");
  if (text.textContent !== (sample?.text ?? "")) text.textContent = sample?.text ?? "";
}
chosen.addEventListener("input", (event) => {
  const at = chosen.elements.at;
  newest = event.target !== at || at.value === at.max;
  samples();
});
chosen.addEventListener("submit", (event) => event.preventDefault());

async function ask() {
  const { runs: listed, machine } = await get("api/runs");
  let news = listed.length !== runs.size;
  for (const name of runs.keys()) {
    if (!listed.some((run) => run.name === name)) runs.delete(name);
  }
  for (const { name, status } of listed) {
    if (!runs.has(name)) runs.set(name, new Run(name));
    const run = runs.get(name);
    // What has ended is read to its end once.
    const goes_on = status === "running" || status !== run.status || run.file === "";
    run.status = status;
    if (goes_on && (await run.follow())) news = true;
  }
  const gib = (bytes) => (bytes / 2 ** 30).toFixed(1);
  document.getElementById("machine").textContent =
    `processor ${Math.round(100 * machine.processor)}%, memory ${gib(machine.memory_used)} of ${gib(machine.memory)} GiB`;
  const running = listed.filter((run) => run.status === "running").length;
  document.getElementById("state").textContent = running ? `${running} running` : "nothing is running";
  table();
  if (news) {
    samples();
    draw();
  }
}

async function keepAsking() {
  try {
    if (!document.hidden) await ask();
  } catch {
    document.getElementById("state").textContent = "the server does not answer";
  }
  setTimeout(keepAsking, EVERY);
}
keepAsking();
