//! Fields that assign windowed and full attention to layers.

use serde_json::{Map, Value, json};

use super::fields::Fields;
use crate::config::{AttentionKind, FullLayers, Window};
use crate::error::HuggingFaceError;
use crate::transformer::checked::TransformerConfig;

const SLIDING: &str = "sliding_attention";
const FULL: &str = "full_attention";
const LINEAR: &str = "linear_attention";

/// Softmax attention with an optional window.
pub(crate) fn attention(window: Option<Window>) -> AttentionKind {
    window.map_or(AttentionKind::SOFTMAX, AttentionKind::windowed)
}

/// Reads `sliding_window`; null means no window.
pub(crate) fn window(
    fields: &Fields<'_>,
    default: usize,
) -> Result<Option<usize>, HuggingFaceError> {
    match fields.has("sliding_window") {
        true => fields.optional_size("sliding_window"),
        false => Ok(Some(default)),
    }
}

/// Reads `sliding_window` with `use_sliding_window`. The default is that of Qwen2 and Qwen3 in `transformers`.
pub(crate) fn enabled_window(fields: &Fields<'_>) -> Result<Option<usize>, HuggingFaceError> {
    match fields.flag("use_sliding_window", false)? {
        true => window(fields, 4096),
        false => Ok(None),
    }
}

/// Reads the window of a model type with `use_sliding_window`, `max_window_layers` and `layer_types`.
pub(crate) fn read(
    fields: &Fields<'_>,
    n_layers: usize,
) -> Result<Option<Window>, HuggingFaceError> {
    let window = enabled_window(fields)?;
    let slides = match types(fields, n_layers)? {
        Some(slides) => slides,
        None => {
            let first = fields.count("max_window_layers", 28)?;
            (0..n_layers)
                .map(|layer| window.is_some() && layer >= first)
                .collect()
        }
    };
    let rule = "slides without use_sliding_window and sliding_window";
    of_layers(fields, window, &slides, rule)
}

/// Reads `layer_types`: true for each layer with a window. Returns `None` if the field is absent.
pub(crate) fn types(
    fields: &Fields<'_>,
    n_layers: usize,
) -> Result<Option<Vec<bool>>, HuggingFaceError> {
    listed(fields, n_layers, SLIDING)
}

/// Reads `layer_types`: true for each layer of the type `kind`, which the others are not. Returns `None` if the field is absent.
fn listed(
    fields: &Fields<'_>,
    n_layers: usize,
    kind: &str,
) -> Result<Option<Vec<bool>>, HuggingFaceError> {
    let Some(types) = fields.optional_texts("layer_types")? else {
        return Ok(None);
    };
    if types.len() != n_layers {
        return Err(fields.error("layer_types", format!("must have {n_layers} entries")));
    }
    if types.iter().any(|&of| of != kind && of != FULL) {
        return Err(fields.error("layer_types", format!("must be of {kind} and {FULL}")));
    }
    Ok(Some(types.iter().map(|&of| of == kind).collect()))
}

/// Reads the layers with full attention of a model type whose other layers have linear attention: those of `layer_types`, or by
/// default the last of each `full_attention_interval`.
pub(crate) fn full_beside_linear(
    fields: &Fields<'_>,
    n_layers: usize,
) -> Result<FullLayers, HuggingFaceError> {
    let every = fields.size("full_attention_interval", 4)?;
    let Some(linear) = listed(fields, n_layers, LINEAR)? else {
        return Ok(FullLayers::Every { every });
    };
    let full = (0..n_layers).filter(|&layer| !linear[layer]);
    Ok(FullLayers::Listed(full.collect()))
}

/// Writes `layer_types` for [`full_beside_linear`].
pub(crate) fn write_linear(config: &TransformerConfig, fields: &mut Map<String, Value>) {
    let nets = config.delta_nets();
    let linear = nets.map_or_else(Vec::new, |nets| nets.layers(config.n_layers()));
    let types = (0..config.n_layers()).map(|layer| match linear.binary_search(&layer) {
        Ok(_) => LINEAR,
        Err(_) => FULL,
    });
    fields.insert("layer_types".to_owned(), types.collect());
}

/// Builds the window from the layers for which `slides` is true. Returns the error `rule` if there are such layers but
/// no window length.
pub(crate) fn of_layers(
    fields: &Fields<'_>,
    tokens: Option<usize>,
    slides: &[bool],
    rule: &str,
) -> Result<Option<Window>, HuggingFaceError> {
    if !slides.contains(&true) {
        return Ok(None);
    }
    let Some(tokens) = tokens else {
        return Err(fields.error("layer_types", rule));
    };
    let layers = slides.iter().enumerate();
    let full = layers.filter(|(_, slides)| !**slides);
    Ok(Some(Window {
        full_layers: FullLayers::Listed(full.map(|(layer, _)| layer).collect()),
        ..Window::new(tokens)
    }))
}

/// Reads the window of a model type that always has `sliding_window`, and the layers with full attention: those of
/// `layer_types`, or by default those of `pattern`.
pub(crate) fn kinds(
    fields: &Fields<'_>,
    n_layers: usize,
    default: usize,
    pattern: &FullLayers,
) -> Result<(Option<Window>, Vec<usize>), HuggingFaceError> {
    let tokens = window(fields, default)?;
    let slides = match types(fields, n_layers)? {
        Some(slides) => slides,
        None => (0..n_layers)
            .map(|layer| !pattern.contains(layer))
            .collect(),
    };
    let window = of_layers(fields, tokens, &slides, "slides without sliding_window")?;
    let full = (0..n_layers).filter(|&layer| !slides[layer]).collect();
    Ok((window, full))
}

/// Writes the fields that [`read`] reads.
pub(crate) fn write(config: &TransformerConfig, fields: &mut Map<String, Value>) {
    let used = config.window().is_some();
    fields.insert("use_sliding_window".to_owned(), json!(used));
    write_types(config, fields);
}

/// Writes `sliding_window`.
pub(crate) fn write_window(config: &TransformerConfig, fields: &mut Map<String, Value>) {
    let window = config.window().map(|window| window.tokens);
    fields.insert("sliding_window".to_owned(), json!(window));
}

/// Writes `sliding_window` and `layer_types`.
pub(crate) fn write_types(config: &TransformerConfig, fields: &mut Map<String, Value>) {
    let types = (0..config.n_layers()).map(|layer| type_name(config.window_of(layer).is_some()));
    write_window(config, fields);
    fields.insert("layer_types".to_owned(), types.collect());
}

/// The entry of `layer_types` of a layer with or without a window.
pub(crate) const fn type_name(slides: bool) -> &'static str {
    match slides {
        true => SLIDING,
        false => FULL,
    }
}
