// Documents by their relevance to a query, by a cross-encoder.

import { make } from "./elements.js";
import { bars } from "./labels.js";
import { counted } from "./spelling.js";
import { Texts } from "./texts.js";

export class Ranking extends Texts {
  constructor(page) { super(page, "ranking"); }

  request(documents) {
    return { path: "rerank", body: { query: document.getElementById("query").value, documents } };
  }

  shown(_, { results }) {
    const ranked = bars(results.map(({ document: { text }, relevance_score: score }) => [text, score]));
    return [make("h2", {}, "By relevance"), ranked];
  }

  summary(_, { results }) {
    return `${counted(results.length, "document")}. The most relevant: ${results[0].document.text}`;
  }
}
