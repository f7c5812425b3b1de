// The similarities of texts by an encoder's embeddings, as a matrix.

import { make } from "./elements.js";
import { counted } from "./spelling.js";
import { Texts } from "./texts.js";

/** The cosine of the angle between two vectors. */
function cosine(a, b) {
  const product = (x, y) => x.reduce((sum, value, at) => sum + value * y[at], 0);
  return product(a, b) / (Math.sqrt(product(a, a) * product(b, b)) || 1);
}

/** The cosines between all vectors. */
const cosines = ({ data }) => data.map((a) => data.map((b) => cosine(a.embedding, b.embedding)));

export class Similarity extends Texts {
  constructor(page) { super(page, "similarity"); }

  request(texts) {
    return { path: "v1/embeddings", body: { input: texts } };
  }

  shown(texts, answer) {
    const matrix = cosines(answer);
    const head = make("tr", {}, make("td"), ...texts.map((text, at) => make("th", { scope: "col", title: text }, `${at + 1}`)));
    const rows = texts.map((text, row) => {
      const label = make("th", { scope: "row", title: text }, make("span", {}, `${row + 1}`), ` ${text}`);
      return make("tr", {}, label, ...matrix[row].map((value) => {
        const cell = make("td", {}, value.toFixed(2));
        cell.style.setProperty("--share", Math.min(Math.max(value, 0), 1));
        return cell;
      }));
    });
    const caption = make("caption", {}, `Cosine similarities · ${counted(answer.data[0].embedding.length, "dimension")}`);
    const scrolled = make("div", { className: "matrix", tabIndex: 0 }, make("table", {}, caption, make("thead", {}, head), make("tbody", {}, ...rows)));
    scrolled.setAttribute("role", "region");
    scrolled.setAttribute("aria-label", "similarities");
    return [scrolled];
  }

  /** The most similar pair in a sentence. */
  summary(texts, answer) {
    const matrix = cosines(answer);
    const pairs = texts.flatMap((_, a) => texts.slice(0, a).map((_, b) => [matrix[a][b], b, a]));
    if (!pairs.length) return "One text has no other to compare with.";
    const [value, a, b] = pairs.reduce((best, pair) => (pair[0] > best[0] ? pair : best));
    return `${counted(texts.length, "text")}. The most similar are ${a + 1} and ${b + 1}, with ${value.toFixed(2)}.`;
  }
}
