// The list of models: names, aliases and adapters, in groups by their kind.

import { make } from "./elements.js";

const KINDS = { decoder: "Decoders", encoder_decoder: "Encoder–decoders", encoder: "Encoders" };

/** The names of a model: its own and its aliases. */
export const names = (model) => [model.id, ...model.aliases];

/** The models' names with descriptions, as [name, description], in groups by kind. */
function options(models) {
  const kinds = Object.keys(KINDS).filter((kind) => models.some((model) => model.kind === kind));
  return kinds.map((kind) => {
    const own = models.filter((model) => model.kind === kind).flatMap((model) => [
      [model.id, model.adapter_of ? `${model.id} (adapter of ${model.adapter_of})` : model.id],
      ...model.aliases.map((alias) => [alias, `${alias} → ${model.id}`]),
    ]);
    return { name: KINDS[kind], options: own };
  });
}

/** Fills a list with the models. Groups are shown if there are several. */
export function fill(select, models) {
  const groups = options(models);
  const listed = JSON.stringify(groups);
  if (select.dataset.listed === listed) return;
  select.dataset.listed = listed;
  const made = groups.map(({ name, options: own }) => {
    const children = own.map(([value, label]) => new Option(label, value));
    return groups.length > 1 ? [make("optgroup", { label: name }, ...children)] : children;
  });
  select.replaceChildren(...made.flat());
}
