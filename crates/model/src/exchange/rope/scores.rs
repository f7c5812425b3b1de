//! The factor on the scores of types that scale them with the context.

use std::iter;

use super::parameters;
use crate::config::RotaryScaling;
use crate::error::HuggingFaceError;
use crate::exchange::fields::Fields;
use crate::nn::position::scaling::yarn_factor;

/// Reads the factor on the scores of types that scale them with the context: the square of that of `mscale_all_dim`.
pub(crate) fn read_factor(fields: &Fields<'_>) -> Result<f64, HuggingFaceError> {
    let Some(parameters) = parameters(fields)? else {
        return Ok(1.0);
    };
    let kind = match parameters.optional_text("rope_type")? {
        Some(kind) => Some(kind),
        None => parameters.optional_text("type")?,
    };
    if kind.is_none_or(|kind| kind == "default") {
        return Ok(1.0);
    }
    let all = parameters.number("mscale_all_dim", 0.0)?;
    let growth = parameters.number("factor", 1.0)?;
    Ok(factor_of(all, growth))
}

fn factor_of(all: f64, growth: f64) -> f64 {
    let factor = yarn_factor(all, growth);
    factor * factor
}

/// The `mscale_all_dim` with which [`read_factor`] turns the scale `plain` into `scale`, with few digits if these do.
/// Another scale than one that was read may have none.
pub(crate) fn written(scale: f64, plain: f64, scaling: &RotaryScaling) -> Option<f64> {
    let RotaryScaling::Yarn { factor: growth, .. } = *scaling else {
        return None;
    };
    let exact = ((scale / plain).sqrt() - 1.0) / (0.1 * growth.ln());
    let short = (exact * 1e6).round() / 1e6;
    // The product is a rounded one, so that one of the next numbers may give it.
    let above = iter::successors(Some(exact), |all| Some(all.next_up())).take(64);
    let below = iter::successors(Some(exact), |all| Some(all.next_down())).take(64);
    let mut all = iter::once(short).chain(above).chain(below);
    let found = all.find(|&all| plain * factor_of(all, growth) == scale);
    Some(found.unwrap_or(exact))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nn::attention::default_scale;

    #[test]
    fn scales_that_were_read_are_written_to_the_bit() {
        for head_dim in 1..300 {
            for all in [0.707, 1.0, 0.9, 1.0 / 3.0, -0.68] {
                let scaling = RotaryScaling::Yarn {
                    factor: 40.0,
                    beta_fast: 32.0,
                    beta_slow: 1.0,
                    attention_factor: None,
                    truncate: true,
                    original_seq_len: 16,
                };
                let plain = default_scale(head_dim);
                let scale = plain * factor_of(all, 40.0);
                let all = written(scale, plain, &scaling).expect("YaRN");
                assert_eq!(plain * factor_of(all, 40.0), scale, "{head_dim}");
            }
        }
    }
}
