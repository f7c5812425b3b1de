//! Rules for positions and for the factors on embeddings, residuals and logits.

use emberlm_kernels::RotaryLayout;

use super::TransformerConfig;
use crate::config::limits::positive;
use crate::config::{AttentionKind, LayerPositions, Position, QkNormSpan, RotaryScaling};
use crate::error::ConfigError;
use crate::nn::position::RotaryConfig;

impl TransformerConfig {
    pub(super) fn check_position(&self) -> Result<(), ConfigError> {
        let Some(RotaryConfig {
            dims,
            base,
            layout,
            scaling,
            ..
        }) = self.rotary()
        else {
            return Ok(());
        };
        let head_dim = self.head_dim;
        let (rotated, rule) = match layout {
            // As in GPT-NeoX, an odd number rotates one element more, but the frequencies use the odd number.
            RotaryLayout::HalfSplit => (
                dims.checked_next_multiple_of(2),
                format!("must be at most head_dim = {head_dim}, rounded up to even"),
            ),
            RotaryLayout::Interleaved => (
                Some(dims).filter(|dims| dims.is_multiple_of(2)),
                format!("must be even and at most head_dim = {head_dim}"),
            ),
        };
        if dims == 0 || rotated.is_none_or(|rotated| rotated > head_dim) {
            return Err(ConfigError::new("position.dims", dims, rule));
        }
        positive("position.base", base)?;
        check_scaling(&scaling, dims)
    }

    pub(super) fn check_layer_positions(&self) -> Result<(), ConfigError> {
        let raw = &self.filled;
        if raw.position == Position::Alibi && matches!(raw.attention, AttentionKind::Linear { .. })
        {
            let rule =
                "must not be \"alibi\" with linear attention, which has no scores to add a bias to";
            return Err(ConfigError::new("position", "alibi", rule));
        }
        let Some(positions) = &raw.layer_positions else {
            return Ok(());
        };
        let Some(RotaryConfig { dims, .. }) = self.rotary() else {
            let rule = "must be absent unless position is rotary";
            return Err(ConfigError::new("layer_positions", "present", rule));
        };
        match positions.layers().layers(raw.n_layers).last() {
            Some(&layer) if layer >= raw.n_layers => {
                let rule = format!("must be below n_layers = {}", raw.n_layers);
                return Err(ConfigError::new("layer_positions.layers", layer, rule));
            }
            Some(_) | None => {}
        }
        match positions {
            LayerPositions::None { .. } => Ok(()),
            LayerPositions::Rotary { base, scaling, .. } => {
                positive("layer_positions.base", *base)?;
                check_scaling(scaling, dims)
            }
        }
    }

    pub(super) fn check_scales(&self) -> Result<(), ConfigError> {
        let raw = &self.filled;
        if raw.qk_norm_span == QkNormSpan::Projection && !raw.qk_norm {
            let rule = "must be \"head\" without qk_norm";
            return Err(ConfigError::new("qk_norm_span", "projection", rule));
        }
        for (field, scale, other) in [
            ("embedding_scale", raw.embedding_scale, raw.scale_embedding),
            ("head.scale", raw.head.scale, raw.head.scaled),
            ("residual_scale", raw.residual_scale, false),
        ] {
            let Some(scale) = scale else { continue };
            positive(field, scale)?;
            if other {
                let rule = "must be absent if the factor is that of d_model";
                return Err(ConfigError::new(field, scale, rule));
            }
        }
        Ok(())
    }
}

/// Returns an error for a scaling that breaks a rule.
fn check_scaling(scaling: &RotaryScaling, dims: usize) -> Result<(), ConfigError> {
    match *scaling {
        RotaryScaling::None => Ok(()),
        RotaryScaling::Linear { factor } => positive("position.scaling.factor", factor),
        RotaryScaling::Llama3 {
            factor,
            low_frequency_factor: low,
            high_frequency_factor: high,
            original_seq_len,
        } => {
            positive("position.scaling.factor", factor)?;
            positive("position.scaling.low_frequency_factor", low)?;
            if !(high.is_finite() && high > low) {
                let rule = format!("must be above low_frequency_factor = {low}");
                let field = "position.scaling.high_frequency_factor";
                return Err(ConfigError::new(field, high, rule));
            }
            positive("position.scaling.high_frequency_factor", high)?;
            positive("position.scaling.original_seq_len", original_seq_len as f64)
        }
        RotaryScaling::Dynamic {
            factor,
            original_seq_len,
        } => {
            if !(factor.is_finite() && factor >= 1.0) {
                let rule = "must be at least 1 and finite";
                return Err(ConfigError::new("position.scaling.factor", factor, rule));
            }
            positive("position.scaling.factor", factor)?;
            if dims <= 2 {
                let rule = "must be above 2 with dynamic scaling, whose base has the exponent dims / (dims - 2)";
                return Err(ConfigError::new("position.dims", dims, rule));
            }
            positive("position.scaling.original_seq_len", original_seq_len as f64)
        }
        RotaryScaling::Yarn {
            factor,
            beta_fast,
            beta_slow,
            attention_factor,
            original_seq_len,
            ..
        } => {
            positive("position.scaling.factor", factor)?;
            positive("position.scaling.beta_slow", beta_slow)?;
            if !(beta_fast.is_finite() && beta_fast > beta_slow) {
                let rule = format!("must be above beta_slow = {beta_slow}");
                let field = "position.scaling.beta_fast";
                return Err(ConfigError::new(field, beta_fast, rule));
            }
            positive("position.scaling.beta_fast", beta_fast)?;
            if let Some(factor) = attention_factor {
                positive("position.scaling.attention_factor", factor)?;
            }
            if !dims.is_multiple_of(2) {
                let rule = "must be even with YaRN";
                return Err(ConfigError::new("position.dims", dims, rule));
            }
            positive("position.scaling.original_seq_len", original_seq_len as f64)
        }
        RotaryScaling::LongRope {
            ref short_factor,
            ref long_factor,
            attention_factor,
            original_seq_len,
        } => {
            if !dims.is_multiple_of(2) {
                let rule = "must be even with LongRoPE";
                return Err(ConfigError::new("position.dims", dims, rule));
            }
            let pairs = dims / 2;
            for (field, divisors) in [
                ("position.scaling.short_factor", short_factor),
                ("position.scaling.long_factor", long_factor),
            ] {
                if divisors.len() != pairs {
                    let rule = format!("must have {pairs} numbers, one for each rotated pair");
                    let found = format!("{} numbers", divisors.len());
                    return Err(ConfigError::new(field, found, rule));
                }
                for &divisor in divisors {
                    positive(field, divisor)?;
                }
            }
            // The default attention factor divides by the logarithm of this length.
            if original_seq_len < 2 {
                let (field, rule) = ("position.scaling.original_seq_len", "must be at least 2");
                return Err(ConfigError::new(field, original_seq_len, rule));
            }
            match attention_factor {
                Some(factor) => positive("position.scaling.attention_factor", factor),
                None => Ok(()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::config::{
        AttentionKind, FullLayers, LayerPositions, ModelConfig, Position, QkNormSpan,
    };
    use crate::transformer::checked::tests;

    fn error_of(change: impl FnOnce(&mut ModelConfig)) -> String {
        tests::error_of("smollm3", change)
    }

    #[test]
    fn layer_positions_need_rotary_ones_and_existing_blocks() {
        let listed = |layer| {
            Some(LayerPositions::None {
                layers: FullLayers::Listed(vec![layer]),
            })
        };
        assert_eq!(error_of(|c| c.layer_positions = listed(35)), "accepted");
        let expected = "model.layer_positions.layers = 36: must be below n_layers = 36";
        assert_eq!(error_of(|c| c.layer_positions = listed(36)), expected);
        let expected = "model.layer_positions = present: must be absent unless position is rotary";
        assert_eq!(error_of(|c| c.position = Position::Learned), expected);
    }

    #[test]
    fn alibi_needs_scores() {
        let expected = "model.position = alibi: must not be \"alibi\" with linear attention, which has no scores to add a \
                        bias to";
        let linear = |c: &mut ModelConfig| {
            c.position = Position::Alibi;
            c.layer_positions = None;
            c.attention = AttentionKind::Linear {
                features: None,
                seed: 0,
            };
        };
        assert_eq!(error_of(linear), expected);
    }

    #[test]
    fn factors_are_positive_and_given_once() {
        let expected = "model.residual_scale = 0: must be above 0 and finite";
        assert_eq!(error_of(|c| c.residual_scale = Some(0.0)), expected);
        let expected = "model.embedding_scale = 2: must be absent if the factor is that of d_model";
        let twice = |c: &mut ModelConfig| {
            c.embedding_scale = Some(2.0);
            c.scale_embedding = true;
        };
        assert_eq!(error_of(twice), expected);
        let expected = "model.qk_norm_span = projection: must be \"head\" without qk_norm";
        let span = |c: &mut ModelConfig| c.qk_norm_span = QkNormSpan::Projection;
        assert_eq!(error_of(span), expected);
    }
}
