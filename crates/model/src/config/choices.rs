//! The variants of the model's components with the settings that each has, and the defaults of those settings.
//!
//! Every setting of a variant has a default, so `kind` by itself selects it. The defaults of lengths depend on other settings of
//! the model; `complete` fills these in.

use serde_json::{Map, Value, json};

use emberlm_kernels::RotaryLayout;

use super::FullLayers;

/// A variant of a component: the component's key, the variant's `kind`, and the variant's other settings.
type Variant = (&'static str, &'static str, &'static [&'static str]);

const ROTARY: &[&str] = &["dims", "base", "layout", "scaling"];
const FEED_FORWARD: &[&str] = &["activation", "width", "expansion"];
const LAYER_ROTARY: &[&str] = &["layers", "base", "scaling"];

/// Every variant of the components that have several.
const VARIANTS: [Variant; 36] = [
    (
        "attention",
        "softmax",
        &["window", "scale", "soft_cap", "sinks"],
    ),
    ("attention", "linear", &["features", "seed"]),
    ("norm", "layer", &["bias", "epsilon"]),
    ("norm", "rms", &["epsilon"]),
    ("norm", "offset_rms", &["epsilon"]),
    ("norm", "unit_rms", &["epsilon"]),
    ("position", "learned", &[]),
    ("position", "sinusoidal", &[]),
    ("position", "rotary", ROTARY),
    ("position", "alibi", &[]),
    ("position", "relative", &["buckets", "max_distance"]),
    ("position", "none", &[]),
    ("scaling", "none", &[]),
    ("scaling", "linear", &["factor"]),
    (
        "scaling",
        "llama3",
        &[
            "factor",
            "low_frequency_factor",
            "high_frequency_factor",
            "original_seq_len",
        ],
    ),
    ("scaling", "dynamic", &["factor", "original_seq_len"]),
    (
        "scaling",
        "yarn",
        &[
            "factor",
            "beta_fast",
            "beta_slow",
            "attention_factor",
            "truncate",
            "original_seq_len",
        ],
    ),
    (
        "scaling",
        "longrope",
        &[
            "short_factor",
            "long_factor",
            "attention_factor",
            "original_seq_len",
        ],
    ),
    ("layer_positions", "none", &["layers"]),
    ("layer_positions", "rotary", LAYER_ROTARY),
    ("feed_forward", "dense", FEED_FORWARD),
    ("feed_forward", "gated", FEED_FORWARD),
    ("wiring", "pre_norm", &[]),
    ("wiring", "post_norm", &[]),
    ("wiring", "output_norm", &[]),
    ("wiring", "sandwich", &[]),
    ("wiring", "parallel", &["shared_norm"]),
    ("init", "normal", &["std", "scale_residual"]),
    ("init", "fan_in", &[]),
    ("init", "le_cun", &[]),
    ("init", "truncated_xavier", &[]),
    ("init", "small", &[]),
    ("init", "t5", &["factor"]),
    ("architecture", "decoder", &[]),
    (
        "architecture",
        "encoder",
        &[
            "segments",
            "first_position",
            "first_norm",
            "attention_dropout",
            "head",
        ],
    ),
    (
        "architecture",
        "encoder_decoder",
        &["encoder_layers", "start_token", "padding_token"],
    ),
];

/// The kinds of the component `component`, such as `norm`, in the order of the documentation. Empty for a table without
/// kinds.
pub fn kinds(component: &str) -> impl Iterator<Item = &'static str> {
    let of = VARIANTS.iter().filter(move |(name, ..)| *name == component);
    of.map(|(_, kind, _)| *kind)
}

/// The settings of a component with `kind`, except `kind` itself.
pub fn settings(component: &str, kind: &str) -> &'static [&'static str] {
    let variant = VARIANTS
        .iter()
        .find(|(name, of, _)| (*name, *of) == (component, kind));
    variant.map_or(&[], |(_, _, settings)| settings)
}

/// Fills in the settings whose defaults depend on the model: an encoder–decoder's encoder has as many blocks as its decoder, the
/// original context of rotary scaling is the model's, and LongRoPE's divisors are 1.
pub(super) fn complete(fields: &mut Map<String, Value>) {
    let size = |key: &str| fields.get(key).and_then(Value::as_u64);
    let (context, n_layers) = (size("seq_len"), size("n_layers"));
    let head_dim = size("head_dim").or_else(|| size("d_model")?.checked_div(size("heads")?));
    if let Some(stacks) = fields
        .get_mut("architecture")
        .and_then(Value::as_object_mut)
        && stacks.get("kind").and_then(Value::as_str) == Some("encoder_decoder")
        && let Some(n_layers) = n_layers
    {
        stacks.entry("encoder_layers").or_insert(json!(n_layers));
    }
    for table in ["position", "layer_positions"] {
        let Some(table) = fields.get_mut(table).and_then(Value::as_object_mut) else {
            continue;
        };
        let dims = table.get("dims").and_then(Value::as_u64).or(head_dim);
        if let Some(scaling) = table.get_mut("scaling").and_then(Value::as_object_mut) {
            complete_scaling(scaling, context, dims);
        }
    }
}

fn complete_scaling(scaling: &mut Map<String, Value>, context: Option<u64>, dims: Option<u64>) {
    let kind = scaling.get("kind").and_then(Value::as_str).unwrap_or("");
    let settings = settings("scaling", kind);
    if let Some(context) = context.filter(|_| settings.contains(&"original_seq_len")) {
        scaling
            .entry("original_seq_len")
            .or_insert_with(|| json!(context));
    }
    // Larger sizes are rejected later.
    let dims = dims.filter(|&dims| dims <= 1 << 16);
    for key in ["short_factor", "long_factor"] {
        if let Some(dims) = dims.filter(|_| settings.contains(&key)) {
            let ones = || json!(vec![1.0; dims.div_ceil(2) as usize]);
            scaling.entry(key).or_insert_with(ones);
        }
    }
}

pub(crate) const fn yes() -> bool {
    true
}

pub(crate) const fn is_yes(flag: &bool) -> bool {
    *flag
}

pub(crate) const fn is_no(flag: &bool) -> bool {
    !*flag
}

pub(super) const fn epsilon() -> f64 {
    1e-5
}

pub(super) const fn rotary_base() -> f64 {
    10_000.0
}

pub(super) const fn rotary_layout() -> RotaryLayout {
    RotaryLayout::HalfSplit
}

pub(super) const fn std() -> f64 {
    0.02
}

/// Every fourth block, as in SmolLM3.
pub(super) const fn every_fourth() -> FullLayers {
    FullLayers::Every { every: 4 }
}

/// Twice the original context.
pub(super) const fn twice() -> f64 {
    2.0
}

/// LLaMA 3.1's factor.
pub(super) const fn eight() -> f64 {
    8.0
}

pub(super) const fn four() -> f64 {
    4.0
}

pub(super) const fn one() -> f64 {
    1.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ModelConfig;
    use crate::families;
    use crate::transformer::checked::TransformerConfig;

    fn base() -> Value {
        let mut config = families::preset("llama-2-7b").expect("a preset").config;
        (config.n_layers, config.vocab_size) = (8, Some(65));
        serde_json::to_value(config).expect("JSON")
    }

    #[test]
    fn a_kind_alone_selects_every_variant() {
        for (component, kind, settings) in VARIANTS {
            let mut model = base();
            let mut table = json!({ "kind": kind });
            if component == "feed_forward" {
                table["activation"] = json!("gelu");
            }
            match component {
                "scaling" => model["position"]["scaling"] = table,
                component => model[component] = table,
            }
            let config: ModelConfig =
                serde_json::from_value(model).unwrap_or_else(|error| panic!("{kind}: {error}"));
            let checked = TransformerConfig::try_from(config.clone());
            checked.unwrap_or_else(|error| panic!("{component} {kind}: {error}"));
            // The list names every setting that the variant has.
            let written = serde_json::to_value(config).expect("JSON");
            let table = match component {
                "scaling" => &written["position"]["scaling"],
                component => &written[component],
            };
            // A decoder's stacks are not written.
            for key in table.as_object().into_iter().flat_map(Map::keys) {
                let listed = key == "kind" || settings.contains(&key.as_str());
                assert!(listed, "{component} {kind}: {key}");
            }
        }
    }

    #[test]
    fn listed_settings_are_those_of_their_variant() {
        for (component, kind, settings) in VARIANTS {
            for key in settings {
                let mut model = base();
                let table = match component {
                    "scaling" => &mut model["position"]["scaling"],
                    component => &mut model[component],
                };
                *table = json!({ "kind": kind, "activation": "gelu" });
                if component != "feed_forward" {
                    table.as_object_mut().expect("a table").remove("activation");
                }
                // A value of no type that a setting has.
                table[*key] = json!({ "unknown": "value" });
                let error = serde_json::from_value::<ModelConfig>(model).expect_err("a wrong type");
                let error = error.to_string();
                assert!(
                    !error.contains(&format!("unknown field `{key}`")),
                    "{component} {kind}: {error}"
                );
            }
        }
    }
}
