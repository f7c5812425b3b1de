//! Rules for latent attention, and its configuration.

use super::TransformerConfig;
use crate::config::limits::{LARGEST_SIZE, within};
use crate::config::{AttentionKind, ModelKind};
use crate::error::ConfigError;
use crate::nn::latent::LatentConfig;

impl TransformerConfig {
    pub(super) fn check_latent_attention(&self) -> Result<(), ConfigError> {
        let raw = &self.filled;
        let Some(latent) = self.latent() else {
            return Ok(());
        };
        let without = [
            (
                self.kind() != ModelKind::Decoder,
                "must be absent from a model that is not a decoder",
            ),
            (
                !matches!(raw.attention, AttentionKind::Softmax { .. }),
                "must be absent unless attention.kind is \"softmax\"",
            ),
            (
                self.rotary().is_none(),
                "must be absent unless position is rotary",
            ),
            (
                self.kv_heads != raw.heads,
                "must be absent unless kv_heads equals heads",
            ),
            (raw.qk_norm, "must be absent with qk_norm"),
            (
                raw.value_embeddings.is_some(),
                "must be absent with value_embeddings",
            ),
            (raw.delta_nets.is_some(), "must be absent with delta_nets"),
        ];
        if let Some((_, rule)) = without.into_iter().find(|(given, _)| *given) {
            return Err(ConfigError::new("latent_attention", "set", rule));
        }
        within("latent_attention.rank", latent.rank, 1..=LARGEST_SIZE)?;
        if let Some(rank) = latent.query_rank {
            within("latent_attention.query_rank", rank, 1..=LARGEST_SIZE)?;
        }
        let value_dim = latent.value_dim;
        within("latent_attention.value_dim", value_dim, 1..=LARGEST_SIZE)?;
        // A head also has an element that is not rotated.
        let most = (self.head_dim - 1).max(1);
        within("latent_attention.rope_dim", latent.rope_dim, 1..=most)?;
        let dims = self.rotary().map_or(0, |rotary| rotary.dims);
        if dims != latent.rope_dim {
            let rule = format!("must equal latent_attention.rope_dim = {}", latent.rope_dim);
            return Err(ConfigError::new("position.dims", dims, rule));
        }
        if !dims.is_multiple_of(2) {
            let rule = "must be even";
            return Err(ConfigError::new("latent_attention.rope_dim", dims, rule));
        }
        if raw.bias.qkv && latent.query_rank.is_none() {
            let rule = "must be false with latent_attention without query_rank";
            return Err(ConfigError::new("bias.qkv", true, rule));
        }
        Ok(())
    }

    /// The configuration of the latent attention, if the model has it.
    pub(super) fn latent(&self) -> Option<LatentConfig> {
        let latent = self.filled.latent_attention.as_ref()?;
        Some(LatentConfig {
            rank: latent.rank,
            query_rank: latent.query_rank,
            rope_dim: latent.rope_dim_for(self.head_dim),
            value_dim: latent.value_dim.unwrap_or(self.head_dim),
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::config::{LatentAttention, ModelConfig, Position};
    use crate::transformer::checked::tests::error_of;

    fn with(change: impl FnOnce(&mut LatentAttention, &mut ModelConfig)) -> String {
        error_of("llama-2-7b", |raw| {
            let mut latent = LatentAttention {
                rank: 64,
                query_rank: None,
                rope_dim: None,
                value_dim: None,
            };
            if let Position::Rotary { dims, .. } = &mut raw.position {
                *dims = None;
            }
            change(&mut latent, raw);
            raw.latent_attention = Some(latent);
        })
    }

    #[test]
    fn sizes_are_within_their_ranges() {
        assert_eq!(with(|_, _| {}), "accepted");
        let expected = "model.latent_attention.rank = 0: must be between 1 and 16777216";
        assert_eq!(with(|latent, _| latent.rank = 0), expected);
        let expected = "model.latent_attention.rope_dim = 128: must be between 1 and 127";
        assert_eq!(with(|latent, _| latent.rope_dim = Some(128)), expected);
        let expected = "model.latent_attention.rope_dim = 31: must be even";
        assert_eq!(with(|latent, _| latent.rope_dim = Some(31)), expected);
        let other = with(|_, raw| {
            if let Position::Rotary { dims, .. } = &mut raw.position {
                *dims = Some(32);
            }
        });
        let expected = "model.position.dims = 32: must equal latent_attention.rope_dim = 64";
        assert_eq!(other, expected);
    }

    #[test]
    fn other_choices_are_refused_beside_latent_attention() {
        let expected = "model.latent_attention = set: must be absent with qk_norm";
        assert_eq!(with(|_, raw| raw.qk_norm = true), expected);
        let expected = "model.latent_attention = set: must be absent unless kv_heads equals heads";
        assert_eq!(with(|_, raw| raw.kv_heads = Some(8)), expected);
        let expected = "model.latent_attention = set: must be absent unless position is rotary";
        assert_eq!(with(|_, raw| raw.position = Position::None), expected);
        let expected =
            "model.bias.qkv = true: must be false with latent_attention without query_rank";
        assert_eq!(with(|_, raw| raw.bias.qkv = true), expected);
    }
}
