//! Which layers see all tokens and which a window.

use serde_json::{Map, Value, json};

use super::fields::Fields;
use crate::checked::DecoderConfig;
use crate::error::HuggingFaceError;

const SLIDING: &str = "sliding_attention";
const FULL: &str = "full_attention";

/// The window, 0 for none, and the layers that see all in spite of it, of a type with `use_sliding_window`,
/// `max_window_layers` and `layer_types`.
pub(crate) fn read(
    fields: &Fields<'_>,
    n_layers: usize,
) -> Result<(usize, Vec<usize>), HuggingFaceError> {
    let used = fields.flag("use_sliding_window", false)?;
    let window = match used {
        // The types' own default.
        true if !fields.has("sliding_window") => Some(4096),
        true => fields.optional_size("sliding_window")?,
        false => None,
    };
    let slides: Vec<bool> = match fields.optional_texts("layer_types")? {
        Some(types) => {
            if types.len() != n_layers {
                return Err(fields.error("layer_types", format!("must have {n_layers} entries")));
            }
            if types.iter().any(|&kind| kind != SLIDING && kind != FULL) {
                return Err(fields.error("layer_types", format!("must be of {SLIDING} and {FULL}")));
            }
            types.iter().map(|&kind| kind == SLIDING).collect()
        }
        None => {
            let first = fields.count("max_window_layers", 28)?;
            (0..n_layers)
                .map(|layer| window.is_some() && layer >= first)
                .collect()
        }
    };
    if !slides.contains(&true) {
        return Ok((0, Vec::new()));
    }
    let Some(window) = window else {
        return Err(fields.error(
            "layer_types",
            "slides without use_sliding_window and sliding_window",
        ));
    };
    let full = (0..n_layers).filter(|&layer| !slides[layer]).collect();
    Ok((window, full))
}

/// The fields for [`read`].
pub(crate) fn write(config: &DecoderConfig, fields: &mut Map<String, Value>) {
    let types = (0..config.n_layers).map(|layer| match config.window_of(layer) {
        Some(_) => SLIDING,
        None => FULL,
    });
    fields.insert("use_sliding_window".to_owned(), json!(config.window > 0));
    let window = (config.window > 0).then_some(config.window);
    fields.insert("sliding_window".to_owned(), json!(window));
    fields.insert("layer_types".to_owned(), types.collect());
}
