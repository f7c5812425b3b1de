//! Rotary positions of GGUF files as fields of `config.json`.

use emberlm_gguf::{GgufError, Value as GgufValue};
use serde_json::{Map, Value, json};

use super::ROPE_FACTORS;
use super::architecture::Architecture;
use super::key_names::{
    ROPE_BASE, ROPE_DIMS, ROPE_FACTOR, ROPE_ORIGINAL, ROPE_SCALING, ROPE_WINDOW_BASE,
    YARN_ATTENTION, YARN_FAST, YARN_SLOW,
};
use super::metadata::Keys;
use crate::config::{LayerPositions, RotaryScaling};
use crate::nn::position::RotaryConfig;
use crate::transformer::checked::TransformerConfig;

/// LLaMA 3's `low_freq_factor` and `high_freq_factor`, which all its versions have. Files store only the resulting
/// factors.
const LOW: f64 = 1.0;
const HIGH: f64 = 4.0;
/// Relative difference up to which two factors in f32 are the same.
const TOLERANCE: f64 = 1e-4;
/// Base of the frequencies of files that have none.
const DEFAULT_BASE: f64 = 10_000.0;

/// Builds `rope_parameters`, for heads of `head_dim` elements.
pub(super) fn parameters(keys: &Keys<'_>, head_dim: u64) -> Result<Map<String, Value>, GgufError> {
    let base = keys.number(ROPE_BASE)?.unwrap_or(DEFAULT_BASE);
    let mut fields = Map::new();
    fields.insert("rope_theta".to_owned(), json!(base));
    let scaling = match llama3(keys, base)? {
        Some(scaling) => scaling,
        None => scaling(keys)?,
    };
    if let Value::Object(scaling) = scaling {
        fields.extend(scaling);
    }
    if let Some(dims) = keys.optional_size(ROPE_DIMS)?
        && dims != head_dim
    {
        if dims == 0 || dims > head_dim {
            let rule = format!("must be 1 to {head_dim}, the elements of a head");
            return Err(keys.error(ROPE_DIMS, rule));
        }
        let exact = dims as f64 / head_dim as f64;
        // Readers truncate `head_dim · fraction`, so the product must not round below `dims`.
        let falls_short = ((head_dim as f64 * exact) as u64) < dims;
        let fraction = if falls_short { exact.next_up() } else { exact };
        fields.insert("partial_rotary_factor".to_owned(), json!(fraction));
    }
    Ok(fields)
}

/// Writes the keys that [`parameters`] and [`of_kinds`] read. Returns the factors of LLaMA 3's scaling, which are a
/// tensor.
pub(super) fn write(
    config: &TransformerConfig,
    architecture: &Architecture,
    set: &mut impl FnMut(&str, GgufValue),
) -> Option<Vec<f32>> {
    let RotaryConfig {
        dims,
        base,
        scaling,
        ..
    } = config.rotary()?;
    let number = |number: f64| GgufValue::F32(number as f32);
    let (full_base, scaling) = match config.layer_positions() {
        Some(LayerPositions::Rotary { base, scaling, .. }) => (*base, scaling.clone()),
        _ => (base, scaling),
    };
    set(ROPE_DIMS, GgufValue::U32(dims as u32));
    set(ROPE_BASE, number(full_base));
    if architecture.window_base && config.window().is_some() {
        set(ROPE_WINDOW_BASE, number(base));
    }
    match scaling {
        RotaryScaling::Linear { factor } => {
            set(ROPE_SCALING, GgufValue::String("linear".to_owned()));
            set(ROPE_FACTOR, number(factor));
        }
        RotaryScaling::Yarn {
            factor,
            beta_fast,
            beta_slow,
            attention_factor,
            original_seq_len,
            ..
        } => {
            set(ROPE_SCALING, GgufValue::String("yarn".to_owned()));
            set(ROPE_FACTOR, number(factor));
            set(ROPE_ORIGINAL, GgufValue::U32(original_seq_len as u32));
            if let Some(factor) = attention_factor {
                set(YARN_ATTENTION, number(factor));
            }
            set(YARN_FAST, number(beta_fast));
            set(YARN_SLOW, number(beta_slow));
        }
        RotaryScaling::Llama3 {
            factor,
            original_seq_len,
            ..
        } => {
            let pairs = dims / 2;
            let factors = (0..pairs).map(|pair| {
                let wavelength = wavelength(full_base, pair, pairs);
                llama3_factor(wavelength, factor, original_seq_len as f64) as f32
            });
            return Some(factors.collect());
        }
        // Not recorded: the configuration that is read back differs.
        RotaryScaling::None | RotaryScaling::Dynamic { .. } | RotaryScaling::LongRope { .. } => {}
    }
    None
}

/// Positions of layers with a window, which are not scaled, and of layers with full attention.
pub(super) fn of_kinds(
    keys: &Keys<'_>,
    head_dim: u64,
    sliding_base: Option<f64>,
) -> Result<Value, GgufError> {
    let full = parameters(keys, head_dim)?;
    let base = full.get("rope_theta").and_then(Value::as_f64);
    let own = keys.number(ROPE_WINDOW_BASE)?;
    let sliding = own.or(sliding_base).or(base).unwrap_or(DEFAULT_BASE);
    Ok(json!({
        "full_attention": full,
        "sliding_attention": {"rope_theta": sliding, "rope_type": "default"},
    }))
}

/// Scaling in the metadata.
fn scaling(keys: &Keys<'_>) -> Result<Value, GgufError> {
    let none = || json!({"rope_type": "default"});
    let kind = keys.text(ROPE_SCALING)?;
    let older = keys.number("rope.scale_linear")?;
    let factor = keys.number(ROPE_FACTOR)?.or(older);
    let original = keys.optional_size(ROPE_ORIGINAL)?;
    match (kind, factor) {
        (None | Some("none"), None) => Ok(none()),
        (None | Some("linear"), Some(factor)) if factor == 1.0 || factor == 0.0 => Ok(none()),
        (None | Some("linear"), Some(factor)) => {
            Ok(json!({"rope_type": "linear", "factor": factor}))
        }
        (Some("yarn"), Some(factor)) => {
            let mut yarn = json!({"rope_type": "yarn", "factor": factor});
            let names = [
                (YARN_FAST, "beta_fast"),
                (YARN_SLOW, "beta_slow"),
                (YARN_ATTENTION, "attention_factor"),
            ];
            for (key, field) in names {
                if let Some(number) = keys.number(key)? {
                    yarn[field] = json!(number);
                }
            }
            if let Some(original) = original {
                yarn["original_max_position_embeddings"] = json!(original);
            }
            Ok(yarn)
        }
        (Some("none"), Some(_)) => Ok(none()),
        (Some("linear" | "yarn"), None) => {
            Err(keys.error(ROPE_FACTOR, "must be given with this scaling type"))
        }
        (Some(_), _) => Err(keys.error(ROPE_SCALING, "must be none, linear or yarn")),
    }
}

/// The wavelength of pair `pair` of `pairs`, in positions.
fn wavelength(base: f64, pair: usize, pairs: usize) -> f64 {
    2.0 * std::f64::consts::PI * base.powf(pair as f64 / pairs as f64)
}

/// The number that LLaMA 3's scaling divides the frequency of a wavelength by.
fn llama3_factor(wavelength: f64, factor: f64, original: f64) -> f64 {
    let periods = original / wavelength;
    let smooth = ((periods - LOW) / (HIGH - LOW)).clamp(0.0, 1.0);
    1.0 / ((1.0 - smooth) / factor + smooth)
}

/// LLaMA 3's scaling, found from the factors that divide the frequencies.
fn llama3(keys: &Keys<'_>, base: f64) -> Result<Option<Value>, GgufError> {
    let Some(factors) = factors(keys)? else {
        return Ok(None);
    };
    let wavelength = |pair: usize| wavelength(base, pair, factors.len());
    let factor = factors.iter().copied().fold(1.0, f64::max);
    let is_between = |found: f64| found > 1.0 + TOLERANCE && found < factor * (1.0 - TOLERANCE);
    // Between the two bounds, 1 / factor is linear in the number of periods in the original context.
    let original = factors
        .iter()
        .enumerate()
        .find(|(_, found)| is_between(**found));
    let original = original.map(|(pair, found)| {
        let smooth = (1.0 / found - 1.0 / factor) / (1.0 - 1.0 / factor);
        ((smooth * (HIGH - LOW) + LOW) * wavelength(pair)).round()
    });
    let original = original.unwrap_or(8192.0);
    let expected = |pair: usize| llama3_factor(wavelength(pair), factor, original);
    let differs =
        |(pair, found): (usize, &f64)| (found - expected(pair)).abs() > TOLERANCE * expected(pair);
    if factors.iter().enumerate().any(differs) {
        return Err(GgufError::Tensor {
            name: ROPE_FACTORS.to_owned(),
            reason:
                "its factors are not those of LLaMA 3's scaling, which is the only supported one"
                    .to_owned(),
        });
    }
    Ok(Some(json!({
        "rope_type": "llama3", "factor": factor, "low_freq_factor": LOW, "high_freq_factor": HIGH,
        "original_max_position_embeddings": original as u64,
    })))
}

/// Reads the factors of the frequencies; `None` if there are none or all are 1.
fn factors(keys: &Keys<'_>) -> Result<Option<Vec<f64>>, GgufError> {
    for name in ["rope_factors_long.weight", "rope_factors_short.weight"] {
        if keys.has_tensor(name) {
            return Err(GgufError::Tensor {
                name: name.to_owned(),
                reason: "scaling by LongRoPE is not supported".to_owned(),
            });
        }
    }
    let factors = keys.file().vector(ROPE_FACTORS)?;
    let factors = factors.filter(|factors| factors.iter().any(|&factor| factor != 1.0));
    Ok(factors.map(|factors| factors.into_iter().map(f64::from).collect()))
}
