// The sampling settings: form fields, names in the API, and storage in the browser.

import { make } from "./elements.js";
import { recall, remember } from "./memory.js";
import { SETTINGS } from "./sampling.js";

const FIELDS = [
  ...SETTINGS,
  { name: "max_tokens", label: "Max tokens", value: 120, least: 1, most: 500, step: 1 },
  { name: "top_logprobs", label: "Alternatives", value: 8, least: 0, most: 20, step: 1 },
];

const form = document.getElementById("settings");

/** A number field with a slider; each updates the other. */
function row(field) {
  const id = `set-${field.name}`;
  const { least: min, most: max, step, value } = field;
  const number = make("input", { id, name: field.name, type: "number", min, step: "any", value, inputMode: "decimal" });
  const slider = make("input", { type: "range", min, max, step, value, tabIndex: -1 });
  slider.setAttribute("aria-hidden", "true");
  slider.addEventListener("input", () => { number.value = slider.value; });
  number.addEventListener("input", () => { slider.value = number.value; });
  const label = make("label", { htmlFor: id }, field.label);
  const children = [label, slider, number];
  if (field.hint) {
    children.push(make("small", { id: `${id}-hint`, textContent: field.hint }));
    number.setAttribute("aria-describedby", `${id}-hint`);
  }
  return make("div", { className: "field" }, ...children);
}

function seed() {
  const number = make("input", { id: "set-seed", name: "seed", type: "number", min: 0, step: 1, readOnly: true });
  const random = make("input", { name: "random", type: "checkbox", checked: true });
  random.addEventListener("change", () => { number.readOnly = random.checked; });
  return make("div", { className: "field seed" }, make("label", { htmlFor: "set-seed" }, "Seed"),
    make("label", {}, random, "random"), number);
}

const more = make("details", {}, make("summary", {}, "Penalties and stops"));
more.append(...FIELDS.filter((field) => field.more).map(row),
  make("label", { htmlFor: "set-stop" }, "Stop before"),
  make("textarea", { id: "set-stop", name: "stop", rows: 2, spellcheck: false, placeholder: "one text a line; \\n is a line's end" }));
const shade = make("input", { name: "shade", type: "checkbox", checked: true });
const reset = make("button", { type: "button" }, "Reset");
form.append(...FIELDS.filter((field) => !field.more).map(row), seed(), more,
  make("div", { className: "row" }, make("label", {}, shade, "shade by probability"), reset));

/** The sampling fields of a request. `fresh` draws a new seed regardless of the settings. */
export function sampler(fresh) {
  const wanted = {};
  // Send every field: the server would replace omitted ones by the model's defaults.
  for (const { name } of FIELDS) {
    const number = form.elements[name].valueAsNumber;
    wanted[name] = Number.isNaN(number) ? Number(beginning[name]) : number;
  }
  const { seed: field, random, stop } = form.elements;
  const drawn = crypto.getRandomValues(new Uint32Array(1))[0];
  if (random.checked || field.value === "") field.value = drawn;
  wanted.seed = fresh ? drawn : field.valueAsNumber;
  const stops = stop.value.split("\n").filter((line) => line !== "").map(unescaped);
  if (stops.length) wanted.stop = stops;
  return wanted;
}

function unescaped(text) {
  return text.replace(/\\([nt\\])/g, (_, letter) => ({ n: "\n", t: "\t", "\\": "\\" })[letter]);
}

function state() {
  const { stop, random, seed: field } = form.elements;
  const numbers = FIELDS.map(({ name }) => [name, form.elements[name].value]);
  return { ...Object.fromEntries(numbers), stop: stop.value, random: random.checked, seed: field.value, shade: shade.checked };
}

function set(wanted) {
  for (const { name } of FIELDS) {
    if (!Number.isFinite(Number(wanted[name])) || wanted[name] === "") continue;
    form.elements[name].value = wanted[name];
    form.elements[name].dispatchEvent(new Event("input"));
  }
  const { stop, random, seed: field } = form.elements;
  stop.value = `${wanted.stop ?? ""}`;
  random.checked = wanted.random !== false;
  field.readOnly = random.checked;
  field.value = random.checked ? "" : wanted.seed;
  shade.checked = wanted.shade !== false;
  shaded();
}

const shaded = () => document.body.classList.toggle("shaded", shade.checked);
const page = state();
let beginning = page;

/** The settings that differ from their defaults. */
function changes() {
  return Object.fromEntries(Object.entries(state()).filter(([name, value]) => value !== beginning[name]));
}

/** Uses a model's recommended settings as defaults. Changed settings are kept. */
export function begin(sampling) {
  const kept = changes();
  const own = { ...sampling, max_tokens: sampling.max_new_tokens };
  const given = FIELDS.filter(({ name }) => typeof own[name] === "number").map(({ name }) => [name, `${own[name]}`]);
  beginning = { ...page, ...Object.fromEntries(given) };
  set({ ...beginning, ...kept });
}

form.addEventListener("input", () => {
  shaded();
  remember("localStorage", "settings", JSON.stringify(changes()));
});
form.addEventListener("submit", (event) => event.preventDefault());
reset.addEventListener("click", () => {
  set(beginning);
  remember("localStorage", "settings", JSON.stringify(changes()));
});

/** Restores the settings of the last visit. */
export function restore() {
  try {
    set({ ...beginning, ...JSON.parse(recall("localStorage", "settings")) });
  } catch {
    set(beginning);
  }
}
