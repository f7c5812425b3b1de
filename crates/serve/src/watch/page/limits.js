// Limits of the vertical axis that ignore a few outliers.

/** Curves with fewer points have no outliers. */
const FEWEST = 8;
/** The distance of the fences from the quartiles, in interquartile ranges. */
const FENCE = 3;
/** Outliers are ignored if they would make the axis more than this many times as long. */
const WORTH = 2;

/**
 * The lowest and highest value to show of `curves`, each a list of numbers. Outliers are values beyond
 * Tukey's outer fences, `quartile ± 3 · (q3 - q1)`. They are ignored if that makes the axis less than half as
 * long.
 */
export function limits(curves, cut) {
  const whole = extent(curves.flat());
  if (!cut) return whole;
  const [low, high] = extent(curves.flatMap(fenced));
  return whole[1] - whole[0] > WORTH * (high - low) ? [low, high] : whole;
}

/** The lowest and highest value within a curve's fences. */
function fenced(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const quantile = (share) => sorted[Math.round(share * (sorted.length - 1))];
  const [q1, q3] = [quantile(0.25), quantile(0.75)];
  if (sorted.length < FEWEST || q1 === q3) return [sorted[0], sorted.at(-1)].filter((value) => value !== undefined);
  const room = FENCE * (q3 - q1);
  const within = sorted.filter((value) => value >= q1 - room && value <= q3 + room);
  return [within[0], within.at(-1)];
}

/** The lowest and highest of `values`; a range around it if there is only one. */
export function extent(values) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  if (low > high) return [0, 1];
  return low === high ? [low - 0.5, high + 0.5] : [low, high];
}
