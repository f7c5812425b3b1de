// The functions that answers of a chat may call, and the fields for their results.

import { make } from "./elements.js";

const EXAMPLE = [{
  type: "function",
  function: {
    name: "get_weather",
    description: "The weather in a city.",
    parameters: {
      type: "object",
      properties: { city: { type: "string" }, unit: { enum: ["celsius", "fahrenheit"] } },
      required: ["city"],
      additionalProperties: false,
    },
  },
}];

const field = document.getElementById("tools");
const choice = document.getElementById("tool-choice");
document.getElementById("tools-example").addEventListener("click", () => {
  field.value = JSON.stringify(EXAMPLE, null, 2);
  field.focus();
  field.setSelectionRange(0, 0);
  field.scrollTop = 0;
});

/** The fields of a request with the functions. A function may be given without its type, and a single one without a list. */
export function defined() {
  if (field.value.trim() === "") return {};
  let read;
  try {
    read = JSON.parse(field.value);
  } catch (error) {
    throw new Error(`The tools are not valid JSON: ${error.message}`);
  }
  const tools = [read].flat().map((tool) => (tool?.function || !tool?.name ? tool : { type: "function", function: tool }));
  return { tools, tool_choice: choice.value };
}

/** The fields for the results of calls. */
export class Results {
  /** `send(results)` sends them. */
  constructor(place, send) {
    this.place = place;
    this.fields = [];
    this.drawn = null;
    place.querySelector("button").addEventListener("click", () => send(this.fields.map(({ value }) => value)));
    place.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
      event.preventDefault();
      place.querySelector("button").click();
    });
  }

  /** Shows a field for each call; none without calls. What was entered for the same calls is kept. */
  draw(calls) {
    this.place.hidden = calls.length === 0;
    const drawn = calls.map((call) => call.id).join();
    if (drawn === this.drawn) return;
    this.drawn = drawn;
    this.fields = calls.map(({ id }) => make("textarea", { id: `result-${id}`, rows: 2, spellcheck: false, placeholder: "18 degrees, sunny" }));
    const labelled = calls.map(({ id, name }, at) => make("div", {}, make("label", { htmlFor: `result-${id}` }, `Result of ${name}`), this.fields[at]));
    this.place.querySelector("div").replaceChildren(...labelled);
  }

  /** Fills the fields. */
  fill(results) {
    this.fields.forEach((field, at) => { field.value = results[at] ?? ""; });
    this.fields[0]?.focus();
  }
}
