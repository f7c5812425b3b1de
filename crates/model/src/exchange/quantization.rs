//! The `quantization_config` field of a `config.json`.
//!
//! Supported are symmetric int8 weights with one scale per output, in the formats `pack-quantized` and
//! `int-quantized` of the `compressed-tensors` library, which `transformers` loads. That library quantizes only
//! `torch.nn.Linear`. Models with other layers (GPT-2's `Conv1D`, `[in, out]`) are therefore written in a custom
//! format without `quant_method`, which `transformers` and vLLM reject. Experts that a checkpoint stacks may be MXFP4, which
//! is read and not written.

use serde_json::{Value, json};

use super::Exchange;
use super::fields::Fields;
use crate::error::HuggingFaceError;
use crate::transformer::checked::TransformerConfig;
use crate::weights::quantized::{Int8, Quantization, QuantizedLayout};

/// Name of the field in `config.json`.
pub(crate) const FIELD: &str = "quantization_config";
/// Library that defines the format.
const METHOD: &str = "compressed-tensors";
/// Method of experts in MXFP4.
const MXFP4: &str = "mxfp4";
const WORDS: &str = "pack-quantized";
const BYTES: &str = "int-quantized";
/// [`WORDS`] for model types that the library does not quantize.
const CUSTOM: &str = "emberlm-int8";

type Read<T> = Result<T, HuggingFaceError>;

/// Reads the quantization from a `config.json`; returns `None` if the weights are in floating point. A tied head is
/// never quantized, because it is the embedding.
pub(crate) fn read(
    fields: &Fields<'_>,
    exchange: &Exchange,
    model: &TransformerConfig,
) -> Read<Option<Quantization>> {
    let Some(config) = fields.object(FIELD)? else {
        return Ok(None);
    };
    let layout = match config.optional_text("quant_method")? {
        None if config.optional_text("format")? == Some(CUSTOM) => QuantizedLayout::Words,
        Some(METHOD) => compressed_tensors(&config)?,
        Some(MXFP4) if has_stacked_experts(model) => {
            // Which layers are not converted is known from their tensors.
            config.optional_texts("modules_to_not_convert")?;
            return Ok(Some(Quantization::Mxfp4));
        }
        _ => return Err(config.error("quant_method", format!("must be {METHOD}"))),
    };
    let head = !ignores_head(&config, exchange, model)? && !model.head().tied;
    Ok(Some(Quantization::Int8(Int8 { layout, head })))
}

/// True if a file has the matrices of all experts of a layer in one tensor.
fn has_stacked_experts(model: &TransformerConfig) -> bool {
    let path = "blocks.0.feed_forward.experts.0.down.weight";
    let source = model.family().source(model, path);
    source.is_some_and(|source| source.is_stacked())
}

fn compressed_tensors(config: &Fields<'_>) -> Read<QuantizedLayout> {
    let layout = layout(config)?;
    let status = config.optional_text("quantization_status")?;
    if !matches!(status, None | Some("compressed")) {
        return Err(config.error("quantization_status", "must be compressed"));
    }
    config.refuse(
        "kv_cache_scheme",
        "quantized key-value caches are not supported",
    )?;
    config.refuse("moe_sparsity_config", "sparse weights are not supported")?;
    if let Some(sparsity) = config.object("sparsity_config")?
        && !matches!(sparsity.optional_text("format")?, None | Some("dense"))
    {
        return Err(sparsity.error("format", "sparse weights are not supported"));
    }
    if let Some(transforms) = config.object("transform_config")?
        && !transforms.is_empty()
    {
        return Err(config.error("transform_config", "transformed weights are not supported"));
    }
    let groups = config.object("config_groups")?;
    let group = match &groups {
        Some(groups) => groups.only_object()?,
        None => None,
    };
    let Some(group) = group else {
        return Err(config.error("config_groups", "must have one group"));
    };
    if group.optional_text("format")?.is_some() && self::layout(&group)? != layout {
        return Err(group.error("format", "must be the format of the whole"));
    }
    if group.optional_texts("targets")? != Some(vec!["Linear"]) {
        return Err(group.error("targets", "must be [\"Linear\"]"));
    }
    for activations in ["input_activations", "output_activations"] {
        group.refuse(activations, "quantized activations are not supported")?;
    }
    let Some(weights) = group.object("weights")? else {
        return Err(group.error("weights", "must be an object"));
    };
    check_weights(&weights)?;
    Ok(layout)
}

fn layout(fields: &Fields<'_>) -> Read<QuantizedLayout> {
    match fields.optional_text("format")? {
        Some(WORDS) => Ok(QuantizedLayout::Words),
        Some(BYTES) => Ok(QuantizedLayout::Bytes),
        _ => Err(fields.error("format", format!("must be {WORDS} or {BYTES}"))),
    }
}

/// Checks that weights are symmetric int8 with one scale per output.
fn check_weights(weights: &Fields<'_>) -> Read<()> {
    if weights.optional_size("num_bits")? != Some(8) {
        return Err(weights.error("num_bits", "must be 8"));
    }
    if !matches!(weights.optional_text("type")?, None | Some("int")) {
        return Err(weights.error("type", "must be int"));
    }
    weights.only(
        "symmetric",
        true,
        "must be true: zero points are not supported",
    )?;
    weights.only("dynamic", false, "must be false")?;
    if !weights.is_any_of("actorder", &[Value::Null, json!(false)]) {
        return Err(weights.error(
            "actorder",
            "must be null: reordered weights are not supported",
        ));
    }
    weights.refuse("block_structure", "must be null")?;
    // The library has two spellings of one scale per output.
    let group_size = weights.is_any_of("group_size", &[Value::Null, json!(-1)]);
    let strategy = weights.optional_text("strategy")?;
    let inferred = strategy.is_none() && weights.is_any_of("group_size", &[json!(-1)]);
    match group_size {
        true if strategy == Some("channel") || inferred => Ok(()),
        true => Err(weights.error("strategy", "must be channel: one scale for each output")),
        false => Err(weights.error("group_size", "must be null: one scale for each output")),
    }
}

/// Returns true if the head is not quantized. Routers are never quantized; no other layer may be left out.
fn ignores_head(config: &Fields<'_>, exchange: &Exchange, model: &TransformerConfig) -> Read<bool> {
    let head = head_module(exchange);
    let mut ignored = config.optional_texts("ignore")?.unwrap_or_default();
    let routers = routers(model);
    if let Some(routers) = &routers {
        ignored.retain(|name| name.trim_end_matches('$') != routers.trim_end_matches('$'));
    }
    let pattern = format!("re:.*{head}");
    if ignored.iter().all(|&name| name == head || name == pattern) {
        return Ok(!ignored.is_empty());
    }
    let routers = routers.map_or_else(String::new, |routers| format!(", with \"{routers}\""));
    Err(config.error("ignore", format!("must be [] or [\"{head}\"]{routers}")))
}

/// The pattern of the routers' modules; none without experts.
fn routers(model: &TransformerConfig) -> Option<String> {
    model.experts()?;
    let path = "blocks.0.feed_forward.router.weight";
    let source = model.family().source(model, path)?;
    let name = source.names().next()?.strip_suffix(".weight")?;
    let (_, module) = name.split_once(".0.")?;
    Some(format!("re:.*{module}$"))
}

fn head_module(exchange: &Exchange) -> &'static str {
    let head = exchange.head;
    head.strip_suffix(".weight").unwrap_or(head)
}

/// Builds the field for weights in [`QuantizedLayout::Words`]. `linear` is false if the model type's matrices are not
/// of the class `Linear`.
pub(crate) fn write(
    quantization: Int8,
    exchange: &Exchange,
    model: &TransformerConfig,
    linear: bool,
) -> Value {
    let head = (!quantization.head).then(|| head_module(exchange).to_owned());
    let ignore: Vec<String> = head.into_iter().chain(routers(model)).collect();
    if !linear {
        return json!({"format": CUSTOM, "ignore": ignore});
    }
    json!({
        "quant_method": METHOD,
        "format": WORDS,
        "quantization_status": "compressed",
        "global_compression_ratio": null,
        "kv_cache_scheme": null,
        "ignore": ignore,
        "config_groups": {"group_0": {
            "targets": ["Linear"],
            "input_activations": null,
            "output_activations": null,
            "weights": {
                "num_bits": 8,
                "type": "int",
                "symmetric": true,
                "strategy": "channel",
                "group_size": null,
                "block_structure": null,
                "dynamic": false,
                "actorder": null,
                "observer": "minmax",
                "observer_kwargs": {},
            },
        }},
    })
}
