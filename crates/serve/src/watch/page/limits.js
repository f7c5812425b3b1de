// Limits of a vertical axis that a few outliers do not spoil.

/** Fewer points have no outliers. */
const FEWEST = 8;
/** Fences are so many interquartile ranges beyond the quartiles. */
const FENCE = 3;
/** Outliers are left out where the axis would otherwise be so many times as long. */
const WORTH = 2;

/**
 * The lowest and the highest value to show of curves, each a list of numbers. A curve's outliers are beyond Tukey's outer
 * fences, `quartile ± 3 · (q3 - q1)`; they are left out where that makes the axis less than half as long.
 */
export function limits(curves, cut) {
  const whole = extent(curves.flat());
  if (!cut) return whole;
  const [low, high] = extent(curves.flatMap(fenced));
  return whole[1] - whole[0] > WORTH * (high - low) ? [low, high] : whole;
}

/** The lowest and the highest value within a curve's fences. */
function fenced(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const quantile = (share) => sorted[Math.round(share * (sorted.length - 1))];
  const [q1, q3] = [quantile(0.25), quantile(0.75)];
  if (sorted.length < FEWEST || q1 === q3) return [sorted[0], sorted.at(-1)].filter((value) => value !== undefined);
  const room = FENCE * (q3 - q1);
  const within = sorted.filter((value) => value >= q1 - room && value <= q3 + room);
  return [within[0], within.at(-1)];
}

/** The lowest and the highest of values; a range around a single one. */
export function extent(values) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  if (low > high) return [0, 1];
  return low === high ? [low - 0.5, high + 0.5] : [low, high];
}
