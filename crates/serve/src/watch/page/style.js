// Colours and line styles of the runs.

/**
 * Colours for light and dark pages. Each has a contrast of at least 3 with its page, and any two differ by at
 * least 0.12 in Oklab, also as simulated for protanopia, deuteranopia and tritanopia
 * (`tests/browser/watch.py`).
 */
export const PALETTES = {
  light: ["#4748d6", "#e45d0f", "#359b84", "#771b2d", "#a47ee0", "#4d2f78", "#ab3a26", "#7d558b"],
  dark: ["#51c7bd", "#ef922a", "#a981ff", "#fddf0a", "#c1540b", "#9afbd3", "#8c47d2", "#318886"],
};

/** Line dashes, used if there are more runs than colours. */
const DASHES = [[], [9, 4], [2, 3], [9, 3, 2, 3], [16, 5], [6, 2, 2, 2, 2, 2]];

const dark = matchMedia("(prefers-color-scheme: dark)");

/** The style with a given number: colours vary first, then dashes. */
function style(number) {
  const palette = dark.matches ? PALETTES.dark : PALETTES.light;
  return {
    colour: palette[number % palette.length],
    dash: DASHES[Math.floor(number / palette.length) % DASHES.length],
  };
}

/** Assigns each shown run its own style. A run keeps its style while it is shown. */
export class Styles {
  constructor() {
    this.numbers = new Map();
  }

  /** Sets the names of the shown runs. */
  show(names) {
    const shown = new Set(names);
    for (const name of [...this.numbers.keys()]) if (!shown.has(name)) this.numbers.delete(name);
    const taken = new Set(this.numbers.values());
    let free = 0;
    for (const name of names) {
      if (this.numbers.has(name)) continue;
      while (taken.has(free)) free += 1;
      taken.add(free);
      this.numbers.set(name, free);
    }
  }

  /** The style of a run; null if it is not shown. */
  of(name) {
    return this.numbers.has(name) ? style(this.numbers.get(name)) : null;
  }
}

/** A sample of a line style, for tables and tooltips. */
export function swatch(line) {
  const element = document.createElement("span");
  element.className = "swatch";
  paint(element, line);
  return element;
}

/** Changes the line style of a sample. */
export function paint(element, line) {
  const { colour, dash } = line ?? { colour: "transparent", dash: [] };
  const stops = [];
  let at = 0;
  dash.forEach((length, n) => {
    const ink = n % 2 ? "transparent" : colour;
    stops.push(`${ink} ${at}px`, `${ink} ${at + length}px`);
    at += length;
  });
  element.style.background = stops.length ? `repeating-linear-gradient(90deg, ${stops.join(", ")})` : colour;
}
