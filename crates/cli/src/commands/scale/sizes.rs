//! Models of any size in the shape of a preset.
//!
//! For each number of blocks, the width (a multiple of 8) is the one whose model is nearest to the wanted parameters. Of these
//! models, the chosen one has the ratio of width to blocks nearest to the preset's.

use emberlm_model::{ModelConfig, TransformerConfig, count};
use emberlm_trainer::presets::{WIDTH_STEP, sized};
use toml::Value;

use crate::commands::sweep::Settings;
use crate::error::CliError;

/// The largest number of blocks.
const BLOCKS: usize = 256;

/// A model, and the settings that distinguish it from the preset.
#[derive(Clone, Debug)]
pub struct Size {
    pub model: TransformerConfig,
    pub settings: Settings,
    pub d_model: usize,
    pub n_layers: usize,
    pub parameters: f64,
    /// Operations of training per token.
    pub flops_per_token: f64,
}

/// The model in the shape of `base` that is nearest to `parameters`.
///
/// # Errors
/// Returns an error if no model in this shape is valid.
pub fn nearest(base: &ModelConfig, parameters: f64) -> Result<Size, CliError> {
    let shape = base.d_model as f64 / base.n_layers.max(1) as f64;
    let mut best: Option<(f64, Size)> = None;
    for n_layers in 1..=BLOCKS {
        let size = of_depth(base, n_layers, parameters)?;
        let ratio = size.d_model as f64 / n_layers as f64;
        let off = (ratio / shape).ln().abs();
        if best.as_ref().is_none_or(|(least, _)| off < *least) {
            best = Some((off, size));
        } else if ratio < shape {
            // More blocks only make the ratio smaller.
            break;
        }
    }
    let found = best.map(|(_, size)| size);
    found.ok_or_else(|| CliError::new("no model has the shape of the preset"))
}

/// The model of `n_layers` whose parameters are nearest.
fn of_depth(base: &ModelConfig, n_layers: usize, parameters: f64) -> Result<Size, CliError> {
    let size = |multiple: usize| of_size(base, WIDTH_STEP * multiple, n_layers);
    let (mut low, mut high) = (1, 2);
    while size(high)?.parameters < parameters && high < 1 << 16 {
        (low, high) = (high, 2 * high);
    }
    while high - low > 1 {
        let middle = low.midpoint(high);
        match size(middle)?.parameters < parameters {
            true => low = middle,
            false => high = middle,
        }
    }
    let (below, above) = (size(low)?, size(high)?);
    let off = |size: &Size| (size.parameters / parameters).ln().abs();
    Ok(match off(&below) <= off(&above) {
        true => below,
        false => above,
    })
}

/// The model with a width and a number of blocks.
fn of_size(base: &ModelConfig, d_model: usize, n_layers: usize) -> Result<Size, CliError> {
    let model = sized(base, d_model, n_layers);
    let settings = [
        ("model.d_model", Some(d_model)),
        ("model.n_layers", Some(n_layers)),
        ("model.heads", Some(model.heads)),
        ("model.kv_heads", model.kv_heads),
        ("model.feed_forward.width", model.feed_forward.width),
    ];
    let settings = settings.into_iter().filter_map(|(key, size)| {
        let size = i64::try_from(size?).unwrap_or(i64::MAX);
        Some((key.to_owned(), Value::Integer(size)))
    });
    let model = TransformerConfig::try_from(model)?;
    Ok(Size {
        settings: settings.collect(),
        d_model,
        n_layers,
        parameters: count::parameters(&model).total as f64,
        flops_per_token: count::flops_per_token(&model).training as f64,
        model,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use emberlm_model::families;

    fn preset(name: &str) -> ModelConfig {
        ModelConfig {
            vocab_size: Some(65),
            ..families::preset(name).expect("a preset").config
        }
    }

    #[test]
    fn sizes_are_near_the_wanted_parameters_in_the_shape_of_the_preset() {
        for name in ["char-nano", "llama-nano", "pocket-tales"] {
            let base = preset(name);
            let shape = base.d_model as f64 / base.n_layers as f64;
            for wanted in [2e4, 1e5, 1e6, 1e7, 1e8] {
                let size = nearest(&base, wanted).expect("a size");
                let off = size.parameters / wanted;
                assert!((0.7..1.4).contains(&off), "{name}: {wanted} {size:?}");
                let ratio = size.d_model as f64 / size.n_layers as f64 / shape;
                assert!((0.5..2.0).contains(&ratio), "{name}: {wanted} {size:?}");
            }
        }
    }

    #[test]
    fn the_size_of_a_preset_is_the_preset() {
        let base = preset("char-nano");
        let own = TransformerConfig::try_from(base.clone()).expect("a model");
        let size = nearest(&base, own.parameters() as f64).expect("a size");
        assert_eq!((size.d_model, size.n_layers), (base.d_model, base.n_layers));
        assert_eq!(size.model, own);
    }
}
