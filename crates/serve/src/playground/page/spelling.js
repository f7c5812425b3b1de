// Tokens and numbers as they are read.

const VISIBLE = { " ": "␣", "\n": "⏎", "\r": "␍", "\t": "⇥", "\u00a0": "⍽" };

/** A token by itself, with what is not seen made visible. */
export function spelt(text) {
  return text === "" ? "∅" : text.replace(/[ \n\r\t\u00a0]/g, (character) => VISIBLE[character]);
}

/** A log-probability as a share: three digits, and no false zero or certainty. */
export function percent(logprob) {
  const share = 100 * Math.exp(logprob);
  if (share < 0.01) return "<0.01%";
  if (share > 99.95 && logprob < 0) return ">99.9%";
  return `${share.toFixed(share < 1 ? 2 : 1)}%`;
}

/** A whole number with its thousands apart. */
export const grouped = (number) => number.toLocaleString("en");

/** A number and what it counts. */
export const counted = (number, thing) => `${grouped(number)} ${thing}${number === 1 ? "" : "s"}`;
