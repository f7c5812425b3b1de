//! Fields of rotary positions: `rope_parameters` since `transformers` 5; before, `rope_scaling` and top-level fields.

use serde_json::{Map, Value, json};

use emberlm_kernels::RotaryLayout;

use super::fields::Fields;
use crate::checked::DecoderConfig;
use crate::config::{Position, RotaryScaling};
use crate::error::HuggingFaceError;
use crate::position::RotaryConfig;

/// Field names in older configurations, and the default fraction of a head that is rotated.
pub(crate) struct RopeFields {
    pub(crate) base: &'static str,
    pub(crate) fraction: &'static str,
    pub(crate) default_fraction: f64,
    /// True if the model type supports rotating only a part of each head.
    pub(crate) partial: bool,
}

/// Fields of LLaMA and its descendants, which rotate whole heads.
pub(crate) const FULL_HEAD: RopeFields = RopeFields {
    base: "rope_theta",
    fraction: "partial_rotary_factor",
    default_fraction: 1.0,
    partial: false,
};

/// Reads half-split rotary positions.
pub(crate) fn read(
    fields: &Fields<'_>,
    names: &RopeFields,
    head_dim: usize,
    seq_len: usize,
) -> Result<Position, HuggingFaceError> {
    // As in `transformers`, a non-empty older field replaces the newer one entirely.
    let parameters = match fields
        .object("rope_scaling")?
        .filter(|fields| !fields.is_empty())
    {
        Some(parameters) => Some(parameters),
        None => fields.object("rope_parameters")?,
    };
    let empty = Map::new();
    let parameters = parameters.unwrap_or_else(|| Fields::new(&empty));
    for nested in ["full_attention", "sliding_attention"] {
        parameters.refuse(
            nested,
            "positions that differ between layers are not computed",
        )?;
    }
    let base = match parameters.optional_number("rope_theta")? {
        Some(base) => base,
        None => fields.number(names.base, 10_000.0)?,
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
        return Err(error(&format!("turns nothing of a head of {head_dim}")));
    }
    Ok(Position::Rotary {
        dims: Some(dims),
        base,
        layout: RotaryLayout::HalfSplit,
        scaling: scaling(&parameters, fields, seq_len)?,
    })
}

/// Rotary positions with the base of a type that has another default, if the fields give none.
pub(crate) fn or_base(
    fields: &Fields<'_>,
    mut position: Position,
    default: f64,
) -> Result<Position, HuggingFaceError> {
    let mut given = fields.optional_number("rope_theta")?.is_some();
    for name in ["rope_scaling", "rope_parameters"] {
        if let Some(parameters) = fields.object(name)? {
            given |= parameters.optional_number("rope_theta")?.is_some();
        }
    }
    match &mut position {
        Position::Rotary { base, .. } if !given => *base = default,
        _ => {}
    }
    Ok(position)
}

fn scaling(
    parameters: &Fields<'_>,
    fields: &Fields<'_>,
    seq_len: usize,
) -> Result<RotaryScaling, HuggingFaceError> {
    const ORIGINAL: &str = "original_max_position_embeddings";
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
    match kind {
        "default" => Ok(RotaryScaling::None),
        "linear" => Ok(RotaryScaling::Linear {
            factor: number("factor")?,
        }),
        "llama3" => Ok(RotaryScaling::Llama3 {
            factor: number("factor")?,
            low_frequency_factor: number("low_freq_factor")?,
            high_frequency_factor: number("high_freq_factor")?,
            // The top-level field has precedence.
            original_seq_len: match fields.optional_size(ORIGINAL)? {
                Some(original) => original,
                None => parameters.size(ORIGINAL, seq_len)?,
            },
        }),
        _ => Err(parameters.error(field, "must be one of default, linear, llama3")),
    }
}

/// Builds the value of `rope_parameters`; returns `None` for other positions.
pub(crate) fn write(config: &DecoderConfig, names: &RopeFields) -> Option<Value> {
    let RotaryConfig {
        dims,
        base,
        scaling,
        ..
    } = config.rotary()?;
    let head_dim = config.head_dim();
    let mut fields = match scaling {
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
            "original_max_position_embeddings": original_seq_len,
        }),
    };
    fields["rope_theta"] = json!(base);
    if names.partial || dims != head_dim {
        let exact = dims as f64 / head_dim as f64;
        // Readers truncate `head_dim · fraction`, so the product must not round below `dims`.
        let falls_short = ((head_dim as f64 * exact) as usize) < dims;
        let fraction = if falls_short { exact.next_up() } else { exact };
        fields["partial_rotary_factor"] = json!(fraction);
    }
    Some(fields)
}
