//! Rules for gated delta nets, and their configuration.

use super::TransformerConfig;
use crate::config::limits::{LARGEST_SIZE, within};
use crate::config::{AttentionKind, ModelKind, Position};
use crate::error::ConfigError;
use crate::nn::attention::{AttentionConfig, Mechanism};
use crate::nn::delta_net::DeltaNetConfig;
use crate::nn::stack::DeltaLayersConfig;

/// Far above practical values.
const MAX_TAPS: usize = 64;

impl TransformerConfig {
    pub(super) fn check_delta_nets(&self) -> Result<(), ConfigError> {
        let raw = &self.filled;
        let is_decoder = self.kind() == ModelKind::Decoder;
        if raw.gated_attention && !is_decoder {
            let rule = "must be false in a model that is not a decoder";
            return Err(ConfigError::new("gated_attention", true, rule));
        }
        let is_softmax = matches!(raw.attention, AttentionKind::Softmax { .. });
        if raw.gated_attention && !is_softmax {
            let rule = "must be false unless attention.kind is \"softmax\"";
            return Err(ConfigError::new("gated_attention", true, rule));
        }
        let Some(nets) = &raw.delta_nets else {
            return Ok(());
        };
        let without = [
            (
                !is_decoder,
                "must be absent from a model that is not a decoder",
            ),
            (
                !is_softmax,
                "must be absent unless attention.kind is \"softmax\"",
            ),
            (
                self.window().is_some(),
                "must be absent with attention.window",
            ),
            (
                raw.value_embeddings.is_some(),
                "must be absent with value_embeddings",
            ),
            (
                matches!(raw.position, Position::Relative(_)),
                "must be absent with relative positions",
            ),
        ];
        if let Some((_, rule)) = without.into_iter().find(|(given, _)| *given) {
            return Err(ConfigError::new("delta_nets", "set", rule));
        }
        let net = self.delta_attention().map(|(attention, net)| {
            let [heads, keys] = [attention.heads, attention.kv_heads];
            (heads, keys, attention.head_dim, net.value_dim)
        });
        let Some((heads, key_heads, key_dim, value_dim)) = net else {
            return Ok(());
        };
        for (field, size) in [
            ("delta_nets.key_heads", key_heads),
            ("delta_nets.value_heads", heads),
            ("delta_nets.key_dim", key_dim),
            ("delta_nets.value_dim", value_dim),
        ] {
            within(field, size, 1..=LARGEST_SIZE)?;
        }
        if !heads.is_multiple_of(key_heads) {
            let rule = format!("must be a multiple of delta_nets.key_heads = {key_heads}");
            return Err(ConfigError::new("delta_nets.value_heads", heads, rule));
        }
        within("delta_nets.taps", nets.taps, 2..=MAX_TAPS)?;
        match nets.full_layers.layers(raw.n_layers).last() {
            Some(&layer) if layer >= raw.n_layers => {
                let rule = format!("must be below n_layers = {}", raw.n_layers);
                Err(ConfigError::new("delta_nets.full_layers", layer, rule))
            }
            _ => Ok(()),
        }
    }

    /// The blocks with delta nets, if any.
    pub(super) fn delta_layers(&self) -> Option<DeltaLayersConfig> {
        let nets = self.delta_nets()?;
        let (attention, _) = self.delta_attention()?;
        Some(DeltaLayersConfig {
            attention,
            layers: nets.layers(self.filled.n_layers),
        })
    }

    fn delta_attention(&self) -> Option<(AttentionConfig, DeltaNetConfig)> {
        let nets = self.delta_nets()?;
        let key_heads = nets.key_heads.unwrap_or(self.filled.heads);
        let key_dim = nets.key_dim.unwrap_or(self.head_dim);
        let net = DeltaNetConfig {
            value_dim: nets.value_dim.unwrap_or(key_dim),
            taps: nets.taps,
            epsilon: self.filled.norm.epsilon(),
        };
        let attention = AttentionConfig {
            heads: nets.value_heads.unwrap_or(key_heads),
            kv_heads: key_heads,
            head_dim: key_dim,
            mechanism: Mechanism::Delta(net),
            ..AttentionConfig::new(self.filled.d_model, 1)
        };
        Some((attention, net))
    }
}

#[cfg(test)]
mod tests {
    use crate::config::{DeltaNets, FullLayers, ModelConfig, ValueEmbeddings, Window};
    use crate::transformer::checked::tests::error_of;

    fn with(change: impl FnOnce(&mut DeltaNets, &mut ModelConfig)) -> String {
        error_of("char-nano", |raw| {
            let mut nets = DeltaNets::default();
            change(&mut nets, raw);
            raw.delta_nets = Some(nets);
        })
    }

    #[test]
    fn sizes_are_within_their_ranges() {
        assert_eq!(with(|_, _| {}), "accepted");
        let heads = with(|nets, _| (nets.key_heads, nets.value_heads) = (Some(2), Some(3)));
        let expected =
            "model.delta_nets.value_heads = 3: must be a multiple of delta_nets.key_heads = 2";
        assert_eq!(heads, expected);
        let expected = "model.delta_nets.key_heads = 0: must be between 1 and 16777216";
        assert_eq!(with(|nets, _| nets.key_heads = Some(0)), expected);
        let expected = "model.delta_nets.taps = 1: must be between 2 and 64";
        assert_eq!(with(|nets, _| nets.taps = 1), expected);
        let layers = with(|nets, _| nets.full_layers = FullLayers::Listed(vec![4]));
        let expected = "model.delta_nets.full_layers = 4: must be below n_layers = 4";
        assert_eq!(layers, expected);
    }

    #[test]
    fn other_choices_are_refused_beside_delta_nets() {
        let values = with(|_, raw| raw.value_embeddings = Some(ValueEmbeddings::default()));
        let expected = "model.delta_nets = set: must be absent with value_embeddings";
        assert_eq!(values, expected);
        let window = crate::config::AttentionKind::windowed(Window::new(8));
        let expected = "model.delta_nets = set: must be absent with attention.window";
        assert_eq!(with(|_, raw| raw.attention = window), expected);
        let linear = crate::config::AttentionKind::Linear {
            features: None,
            seed: 0,
        };
        let expected =
            "model.delta_nets = set: must be absent unless attention.kind is \"softmax\"";
        assert_eq!(with(|_, raw| raw.attention = linear), expected);
    }
}
