//! Rotary positions of GGUF files as fields of `config.json`.

use emberlm_gguf::{GgufError, TensorType};
use serde_json::{Map, Value, json};

use super::ROPE_FACTORS;
use super::metadata::Keys;

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
    let base = keys.number("rope.freq_base")?.unwrap_or(DEFAULT_BASE);
    let mut fields = Map::new();
    fields.insert("rope_theta".to_owned(), json!(base));
    let scaling = match llama3(keys, base)? {
        Some(scaling) => scaling,
        None => scaling(keys)?,
    };
    if let Value::Object(scaling) = scaling {
        fields.extend(scaling);
    }
    if let Some(dims) = keys.optional_size("rope.dimension_count")?
        && dims != head_dim
    {
        if dims == 0 || dims > head_dim {
            let rule = format!("must be 1 to {head_dim}, the elements of a head");
            return Err(keys.error("rope.dimension_count", rule));
        }
        let exact = dims as f64 / head_dim as f64;
        // Readers truncate `head_dim · fraction`, so the product must not round below `dims`.
        let falls_short = ((head_dim as f64 * exact) as u64) < dims;
        let fraction = if falls_short { exact.next_up() } else { exact };
        fields.insert("partial_rotary_factor".to_owned(), json!(fraction));
    }
    Ok(fields)
}

/// Positions of layers with a window, which are not scaled, and of layers with full attention.
pub(super) fn of_kinds(
    keys: &Keys<'_>,
    head_dim: u64,
    sliding_base: Option<f64>,
) -> Result<Value, GgufError> {
    let full = parameters(keys, head_dim)?;
    let base = full.get("rope_theta").and_then(Value::as_f64);
    let own = keys.number("rope.freq_base_swa")?;
    let sliding = own.or(sliding_base).or(base).unwrap_or(DEFAULT_BASE);
    Ok(json!({
        "full_attention": full,
        "sliding_attention": {"rope_theta": sliding, "rope_type": "default"},
    }))
}

/// Scaling in the metadata.
fn scaling(keys: &Keys<'_>) -> Result<Value, GgufError> {
    let none = || json!({"rope_type": "default"});
    let kind = keys.text("rope.scaling.type")?;
    let older = keys.number("rope.scale_linear")?;
    let factor = keys.number("rope.scaling.factor")?.or(older);
    let original = keys.optional_size("rope.scaling.original_context_length")?;
    match (kind, factor) {
        (None | Some("none"), None) => Ok(none()),
        (None | Some("linear"), Some(factor)) if factor == 1.0 || factor == 0.0 => Ok(none()),
        (None | Some("linear"), Some(factor)) => {
            Ok(json!({"rope_type": "linear", "factor": factor}))
        }
        (Some("yarn"), Some(factor)) => {
            let mut yarn = json!({"rope_type": "yarn", "factor": factor});
            let names = [
                ("rope.scaling.yarn_beta_fast", "beta_fast"),
                ("rope.scaling.yarn_beta_slow", "beta_slow"),
                ("rope.scaling.yarn_attn_factor", "attention_factor"),
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
        (Some("linear" | "yarn"), None) => Err(keys.error(
            "rope.scaling.factor",
            "must be given with this scaling type",
        )),
        (Some(_), _) => Err(keys.error("rope.scaling.type", "must be none, linear or yarn")),
    }
}

/// LLaMA 3's scaling, found from the factors that divide the frequencies.
fn llama3(keys: &Keys<'_>, base: f64) -> Result<Option<Value>, GgufError> {
    let Some(factors) = factors(keys)? else {
        return Ok(None);
    };
    let pairs = factors.len() as f64;
    let wavelength = |pair: usize| 2.0 * std::f64::consts::PI * base.powf(pair as f64 / pairs);
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
    let expected = |pair: usize| {
        let periods = original / wavelength(pair);
        let smooth = ((periods - LOW) / (HIGH - LOW)).clamp(0.0, 1.0);
        1.0 / ((1.0 - smooth) / factor + smooth)
    };
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
    let Some(tensor) = keys.file().tensor(ROPE_FACTORS) else {
        return Ok(None);
    };
    if tensor.tensor_type != TensorType::F32 || tensor.shape.len() != 1 {
        return Err(GgufError::Tensor {
            name: ROPE_FACTORS.to_owned(),
            reason: "it must be a vector of type F32".to_owned(),
        });
    }
    let mut factors = Vec::new();
    let rows = 0..tensor.rows();
    let at_once = tensor.rows();
    keys.file()
        .read_rows(tensor, rows, at_once, &mut |_, bytes| {
            let (numbers, _) = bytes.as_chunks::<4>();
            factors.extend(
                numbers
                    .iter()
                    .map(|&number| f64::from(f32::from_le_bytes(number))),
            );
        })?;
    Ok(Some(factors).filter(|factors| factors.iter().any(|&factor| factor != 1.0)))
}
