// A line chart that shares its horizontal axis with all other charts.

import { extent, limits } from "./limits.js";
import { swatch } from "./style.js";

const MARGIN = { left: 62, right: 14, top: 10, bottom: 26 };

/** The horizontal range of all charts; null for the whole data. */
export const view = { range: null, changed: () => {} };

export function show(range) {
  view.range = range;
  view.changed();
}

/** Formats a number with at most four digits, using suffixes or powers for extreme values. */
export function short(x) {
  if (x === null || x === undefined || !Number.isFinite(x)) return "–";
  const size = Math.abs(x);
  if (size >= 1e9) return `${+(x / 1e9).toPrecision(3)}G`;
  if (size >= 1e6) return `${+(x / 1e6).toPrecision(3)}M`;
  if (size >= 1e4) return `${+(x / 1e3).toPrecision(3)}k`;
  if (size !== 0 && size < 1e-3) return x.toExponential(1);
  return `${+x.toPrecision(4)}`;
}

export class Chart {
  /** `curves()` returns [{ name, line: { colour, dash }, marked, smooth, steady, points: [[x, y]…] }]; a mean also has
   * the lower and the upper edge of its band as points, `low` and `high`. */
  constructor(parent, title, unit, wide, curves) {
    this.title = title;
    this.curves = curves;
    this.figure = document.createElement("figure");
    this.figure.classList.toggle("wide", wide);
    const caption = document.createElement("figcaption");
    caption.append(title);
    if (unit) {
      const span = document.createElement("span");
      span.textContent = ` ${unit}`;
      caption.append(span);
    }
    this.outside = document.createElement("span");
    this.outside.className = "outside";
    caption.append(this.outside);
    this.canvas = document.createElement("canvas");
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "img");
    this.tip = document.createElement("div");
    this.tip.className = "tip";
    this.tip.hidden = true;
    this.figure.append(caption, this.canvas, this.tip);
    parent.append(this.figure);
    this.drag = null;
    this.hover = null;
    this.listen();
    new ResizeObserver(() => this.draw()).observe(this.canvas);
  }

  draw(options = this.options) {
    this.options = options;
    if (!options) return;
    const drawn = this.curves().filter((curve) => curve.points.length > 0);
    this.figure.hidden = drawn.length === 0;
    if (this.figure.hidden) return;
    const ratio = window.devicePixelRatio || 1;
    const [width, height] = [this.canvas.clientWidth, this.canvas.clientHeight];
    if (width === 0) return;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    const context = this.canvas.getContext("2d");
    context.scale(ratio, ratio);
    this.box = { x: MARGIN.left, y: MARGIN.top, w: width - MARGIN.left - MARGIN.right, h: height - MARGIN.top - MARGIN.bottom };
    const whole = extent(drawn.flatMap((curve) => [curve.points[0][0], curve.points.at(-1)[0]]));
    this.whole = whole;
    this.range = view.range ?? whole;
    this.drawn = drawn.map((curve) => {
      const smooth = (points = []) => smoothed(curve.smooth ? options.smoothing : 0, points);
      return { ...curve, points: smooth(curve.points), low: smooth(curve.low), high: smooth(curve.high) };
    });
    this.vertical = this.extentOfShown(options);
    const beyond = this.drawn.reduce((count, curve) => count + this.beyond(curve).length, 0);
    this.outside.textContent = beyond === 0 ? "" : ` ▲▼ ${beyond} ${beyond === 1 ? "point" : "points"} beyond the axis`;
    this.axes(context);
    context.save();
    context.beginPath();
    context.rect(this.box.x, this.box.y - 2, this.box.w, this.box.h + 4);
    context.clip();
    this.drawn.forEach((curve) => this.band(context, curve));
    this.drawn.forEach((curve) => this.line(context, curve));
    context.restore();
    this.drawn.forEach((curve) => this.arrows(context, curve));
    this.overlay(context);
    const last = (curve) => `${curve.name} ${short(curve.points.at(-1)[1])}`;
    this.canvas.setAttribute("aria-label", `${this.title}: ${drawn.map(last).join(", ")}${this.outside.textContent}`);
  }

  extentOfShown({ log, outliers }) {
    const [from, to] = this.range;
    const scaled = (y) => (log ? Math.log10(y) : y);
    const shown = ([x, y]) => x >= from && x <= to && y !== null && (!log || y > 0);
    const edges = ({ points, low, high }) => [...points, ...low, ...high];
    const values = this.drawn.map((curve) => edges(curve).filter(shown).map(([, y]) => scaled(y)));
    const steady = this.drawn.every((curve) => curve.steady);
    const [low, high] = limits(values, !outliers && !steady);
    const room = (high - low || Math.abs(high) || 1) * 0.06;
    return { low: low - room, high: high + room, log };
  }

  /** The points of a curve that are above or below the axis. */
  beyond(curve) {
    const [from, to] = this.range;
    const { low, high, log } = this.vertical;
    return curve.points.filter(([x, y]) => {
      if (x < from || x > to || y === null || (log && y <= 0)) return false;
      const value = log ? Math.log10(y) : y;
      return value < low || value > high;
    });
  }

  /** Triangles at the edge for points beyond the axis, at most one per few pixels. */
  arrows(context, curve) {
    const { box } = this;
    let last = -Infinity;
    context.fillStyle = curve.line.colour;
    for (const [x, y] of this.beyond(curve)) {
      const at = this.toX(x);
      if (at - last < 9) continue;
      last = at;
      const above = this.toY(y) < box.y;
      const [tip, foot] = above ? [box.y - 6, box.y + 1] : [box.y + box.h + 6, box.y + box.h - 1];
      context.beginPath();
      context.moveTo(at, tip);
      context.lineTo(at - 4.5, foot);
      context.lineTo(at + 4.5, foot);
      context.fill();
    }
  }

  toX(x) { return this.box.x + ((x - this.range[0]) / (this.range[1] - this.range[0])) * this.box.w; }

  fromX(pixel) { return this.range[0] + ((pixel - this.box.x) / this.box.w) * (this.range[1] - this.range[0]); }

  toY(y) {
    const { low, high, log } = this.vertical;
    const value = log ? Math.log10(Math.max(y, 1e-30)) : y;
    return this.box.y + (1 - (value - low) / (high - low)) * this.box.h;
  }

  axes(context) {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    context.font = "12px system-ui, sans-serif";
    context.lineWidth = 1;
    context.strokeStyle = colour("--line");
    context.fillStyle = colour("--faint");
    this.ink = colour("--faint");
    const { box, vertical } = this;
    context.textAlign = "right";
    context.textBaseline = "middle";
    for (const tick of ticks(vertical.low, vertical.high, 6)) {
      const y = box.y + (1 - (tick - vertical.low) / (vertical.high - vertical.low)) * box.h;
      stroke(context, [[box.x, y], [box.x + box.w, y]]);
      context.fillText(short(vertical.log ? 10 ** tick : tick), box.x - 6, y);
    }
    context.textAlign = "center";
    context.textBaseline = "top";
    for (const tick of ticks(...this.range, Math.max(box.w / 90, 2))) {
      const x = this.toX(tick);
      stroke(context, [[x, box.y], [x, box.y + box.h]]);
      context.fillText(this.options.x === "seconds" ? duration(tick) : short(tick), x, box.y + box.h + 6);
    }
  }

  /** Fills the band of a mean. */
  band(context, { low, high, line }) {
    if (low.length === 0) return;
    context.beginPath();
    for (const [x, y] of [...high, ...low.toReversed()]) context.lineTo(this.toX(x), this.toY(y));
    context.globalAlpha = 0.18;
    context.fillStyle = line.colour;
    context.fill();
    context.globalAlpha = 1;
  }

  /** Draws a curve. Each pixel column is reduced to its lowest and highest point. */
  line(context, curve) {
    context.strokeStyle = context.fillStyle = curve.line.colour;
    context.lineWidth = curve.marked ? 1.25 : 1.75;
    context.setLineDash(curve.line.dash);
    context.beginPath();
    let column = null;
    const flush = () => {
      if (!column) return;
      context.lineTo(column.x, column.first);
      if (column.low !== column.high) {
        context.lineTo(column.x, column.low);
        context.lineTo(column.x, column.high);
        context.lineTo(column.x, column.last);
      }
    };
    for (const [x, y] of curve.points) {
      if (y === null || (this.vertical.log && y <= 0)) continue;
      const [at, level] = [this.toX(x), this.toY(y)];
      if (column && Math.round(at) === Math.round(column.x)) {
        column.low = Math.min(column.low, level);
        column.high = Math.max(column.high, level);
        column.last = level;
        continue;
      }
      flush();
      column = { x: at, first: level, low: level, high: level, last: level };
    }
    flush();
    context.stroke();
    context.setLineDash([]);
    if (curve.marked || curve.points.length === 1) {
      for (const [x, y] of curve.points) {
        if (y === null) continue;
        context.beginPath();
        context.arc(this.toX(x), this.toY(y), 3, 0, 7);
        context.fill();
      }
    }
  }

  overlay(context) {
    const { box } = this;
    if (this.drag) {
      const [from, to] = [this.drag.from, this.drag.to].sort((a, b) => a - b);
      context.fillStyle = "rgba(128, 128, 140, .25)";
      context.fillRect(from, box.y, to - from, box.h);
    }
    this.tip.hidden = this.hover === null || this.drag !== null;
    if (this.tip.hidden) return;
    const x = this.fromX(this.hover);
    context.strokeStyle = this.ink;
    stroke(context, [[this.hover, box.y], [this.hover, box.y + box.h]]);
    const rows = this.drawn.flatMap((curve) => {
      const near = nearest(curve.points, x);
      return near && near[1] !== null ? [[curve, near]] : [];
    });
    const at = rows.length ? rows[0][1][0] : x;
    this.tip.replaceChildren({ step: `step ${short(at)}`, tokens: `${short(at)} tokens`, seconds: duration(at) }[this.options.x]);
    for (const [curve, [, y]] of rows) {
      const row = document.createElement("div");
      row.append(swatch(curve.line), `${curve.name} ${short(y)}`);
      this.tip.append(row);
    }
    const right = this.hover > box.x + box.w / 2;
    this.tip.style.left = right ? "auto" : `${this.hover + 24}px`;
    this.tip.style.right = right ? `${this.canvas.clientWidth - this.hover + 24}px` : "auto";
    this.tip.style.top = "2.6rem";
  }

  listen() {
    const canvas = this.canvas;
    const within = (event) => {
      const at = event.clientX - canvas.getBoundingClientRect().left;
      return this.box && Math.min(Math.max(at, this.box.x), this.box.x + this.box.w);
    };
    canvas.addEventListener("pointerdown", (event) => {
      if (event.pointerType === "touch" || event.button !== 0 || !this.box) return;
      canvas.setPointerCapture(event.pointerId);
      this.drag = { from: within(event), to: within(event) };
    });
    canvas.addEventListener("pointermove", (event) => {
      this.hover = within(event);
      if (this.drag) this.drag.to = this.hover;
      this.draw();
    });
    canvas.addEventListener("pointerup", () => {
      const drag = this.drag;
      this.drag = null;
      if (drag && Math.abs(drag.to - drag.from) > 6) {
        show([this.fromX(Math.min(drag.from, drag.to)), this.fromX(Math.max(drag.from, drag.to))]);
      } else {
        this.draw();
      }
    });
    canvas.addEventListener("pointerleave", () => {
      this.hover = null;
      this.draw();
    });
    canvas.addEventListener("dblclick", () => show(null));
    canvas.addEventListener("keydown", (event) => {
      const [from, to] = this.range ?? [0, 1];
      const [middle, half] = [(from + to) / 2, (to - from) / 2];
      const moved = {
        ArrowLeft: [from - half / 4, to - half / 4], ArrowRight: [from + half / 4, to + half / 4],
        "+": [middle - half / 1.5, middle + half / 1.5], "=": [middle - half / 1.5, middle + half / 1.5],
        "-": [middle - half * 1.5, middle + half * 1.5], 0: null, Escape: null,
      };
      if (!(event.key in moved) || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      show(clipped(moved[event.key], this.whole));
    });
  }
}

/** Clips a range to the data. Null for the whole data. */
function clipped(range, whole) {
  if (!range) return null;
  const width = Math.min(range[1] - range[0], whole[1] - whole[0]);
  const from = Math.min(Math.max(range[0], whole[0]), whole[1] - width);
  return width >= whole[1] - whole[0] ? null : [from, from + width];
}

/** About `count` round numbers in a range. */
function ticks(low, high, count) {
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= rough) ?? rough;
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step * 1e-9; at += step) found.push(Math.abs(at) < step * 1e-9 ? 0 : at);
  return found;
}

/** An exponential moving average with bias correction. */
function smoothed(share, points) {
  if (share === 0) return points;
  let [sum, weight] = [0, 0];
  return points.map(([x, y]) => {
    if (y === null) return [x, y];
    sum = share * sum + (1 - share) * y;
    weight = share * weight + (1 - share);
    return [x, sum / weight];
  });
}

function nearest(points, x) {
  let [low, high] = [0, points.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (points[middle][0] < x) low = middle + 1; else high = middle;
  }
  const before = points[low - 1];
  return before && x - before[0] < points[low][0] - x ? before : points[low];
}

function stroke(context, points) {
  context.beginPath();
  points.forEach(([x, y]) => context.lineTo(x, y));
  context.stroke();
}

/** Formats a duration in seconds. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "–";
  const whole = Math.max(Math.round(seconds), 0);
  const [hours, minutes] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60];
  if (hours) return `${hours} h ${minutes} m`;
  return minutes ? `${minutes} m ${whole % 60} s` : `${whole} s`;
}
