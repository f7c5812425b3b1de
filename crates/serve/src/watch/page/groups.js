// Groups of runs, and the mean of their curves. The rules are those of `emberlm plot --group-by`.

/** The setting in which the runs of one configuration may differ. */
const SEED = "train.seed";

/** The ways to group runs, as values of the page's selection. A setting is grouped by `setting KEY`. */
export const SWEEP = "sweep";
export const CONFIGURATION = "configuration";
const SETTING = "setting ";

/** The choices of the selection: [value, text]. */
export function choices(runs) {
  const settings = differences(runs).map((key) => [SETTING + key, `by ${shortKey(key)}`]);
  return [["", "not at all"], [SWEEP, "by sweep"], [CONFIGURATION, "by configuration"], ...settings];
}

/** The name of a setting without its first table. */
export function shortKey(key) {
  return key.replace(/^train\./, "");
}

/** Groups runs, sorted by name, as [name, runs]. The last one has no name: the runs without the property. */
export function groups(runs, by) {
  const keys = by === CONFIGURATION ? differences(runs).filter((key) => key !== SEED) : [by.slice(SETTING.length)];
  const property = (run) => {
    if (by === SWEEP) return run.sweep;
    if (!run.settings) return null;
    const text = (key) => JSON.stringify(run.settings[key]) ?? "unset";
    if (by !== CONFIGURATION) return text(keys[0]);
    return keys.map((key) => `${shortKey(key)} = ${text(key)}`).join(", ") || "all runs";
  };
  const found = new Map();
  for (const run of runs) {
    const name = property(run);
    if (!found.has(name)) found.set(name, []);
    found.get(name).push(run);
  }
  return [...found].sort(([a], [b]) => (a === null) - (b === null) || `${a}`.localeCompare(`${b}`, "en", { numeric: true }));
}

/** The settings that are not equal in all runs, sorted. */
export function differences(runs) {
  const known = runs.filter((run) => run.settings);
  const keys = new Set(known.flatMap((run) => Object.keys(run.settings)));
  const value = (run, key) => JSON.stringify(run.settings[key]);
  return [...keys].filter((key) => known.some((run) => value(run, key) !== value(known[0], key))).sort();
}

/**
 * The mean of curves over their common range, at every position where one of them has a point, with the mean ± the
 * standard deviation of a sample. Curves are interpolated linearly.
 */
export function mean(curves) {
  const ordered = curves.map(order).filter((points) => points.length > 0);
  const found = { points: [], low: [], high: [] };
  if (ordered.length === 0) return found;
  const from = Math.max(...ordered.map((points) => points[0][0]));
  const to = Math.min(...ordered.map((points) => points.at(-1)[0]));
  const places = [...new Set(ordered.flatMap((points) => points.map(([x]) => x)))].filter((x) => x >= from && x <= to);
  places.sort((a, b) => a - b);
  const next = ordered.map(() => 0);
  for (const x of places) {
    const values = ordered.map((points, at) => {
      while (points[next[at]][0] < x) next[at] += 1;
      const [there, y] = points[next[at]];
      if (there === x) return y;
      const [before, start] = points[next[at] - 1];
      return start + ((x - before) / (there - before)) * (y - start);
    });
    const middle = values.reduce((sum, y) => sum + y, 0) / values.length;
    const squares = values.reduce((sum, y) => sum + (y - middle) ** 2, 0);
    const deviation = Math.sqrt(squares / Math.max(values.length - 1, 1));
    found.points.push([x, middle]);
    found.low.push([x, middle - deviation]);
    found.high.push([x, middle + deviation]);
  }
  return found;
}

/** The finite points of a curve by position. Of several points at one position, the last is kept. */
function order(points) {
  const last = new Map(points.filter(([, y]) => y !== null));
  return [...last].sort(([a], [b]) => a - b);
}
