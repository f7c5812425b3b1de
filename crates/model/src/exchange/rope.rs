//! Fields of rotary positions: `rope_parameters` since `transformers` 5; before, `rope_scaling` and top-level fields.

pub(crate) mod scores;

use serde_json::{Map, Value, json};

use emberlm_kernels::RotaryLayout;

use super::fields::Fields;
use crate::config::{FullLayers, LayerPositions, Position, RotaryScaling};
use crate::error::HuggingFaceError;
use crate::nn::position::{RotaryConfig, scaling};
use crate::transformer::checked::TransformerConfig;

/// Field names in older configurations, and the default fraction of a head that is rotated.
pub(crate) struct RopeFields {
    pub(crate) base: &'static str,
    pub(crate) default_base: f64,
    pub(crate) fraction: &'static str,
    pub(crate) default_fraction: f64,
    /// True if the model type supports rotating only a part of each head.
    pub(crate) partial: bool,
    /// The type's own default of [`ORIGINAL`], which hides that of `rope_parameters`.
    pub(crate) original: Option<usize>,
}

/// Context length that the model was originally trained with; the top-level field has precedence.
pub(crate) const ORIGINAL: &str = "original_max_position_embeddings";

/// Fields of LLaMA and its descendants, which rotate whole heads.
pub(crate) const FULL_HEAD: RopeFields = RopeFields {
    base: "rope_theta",
    default_base: 10_000.0,
    fraction: "partial_rotary_factor",
    default_fraction: 1.0,
    partial: false,
    original: None,
};

/// Fields of types that rotate half of a head by default.
pub(crate) const HALF_HEAD: RopeFields = RopeFields {
    default_fraction: 0.5,
    partial: true,
    ..FULL_HEAD
};

/// Reads half-split rotary positions.
pub(crate) fn read(
    fields: &Fields<'_>,
    names: &RopeFields,
    head_dim: usize,
    seq_len: usize,
) -> Result<Position, HuggingFaceError> {
    let empty = Map::new();
    let parameters = parameters(fields)?.unwrap_or_else(|| Fields::new(&empty));
    for nested in ["full_attention", "sliding_attention"] {
        parameters.refuse(
            nested,
            "positions that differ between layers are not computed",
        )?;
    }
    described(&parameters, fields, names, head_dim, seq_len)
}

/// The fields of the positions. As in `transformers`, a non-empty older field replaces the newer one entirely.
fn parameters<'a>(fields: &Fields<'a>) -> Result<Option<Fields<'a>>, HuggingFaceError> {
    match older(fields)? {
        Some(parameters) => Ok(Some(parameters)),
        None => fields.object("rope_parameters"),
    }
}

/// Reads the positions of one kind of layers, or of all layers.
fn described(
    parameters: &Fields<'_>,
    fields: &Fields<'_>,
    names: &RopeFields,
    head_dim: usize,
    seq_len: usize,
) -> Result<Position, HuggingFaceError> {
    let base = match parameters.optional_number("rope_theta")? {
        Some(base) => base,
        None => fields.number(names.base, names.default_base)?,
    };
    let fraction = match parameters.optional_number("partial_rotary_factor")? {
        Some(fraction) => fraction,
        None => fields.number(names.fraction, names.default_fraction)?,
    };
    let error = |rule: &str| match parameters.has("partial_rotary_factor") {
        true => parameters.error("partial_rotary_factor", rule),
        false => fields.error(names.fraction, rule),
    };
    let is_valid = fraction > 0.0 && (fraction == 1.0 || (names.partial && fraction < 1.0));
    if !is_valid {
        return Err(error(match names.partial {
            true => "must be above 0 and at most 1",
            false => "must be 1 for this type",
        }));
    }
    let dims = (head_dim as f64 * fraction) as usize;
    if dims == 0 {
        return Err(error(&format!(
            "rotates no element of a head of {head_dim}"
        )));
    }
    Ok(Position::Rotary {
        dims: Some(dims),
        base,
        layout: RotaryLayout::HalfSplit,
        scaling: read_scaling(parameters, fields, names, seq_len)?,
    })
}

fn read_scaling(
    parameters: &Fields<'_>,
    fields: &Fields<'_>,
    names: &RopeFields,
    seq_len: usize,
) -> Result<RotaryScaling, HuggingFaceError> {
    let (field, kind) = match parameters.optional_text("rope_type")? {
        Some(kind) => ("rope_type", kind),
        None => (
            "type",
            parameters.optional_text("type")?.unwrap_or("default"),
        ),
    };
    let number = |name: &str| {
        let number = parameters.optional_number(name)?;
        number.ok_or_else(|| parameters.error(name, format!("must be given with {kind}")))
    };
    let original = || match fields.optional_size(ORIGINAL)?.or(names.original) {
        Some(original) => Ok(original),
        None => parameters.size(ORIGINAL, seq_len),
    };
    let numbers = |name: &str| {
        let numbers = parameters.optional_numbers(name)?;
        numbers.ok_or_else(|| parameters.error(name, format!("must be given with {kind}")))
    };
    // Early files of Phi-3 call LongRoPE "su" or "yarn".
    let is_long_rope =
        matches!(kind, "longrope" | "su") || (kind == "yarn" && parameters.has("short_factor"));
    if is_long_rope {
        let original_seq_len = original()?;
        return Ok(RotaryScaling::LongRope {
            short_factor: numbers("short_factor")?,
            long_factor: numbers("long_factor")?,
            attention_factor: Some(long_rope_factor(parameters, seq_len, original_seq_len)?),
            original_seq_len,
        });
    }
    // 0 selects the default.
    let not_zero = |name: &str, default: f64| {
        let number = parameters.number(name, default)?;
        Ok::<_, HuggingFaceError>(if number == 0.0 { default } else { number })
    };
    match kind {
        "default" => Ok(RotaryScaling::None),
        "linear" => Ok(RotaryScaling::Linear {
            factor: number("factor")?,
        }),
        "llama3" => Ok(RotaryScaling::Llama3 {
            factor: number("factor")?,
            low_frequency_factor: number("low_freq_factor")?,
            high_frequency_factor: number("high_freq_factor")?,
            original_seq_len: original()?,
        }),
        "dynamic" => Ok(RotaryScaling::Dynamic {
            factor: number("factor")?,
            original_seq_len: seq_len,
        }),
        "yarn" => Ok(RotaryScaling::Yarn {
            factor: number("factor")?,
            beta_fast: not_zero("beta_fast", 32.0)?,
            beta_slow: not_zero("beta_slow", 1.0)?,
            attention_factor: yarn_factor(parameters)?,
            truncate: parameters.flag("truncate", true)?,
            original_seq_len: original()?,
        }),
        _ => Err(parameters.error(
            field,
            "must be one of default, linear, llama3, dynamic, yarn, longrope",
        )),
    }
}

/// Builds the value of `rope_parameters`; returns `None` for other positions.
pub(crate) fn write(config: &TransformerConfig, names: &RopeFields) -> Option<Value> {
    let RotaryConfig {
        dims,
        base,
        scaling,
        ..
    } = config.rotary()?;
    let whole = config.rotatable_dim();
    let mut fields = written(base, &scaling);
    if names.partial || dims != whole {
        let exact = dims as f64 / whole as f64;
        // Readers truncate `whole · fraction`, so the product must not round below `dims`.
        let falls_short = ((whole as f64 * exact) as usize) < dims;
        let fraction = if falls_short { exact.next_up() } else { exact };
        fields["partial_rotary_factor"] = json!(fraction);
    }
    Some(fields)
}

/// Builds the fields of a base and a scaling.
fn written(base: f64, scaling: &RotaryScaling) -> Value {
    let mut fields = match *scaling {
        RotaryScaling::None => json!({"rope_type": "default"}),
        RotaryScaling::Linear { factor } => json!({"rope_type": "linear", "factor": factor}),
        RotaryScaling::Llama3 {
            factor,
            low_frequency_factor,
            high_frequency_factor,
            original_seq_len,
        } => json!({
            "rope_type": "llama3",
            "factor": factor,
            "low_freq_factor": low_frequency_factor,
            "high_freq_factor": high_frequency_factor,
            ORIGINAL: original_seq_len,
        }),
        RotaryScaling::Dynamic { factor, .. } => json!({"rope_type": "dynamic", "factor": factor}),
        RotaryScaling::Yarn {
            factor,
            beta_fast,
            beta_slow,
            attention_factor,
            truncate,
            original_seq_len,
        } => {
            let mut yarn = json!({
                "rope_type": "yarn",
                "factor": factor,
                "beta_fast": beta_fast,
                "beta_slow": beta_slow,
                "truncate": truncate,
                ORIGINAL: original_seq_len,
            });
            if let Some(factor) = attention_factor {
                yarn["attention_factor"] = json!(factor);
            }
            yarn
        }
        RotaryScaling::LongRope {
            ref short_factor,
            ref long_factor,
            attention_factor,
            original_seq_len,
        } => {
            let mut long = json!({
                "rope_type": "longrope",
                "short_factor": short_factor,
                "long_factor": long_factor,
                ORIGINAL: original_seq_len,
            });
            if let Some(factor) = attention_factor {
                long["attention_factor"] = json!(factor);
            }
            long
        }
    };
    fields["rope_theta"] = json!(base);
    fields
}

/// Reads `rope_scaling`; returns `None` if it is empty.
fn older<'a>(fields: &Fields<'a>) -> Result<Option<Fields<'a>>, HuggingFaceError> {
    let parameters = fields.object("rope_scaling")?;
    Ok(parameters.filter(|fields| !fields.is_empty()))
}

/// Reads YaRN's factor on cosines and sines: `attention_factor`, or the ratio of the factors of `mscale` and
/// `mscale_all_dim`. Returns `None` for the default.
fn yarn_factor(parameters: &Fields<'_>) -> Result<Option<f64>, HuggingFaceError> {
    if let Some(factor) = parameters.optional_number("attention_factor")? {
        return Ok(Some(factor));
    }
    let scale = parameters.number("mscale", 0.0)?;
    let all = parameters.number("mscale_all_dim", 0.0)?;
    if scale == 0.0 || all == 0.0 {
        return Ok(None);
    }
    let growth = parameters.number("factor", 1.0)?;
    let of = |scale: f64| scaling::yarn_factor(scale, growth);
    Ok(Some(of(scale) / of(all)))
}

/// Reads LongRoPE's factor on cosines and sines: `attention_factor`, or that of `factor`, or that of the two context
/// lengths. It does not change with a later change of the context, as in `transformers`, where it depends only on the
/// file.
fn long_rope_factor(
    parameters: &Fields<'_>,
    seq_len: usize,
    original_seq_len: usize,
) -> Result<f64, HuggingFaceError> {
    if let Some(factor) = parameters.optional_number("attention_factor")? {
        return Ok(factor);
    }
    let growth = seq_len as f64 / original_seq_len as f64;
    let growth = parameters.number("factor", growth)?;
    Ok(scaling::long_rope_factor(growth, original_seq_len))
}

/// The kinds of layers that `rope_parameters` describe separately in some model types.
const KINDS: [&str; 2] = ["sliding_attention", "full_attention"];

/// Reads the positions of layers with a window and of layers with full attention. `names` are the older fields of each.
/// An older scaling applies only to the layers with full attention.
pub(crate) fn read_kinds(
    fields: &Fields<'_>,
    names: [&RopeFields; 2],
    head_dim: usize,
    seq_len: usize,
) -> Result<[Position; 2], HuggingFaceError> {
    let newer = fields.object("rope_parameters")?;
    let older = older(fields)?;
    if newer.is_some() && older.is_some() {
        return Err(fields.error("rope_scaling", "must be absent next to rope_parameters"));
    }
    let empty = Map::new();
    let read = |kind: usize| {
        let own = match &newer {
            Some(newer) => newer.object(KINDS[kind])?,
            None => None,
        };
        let own = own.unwrap_or_else(|| Fields::new(&empty));
        let parameters = older.as_ref().filter(|_| kind == 1).unwrap_or(&own);
        described(parameters, fields, names[kind], head_dim, seq_len)
    };
    Ok([read(0)?, read(1)?])
}

/// Combines the positions of layers with a window and of layers with full attention, which are `full_layers`.
pub(crate) fn of_kinds(
    [sliding, full]: [Position; 2],
    full_layers: Vec<usize>,
    n_layers: usize,
) -> (Position, Option<LayerPositions>) {
    if full_layers.len() == n_layers && matches!(full, Position::Rotary { .. }) {
        return (full, None);
    }
    if sliding == full || full_layers.is_empty() {
        return (sliding, None);
    }
    let Position::Rotary { base, scaling, .. } = full else {
        return (sliding, None);
    };
    let other = LayerPositions::Rotary {
        layers: FullLayers::Listed(full_layers),
        base,
        scaling,
    };
    (sliding, Some(other))
}

/// Writes the fields that [`read_kinds`] and [`of_kinds`] read.
pub(crate) fn write_kinds(config: &TransformerConfig) -> Option<Value> {
    let RotaryConfig { base, scaling, .. } = config.rotary()?;
    Some(written_kinds(base, &scaling, config.layer_positions()))
}

/// Builds the fields of layers with a window, which have a base and a scaling, and of layers with full attention.
pub(crate) fn written_kinds(
    base: f64,
    scaling: &RotaryScaling,
    full: Option<&LayerPositions>,
) -> Value {
    let sliding = written(base, scaling);
    let full = match full {
        Some(LayerPositions::Rotary { base, scaling, .. }) => written(*base, scaling),
        _ => sliding.clone(),
    };
    json!({ KINDS[0]: sliding, KINDS[1]: full })
}

/// The same positions with the interleaved layout.
pub(crate) fn interleaved(position: Position) -> Position {
    match position {
        Position::Rotary {
            dims,
            base,
            scaling,
            ..
        } => Position::Rotary {
            dims,
            base,
            layout: RotaryLayout::Interleaved,
            scaling,
        },
        other => other,
    }
}
