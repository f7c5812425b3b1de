// The labels of texts with their probabilities, by an encoder with a classifier.

import { bar, make } from "./elements.js";
import { Texts } from "./texts.js";

/** A list of named numbers between 0 and 1 as bars. `entries` are [name, number]. */
export function bars(entries) {
  const rows = entries.map(([name, share]) => make("li", {},
    make("span", { className: "name" }, name), bar(share), make("span", { className: "share" }, share.toFixed(3))));
  return make("ol", { className: "bars" }, ...rows);
}

export class Labels extends Texts {
  constructor(page) { super(page, "labels"); }

  request(texts) {
    return { path: "classify", body: { input: texts } };
  }

  shown(texts, { data }) {
    return data.map(({ probs }, at) => {
      const named = this.page.model.labels.map((name, label) => [name, probs[label]]);
      return make("section", {}, make("h2", {}, texts[at]), bars(named.sort((a, b) => b[1] - a[1])));
    });
  }

  summary(texts, { data }) {
    return data.map(({ label }, at) => `${texts[at]}: ${label}.`).join(" ");
  }
}
