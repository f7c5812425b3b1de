// The table of runs, with filter, groups, sorting, and a checkbox per run that shows it in the
// charts.

import { duration, short } from "./chart.js";
import { SWEEP, choices, differences, groups, shortKey } from "./groups.js";
import { paint, swatch } from "./style.js";

const last = (events, key) => events.at(-1)?.[key];

/** The columns of all runs: rows are sorted by `value` and show `text`. */
const COLUMNS = [
  { id: "run", title: "run", value: (run) => run.name },
  { id: "status", title: "status", value: (run) => run.status ?? "" },
  { id: "tags", title: "tags", value: (run) => run.tags.join(", "), optional: true },
  {
    id: "step", title: "step", number: true, value: (run) => run.step,
    text: (run) => `${run.step}${run.planned ? ` / ${run.planned}` : ""}${run.skipped ? ` (${run.skipped} skipped)` : ""}`,
  },
  { id: "loss", title: "loss", number: true, value: (run) => last(run.steps, "loss") },
  { id: "validation", title: "validation", number: true, value: (run) => last(run.evaluations, "loss") },
  { id: "best", title: "best", number: true, value: (run) => run.best },
  { id: "speed", title: "tokens/s", number: true, value: (run) => last(run.paces, "tokens_per_second") },
  {
    id: "left", title: "left", number: true, text: (run) => duration(Table.left(run)), value: (run) => Table.left(run),
  },
];

export class Table {
  /** `changed()` is called when the set of shown runs changes. */
  constructor(runs, changed) {
    this.runs = runs;
    this.changed = changed;
    this.hidden = new Set();
    this.rows = new Map();
    this.sort = { id: null, down: false };
    this.element = document.getElementById("runs");
    this.form = document.getElementById("filters");
    this.form.addEventListener("input", () => this.refresh());
    this.form.addEventListener("submit", (event) => event.preventDefault());
    const { all, none } = this.form.elements;
    all.addEventListener("click", () => this.showAll(true));
    none.addEventListener("click", () => this.showAll(false));
  }

  static left(run) {
    return run.status === "running" ? last(run.paces, "seconds_left") : undefined;
  }

  /** The runs that match the filter: each word must occur in the name, sweep, status, tags or note. */
  filtered() {
    const words = this.form.elements.filter.value.toLowerCase().split(/\s+/).filter((word) => word);
    return [...this.runs.values()].filter((run) => {
      const text = [run.name, run.sweep ?? "", run.status ?? "", ...run.tags, run.note].join("\n").toLowerCase();
      return words.every((word) => text.includes(word));
    });
  }

  /** The runs to draw. */
  shown() {
    return this.filtered().filter((run) => !this.hidden.has(run.name));
  }

  showAll(shown) {
    for (const { name } of this.filtered()) if (shown) this.hidden.delete(name); else this.hidden.add(name);
    this.refresh();
  }

  refresh() {
    this.changed();
  }

  /** The groups of runs whose means are drawn, as [name, runs]; null if each run has its own curve. */
  means() {
    if (!this.by || this.by === SWEEP) return null;
    const shown = groups(this.filtered(), this.by).map(([name, own]) => [name, own.filter((run) => !this.hidden.has(run.name))]);
    return shown.filter(([name, own]) => name !== null && own.length > 0);
  }

  /** The columns. Includes tags if a run has any and, when grouped, the settings that differ (within a sweep). */
  columns(runs) {
    const columns = COLUMNS.filter((column) => !column.optional || runs.some((run) => run.tags.length));
    if (!this.by) return columns;
    const parts = this.by === SWEEP ? groups(runs, SWEEP).filter(([sweep]) => sweep !== null).map(([, own]) => own) : [runs];
    const differing = new Set(parts.flatMap(differences));
    const settings = [...differing].sort().map((key) => ({
      id: `setting ${key}`, title: shortKey(key), number: runs.every((run) => typeof run.settings?.[key] !== "string"),
      value: (run) => run.settings?.[key], text: (run) => shownSetting(run.settings?.[key]),
    }));
    return [columns[0], ...settings, ...columns.slice(1)];
  }

  /** The property that runs are grouped by; "" for none. */
  get by() {
    return this.form.elements.group.value;
  }

  /** Offers the settings in which the runs differ as properties to group by. */
  offer() {
    const select = this.form.elements.group;
    const offered = choices([...this.runs.values()]);
    const known = [...select.options].map(({ value }) => value).join("\n");
    if (known === offered.map(([value]) => value).join("\n")) return;
    const before = select.value;
    select.replaceChildren(...offered.map(([value, text]) => new Option(text, value)));
    select.value = offered.some(([value]) => value === before) ? before : "";
  }

  /** Updates the table. Rows are reused, so a focused checkbox keeps the focus. */
  draw(styles) {
    this.offer();
    const runs = this.filtered();
    const names = new Map((this.means() ?? []).flatMap(([name, own]) => own.map((run) => [run.name, name])));
    const columns = this.columns(runs);
    this.heads(columns);
    const found = this.form.elements.found;
    found.textContent = runs.length === this.runs.size ? "" : `${runs.length} of ${this.runs.size} runs`;
    const parts = this.by ? groups(runs, this.by) : [[undefined, runs]];
    const wanted = parts.flatMap(([name, own]) => {
      const heads = name === undefined ? [] : [this.groupRow(name, own, columns.length)];
      const line = (run) => styles.of(names.get(run.name) ?? run.name);
      return [...heads, ...this.sorted(own, columns).map((run) => this.row(run, columns, line(run)))];
    });
    const body = this.element.tBodies[0];
    const kept = new Set(wanted);
    for (const row of [...body.rows]) if (!kept.has(row)) row.remove();
    wanted.forEach((row, at) => {
      if (body.rows[at] !== row) body.insertBefore(row, body.rows[at] ?? null);
    });
    for (const name of [...this.rows.keys()]) if (!kept.has(this.rows.get(name).element)) this.rows.delete(name);
  }

  /** Sorts runs. Missing values come last in either order. */
  sorted(runs, columns) {
    const column = columns.find(({ id }) => id === this.sort.id);
    if (!column) return runs;
    const way = this.sort.down ? -1 : 1;
    const missing = (value) => value === undefined || value === null || value === "";
    return [...runs].sort((a, b) => {
      const [x, y] = [column.value(a), column.value(b)];
      if (missing(x) || missing(y)) return missing(x) - missing(y);
      const order = typeof x === "number" && typeof y === "number" ? x - y : `${x}`.localeCompare(`${y}`, "en", { numeric: true });
      return way * order;
    });
  }

  heads(columns) {
    const key = columns.map(({ id }) => id).join("\n");
    const row = this.element.tHead.rows[0];
    if (this.headed !== key) {
      this.headed = key;
      row.replaceChildren(...columns.map((column) => this.head(column)));
    }
    for (const head of row.cells) {
      const sorted = head.dataset.id === this.sort.id;
      if (sorted) head.setAttribute("aria-sort", this.sort.down ? "descending" : "ascending"); else head.removeAttribute("aria-sort");
    }
  }

  head({ id, title, number }) {
    const head = document.createElement("th");
    head.scope = "col";
    head.dataset.id = id;
    head.classList.toggle("number", number === true);
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = title;
    button.addEventListener("click", () => {
      // Cycle through ascending, descending and unsorted.
      if (this.sort.id !== id) this.sort = { id, down: false };
      else if (!this.sort.down) this.sort.down = true;
      else this.sort = { id: null, down: false };
      this.refresh();
    });
    head.append(button);
    return head;
  }

  groupRow(group, runs, width) {
    const key = `group ${group ?? ""}`;
    let kept = this.rows.get(key);
    if (!kept) {
      const element = document.createElement("tr");
      element.className = "group";
      const head = document.createElement("th");
      head.scope = "rowgroup";
      const { label, box } = checkbox((shown) => {
        for (const { name } of this.rows.get(key).runs) if (shown) this.hidden.delete(name); else this.hidden.add(name);
        this.refresh();
      });
      const name = document.createElement("span");
      label.append(name);
      head.append(label);
      element.append(head);
      kept = { element, head, box, name };
      this.rows.set(key, kept);
    }
    kept.runs = runs;
    kept.head.colSpan = width;
    const shown = runs.filter((run) => !this.hidden.has(run.name)).length;
    kept.box.checked = shown > 0;
    kept.box.indeterminate = shown > 0 && shown < runs.length;
    write(kept.name, `${group ?? (this.by === SWEEP ? "no sweep" : "unknown settings")}: ${runs.length} ${runs.length === 1 ? "run" : "runs"}`);
    return kept.element;
  }

  row(run, columns, line) {
    let row = this.rows.get(run.name);
    if (!row) {
      const element = document.createElement("tr");
      const { label, box } = checkbox((shown) => {
        if (shown) this.hidden.delete(run.name); else this.hidden.add(run.name);
        this.refresh();
      });
      const sample = swatch(null);
      label.append(sample, run.name);
      row = { element, label, box, sample };
      this.rows.set(run.name, row);
    }
    const key = columns.map(({ id }) => id).join("\n");
    if (row.key !== key) {
      row.key = key;
      row.element.replaceChildren(...columns.map(({ number }) => {
        const cell = document.createElement("td");
        cell.classList.toggle("number", number === true);
        return cell;
      }));
      row.element.cells[0].append(row.label);
    }
    row.box.checked = !this.hidden.has(run.name);
    row.label.title = run.note;
    if (row.style !== JSON.stringify(line)) {
      row.style = JSON.stringify(line);
      paint(row.sample, line);
    }
    columns.slice(1).forEach((column, at) => {
      const value = column.value(run);
      write(row.element.cells[at + 1], column.text ? column.text(run) : column.number ? short(value) : `${value || "–"}`);
    });
    return row.element;
  }
}

function checkbox(changed) {
  const label = document.createElement("label");
  const box = Object.assign(document.createElement("input"), { type: "checkbox", checked: true });
  box.addEventListener("change", () => changed(box.checked));
  label.append(box);
  return { label, box };
}

function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function shownSetting(value) {
  if (value === undefined || value === null) return "–";
  return typeof value === "number" ? short(value) : `${typeof value === "object" ? JSON.stringify(value) : value}`;
}
