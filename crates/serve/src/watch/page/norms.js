// Heat maps of the norms by layer of one run: a row per layer, a column per recorded step.

import { short } from "./chart.js";

const KINDS = [
  ["gradient", "Gradient norm", "before clipping"],
  ["update", "Update", "relative to the weights"],
  ["activation", "Residual stream", "root mean square"],
];
/** Viridis at equal distances, from the smallest to the largest value. */
const COLOURS = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];
const MARGIN = { left: 96, right: 14, top: 6, bottom: 24 };

/** The colour of a share of the scale. */
function colour(share) {
  const at = Math.min(Math.max(share, 0), 1) * (COLOURS.length - 1);
  const below = Math.min(Math.floor(at), COLOURS.length - 2);
  const mixed = COLOURS[below].map((from, n) => Math.round(from + (at - below) * (COLOURS[below + 1][n] - from)));
  return `rgb(${mixed.join(" ")})`;
}

export class NormMaps {
  constructor(section, runs) {
    this.section = section;
    this.runs = runs;
    this.select = section.querySelector("select");
    this.figures = KINDS.map(([kind, title, about]) => {
      const [figure, caption, canvas] = ["figure", "figcaption", "canvas"].map((name) => document.createElement(name));
      canvas.setAttribute("role", "img");
      figure.append(caption, canvas);
      section.querySelector("div").append(figure);
      return { kind, title, about, figure, caption, canvas };
    });
    this.select.addEventListener("input", () => this.draw());
    section.querySelector("form").addEventListener("submit", (event) => event.preventDefault());
    new ResizeObserver(() => this.draw()).observe(section);
  }

  draw() {
    const names = [...this.runs.values()].filter((run) => run.norms.length > 0).map((run) => run.name);
    this.section.hidden = names.length === 0;
    if (names.length === 0) return;
    if (names.join("\n") !== [...this.select.options].map((option) => option.value).join("\n")) {
      const before = this.select.value;
      this.select.replaceChildren(...names.map((name) => new Option(name, name)));
      if (names.includes(before)) this.select.value = before;
    }
    const { norms } = this.runs.get(this.select.value);
    this.figures.forEach((figure) => this.map(figure, norms));
  }

  map({ kind, title, about, figure, caption, canvas }, norms) {
    const layers = [...new Set(norms.flatMap((event) => event.layers.filter((it) => it[kind] > 0).map((it) => it.layer)))];
    figure.hidden = layers.length === 0;
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    if (figure.hidden || width === 0) return;
    const values = norms.map((event) => new Map(event.layers.map((it) => [it.layer, it[kind]])));
    let [low, high] = [Infinity, 0];
    for (const value of values.flatMap((of) => [...of.values()]).filter((it) => it > 0)) {
      [low, high] = [Math.min(low, value), Math.max(high, value)];
    }
    const span = document.createElement("span");
    span.textContent = ` ${about}; ${short(low)} (dark) to ${short(high)} (light)`;
    caption.replaceChildren(title, span);
    canvas.setAttribute("aria-label", `${title} of ${layers.length} layers at ${norms.length} steps: ${short(low)} to ${short(high)}`);
    const ratio = window.devicePixelRatio || 1;
    [canvas.width, canvas.height] = [Math.round(width * ratio), Math.round(height * ratio)];
    const context = canvas.getContext("2d");
    context.scale(ratio, ratio);
    const [w, h] = [width - MARGIN.left - MARGIN.right, height - MARGIN.top - MARGIN.bottom];
    const [column, row] = [w / norms.length, h / layers.length];
    layers.forEach((layer, y) => values.forEach((of, x) => {
      const value = of.get(layer);
      if (!(value > 0)) return;
      context.fillStyle = colour(high > low ? Math.log(value / low) / Math.log(high / low) : 0.5);
      context.fillRect(MARGIN.left + x * column, MARGIN.top + y * row, Math.ceil(column), Math.ceil(row));
    }));
    context.font = "12px system-ui, sans-serif";
    context.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--faint").trim();
    context.textBaseline = "middle";
    context.textAlign = "right";
    const each = Math.max(Math.ceil(14 / row), 1);
    layers.forEach((layer, y) => {
      if (y % each === 0) context.fillText(layer, MARGIN.left - 6, MARGIN.top + (y + 0.5) * row, MARGIN.left - 10);
    });
    context.textAlign = "center";
    const steps = Math.ceil(norms.length / Math.max(w / 90, 2));
    norms.forEach(({ step }, x) => {
      if (x % steps === 0) context.fillText(short(step), MARGIN.left + (x + 0.5) * column, height - MARGIN.bottom / 2);
    });
  }
}
