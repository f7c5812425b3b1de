// Formatting of tokens and numbers.

const VISIBLE = { " ": "␣", "\n": "⏎", "\r": "␍", "\t": "⇥", "\u00a0": "⍽" };

/** The text of a token, with whitespace made visible. */
export function spelt(text) {
  return text === "" ? "∅" : text.replace(/[ \n\r\t\u00a0]/g, (character) => VISIBLE[character]);
}

/** A log-probability as a percentage with three digits, never rounded to 0% or 100%. */
export function percent(logprob) {
  const share = 100 * Math.exp(logprob);
  if (share < 0.01) return "<0.01%";
  if (share > 99.95 && logprob < 0) return ">99.9%";
  return `${share.toFixed(share < 1 ? 2 : 1)}%`;
}

/** A whole number with thousands separators. */
export const grouped = (number) => number.toLocaleString("en");

/** A number with its noun. */
export const counted = (number, thing) => `${grouped(number)} ${thing}${number === 1 ? "" : "s"}`;
