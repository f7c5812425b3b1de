// The page: polls its server every second and shows updates.

import { Chart, show, view } from "./chart.js";
import { mean } from "./groups.js";
import { NormMaps } from "./norms.js";
import { Run, get } from "./runs.js";
import { Styles } from "./style.js";
import { Table } from "./table.js";

const EVERY = 1000;

const runs = new Map();
const styles = new Styles();
const table = new Table(runs, draw);
const norms = new NormMaps(document.getElementById("norms"), runs);
const controls = document.getElementById("controls");
const options = { x: "step", smoothing: 0, log: false, outliers: false };

/** The curves of a metric, of each run or the means of groups: lines for training, marked lines for validation. */
function curves(metric) {
  const found = [];
  const means = table.means();
  const parts = means ?? table.shown().map((run) => [run.name, [run]]);
  for (const [phase, marked] of [["training", false], ["validation", true]]) {
    for (const [name, runs] of parts) {
      const own = runs.map((run) => readings(run, phase, metric));
      const title = means ? `${name} (${runs.length === 1 ? "1 run" : `${runs.length} runs`})` : name;
      found.push({
        ...(means ? mean(own) : { points: own[0] }),
        name: marked ? `${title}, validation` : title, line: styles.of(name), marked,
        smooth: !marked && metric.aggregation !== "last", steady: metric.aggregation === "last",
      });
    }
  }
  return found;
}

/** The points of a run's curve. */
function readings(run, phase, metric) {
  const points = [];
  for (const [step, value] of run.readings.get(`${phase} ${metric.name}`) ?? []) {
    const x = run.place(step, options.x);
    if (x !== null) points.push([x, value === null ? null : value * metric.scale]);
  }
  return points;
}

const place = document.getElementById("charts");
const charts = new Map();
let built_in = null;

/** Creates a chart for each metric: built-in metrics first, then those of hooks. */
async function chartMetrics() {
  built_in ??= await get("api/metrics");
  const own = [...runs.values()].flatMap((run) => run.metrics);
  for (const metric of [...built_in, ...own]) {
    if (charts.has(metric.name)) continue;
    const wide = charts.size === 0;
    const both = metric.phase === "both" ? "with markers on validation data" : "";
    const about = [metric.unit, both].filter((text) => text).join("; ");
    charts.set(metric.name, new Chart(place, metric.title, about, wide, () => curves(metric)));
  }
}

function draw() {
  styles.show(table.means()?.map(([name]) => name) ?? table.shown().map((run) => run.name));
  table.draw(styles);
  controls.elements.reset.disabled = view.range === null;
  for (const chart of charts.values()) chart.draw(options);
  norms.draw();
}
view.changed = draw;

controls.addEventListener("input", () => {
  const { x, smoothing, log, outliers, smoothed } = controls.elements;
  if (x.value !== options.x) view.range = null;
  Object.assign(options, { x: x.value, smoothing: Number(smoothing.value), log: log.checked, outliers: outliers.checked });
  smoothed.textContent = smoothing.value;
  draw();
});
controls.addEventListener("submit", (event) => event.preventDefault());
controls.elements.reset.addEventListener("click", () => show(null));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);

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
  for (const { name, status, sweep, tags, note } of listed) {
    if (!runs.has(name)) runs.set(name, new Run(name));
    const run = runs.get(name);
    Object.assign(run, { sweep, tags, note });
    // The events of an ended run are read to the end once, and so are the settings of runs outside sweeps.
    const active = status === "running" || status !== run.status || run.file === "";
    run.status = status;
    if (sweep !== null || active) await run.configure();
    if (active && (await run.follow())) news = true;
  }
  const gib = (bytes) => (bytes / 2 ** 30).toFixed(1);
  document.getElementById("machine").textContent =
    `CPU ${Math.round(100 * machine.processor)}%, memory ${gib(machine.memory_used)} of ${gib(machine.memory)} GiB`;
  const running = listed.filter((run) => run.status === "running").length;
  document.getElementById("state").textContent = running ? `${running} running` : "nothing is running";
  table.draw(styles);
  if (news) {
    await chartMetrics();
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
