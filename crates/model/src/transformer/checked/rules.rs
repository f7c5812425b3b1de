//! Rules that a model configuration must satisfy.

use super::TransformerConfig;
use crate::config::limits::{LARGEST_SIZE, MOST_LAYERS, positive, within};
use crate::config::{AttentionKind, DropoutSite, FullLayers, Init, ModelConfig, Position, Window};
use crate::error::ConfigError;
use crate::nn::attention::default_scale;

impl TryFrom<ModelConfig> for TransformerConfig {
    type Error = ConfigError;

    fn try_from(raw: ModelConfig) -> Result<Self, ConfigError> {
        let config = with_defaults(raw)?;
        config.check_attention()?;
        config.check_position()?;
        config.check_layer_positions()?;
        config.check_scales()?;
        config.check_components()?;
        config.check_additions()?;
        config.check_delta_nets()?;
        config.check_latent_attention()?;
        config.check_architecture()?;
        Ok(config)
    }
}

/// Far above practical values: with 65,536 features, the error of the estimate is at most about 1 %.
const MAX_FEATURES: usize = 1 << 16;

/// Fills in defaults and checks the sizes.
fn with_defaults(mut raw: ModelConfig) -> Result<TransformerConfig, ConfigError> {
    let Some(vocab_size) = raw.vocab_size else {
        return Err(ConfigError::new("vocab_size", "unset", "must be given"));
    };
    for (field, value) in [
        ("vocab_size", vocab_size),
        ("seq_len", raw.seq_len),
        ("d_model", raw.d_model),
        ("heads", raw.heads),
        ("kv_heads", raw.kv_heads_or_derived()),
    ] {
        within(field, value, 1..=LARGEST_SIZE)?;
    }
    within("n_layers", raw.n_layers, 1..=MOST_LAYERS)?;
    let head_dim = raw.head_dim_or_derived()?;
    within("head_dim", head_dim, 1..=LARGEST_SIZE)?;
    if let Some(expansion) = raw.feed_forward.expansion {
        positive("feed_forward.expansion", expansion)?;
    }
    raw.feed_forward.width = Some(raw.feed_forward.width_for(raw.d_model));
    raw.feed_forward.expansion = None;
    if let Some(experts) = &mut raw.experts {
        experts.width = experts.width.or(raw.feed_forward.width);
        experts.dense_layers.sort_unstable();
        experts.dense_layers.dedup();
    }
    if let Some(nets) = &mut raw.delta_nets {
        let key_heads = *nets.key_heads.get_or_insert(raw.heads);
        let key_dim = *nets.key_dim.get_or_insert(head_dim);
        nets.value_heads.get_or_insert(key_heads);
        nets.value_dim.get_or_insert(key_dim);
        nets.full_layers = FullLayers::Listed(nets.full_layers.layers(raw.n_layers));
    }
    let rotatable = raw.rotatable_dim(head_dim);
    if let Some(latent) = &mut raw.latent_attention {
        latent.rope_dim = Some(rotatable);
        latent.value_dim.get_or_insert(head_dim);
    }
    match &mut raw.attention {
        AttentionKind::Softmax { window, scale, .. } => {
            if let Some(window) = window {
                window.full_layers = FullLayers::Listed(window.full_layers.layers(raw.n_layers));
            }
            scale.take_if(|scale| *scale == default_scale(head_dim));
        }
        AttentionKind::Linear { features, .. } => {
            features.get_or_insert(head_dim.saturating_mul(4));
        }
    }
    if let Position::Rotary { dims, .. } = &mut raw.position {
        dims.get_or_insert(rotatable);
    }
    if let Some(positions) = &mut raw.layer_positions {
        let layers = positions.layers_mut();
        *layers = FullLayers::Listed(layers.layers(raw.n_layers));
    }
    // A stack too short for the pattern has no such blocks.
    raw.layer_positions
        .take_if(|positions| *positions.layers() == FullLayers::NONE);
    let kv_heads = raw.kv_heads_or_derived();
    if let Some(values) = &mut raw.value_embeddings {
        values.layers = FullLayers::Listed(values.layers.layers(raw.n_layers));
        values.gate_inputs = Some(values.gate_inputs_for(raw.d_model));
    }
    raw.zero_init.sort_unstable();
    raw.zero_init.dedup();
    raw.kv_heads = Some(kv_heads);
    raw.head_dim = Some(head_dim);
    Ok(TransformerConfig {
        filled: raw,
        vocab_size,
        kv_heads,
        head_dim,
    })
}

impl TransformerConfig {
    fn check_attention(&self) -> Result<(), ConfigError> {
        if self.kv_heads > self.filled.heads || !self.filled.heads.is_multiple_of(self.kv_heads) {
            let rule = format!("must divide heads = {}", self.filled.heads);
            return Err(ConfigError::new("kv_heads", self.kv_heads, rule));
        }
        match &self.filled.attention {
            AttentionKind::Softmax {
                window,
                scale,
                soft_cap,
                sinks: _,
            } => {
                if let Some(scale) = scale {
                    positive("attention.scale", *scale)?;
                }
                if let Some(soft_cap) = soft_cap {
                    positive("attention.soft_cap", *soft_cap)?;
                }
                window
                    .iter()
                    .try_for_each(|window| self.check_window(window))
            }
            AttentionKind::Linear { features, .. } => {
                let features = features.unwrap_or_default();
                within("attention.features", features, 1..=MAX_FEATURES)?;
                if self.dropout_at(DropoutSite::Attention) > 0.0 {
                    let rule = "must not contain \"attention\" with linear attention, which does not compute attention weights";
                    let sites = format!("{:?}", self.filled.dropout_sites).to_lowercase();
                    return Err(ConfigError::new("dropout_sites", sites, rule));
                }
                Ok(())
            }
        }
    }

    fn check_window(&self, window: &Window) -> Result<(), ConfigError> {
        let error = |field, value: usize, rule: String| Err(ConfigError::new(field, value, rule));
        if window.tokens == 0 {
            let rule = "must be at least 1".to_owned();
            return error("attention.window.tokens", 0, rule);
        }
        if window.global_tokens > self.filled.seq_len {
            let rule = format!("must be at most seq_len = {}", self.filled.seq_len);
            return error("attention.window.global_tokens", window.global_tokens, rule);
        }
        match window.full_layers.layers(self.filled.n_layers).last() {
            Some(&layer) if layer >= self.filled.n_layers => {
                let rule = format!("must be below n_layers = {}", self.filled.n_layers);
                error("attention.window.full_layers", layer, rule)
            }
            _ => Ok(()),
        }
    }

    fn check_components(&self) -> Result<(), ConfigError> {
        within(
            "feed_forward.width",
            self.feed_forward_width(),
            1..=LARGEST_SIZE,
        )?;
        if let Some(experts) = &self.filled.experts {
            self.check_experts(experts)?;
        }
        if !(0.0..1.0).contains(&self.filled.dropout) {
            let rule = "must be at least 0 and below 1";
            return Err(ConfigError::new("dropout", self.filled.dropout, rule));
        }
        positive("norm.epsilon", self.norm_epsilon())?;
        if let Some(soft_cap) = self.filled.head.soft_cap {
            positive("head.soft_cap", soft_cap)?;
        }
        match self.filled.init {
            Init::Normal { std, .. } => positive("init.std", std),
            Init::T5 { factor } => positive("init.factor", factor),
            Init::FanIn | Init::LeCun | Init::TruncatedXavier | Init::Small => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use emberlm_kernels::RotaryLayout;

    use super::*;
    use crate::config::{Experts, RotaryScaling};
    use crate::error::InputError;
    use crate::families::{self, Family};
    use crate::transformer::checked::tests;

    fn error_of(change: impl FnOnce(&mut ModelConfig)) -> String {
        tests::error_of("char-nano", change)
    }

    #[test]
    fn errors_name_field_value_and_rule() {
        let expected = "model.heads = 0: must be between 1 and 16777216";
        assert_eq!(error_of(|c| c.heads = 0), expected);
        let expected = "model.heads = 3: must divide d_model = 128";
        assert_eq!(error_of(|c| c.heads = 3), expected);
        let expected = "model.kv_heads = 3: must divide heads = 4";
        assert_eq!(error_of(|c| c.kv_heads = Some(3)), expected);
        let expected = "model.dropout = 1: must be at least 0 and below 1";
        assert_eq!(error_of(|c| c.dropout = 1.0), expected);
        let expected = "model.dropout = NaN: must be at least 0 and below 1";
        assert_eq!(error_of(|c| c.dropout = f64::NAN), expected);
    }

    #[test]
    fn rotary_dims_are_within_the_head() {
        let rotary = |dims, layout| Position::Rotary {
            dims: Some(dims),
            base: 10_000.0,
            layout,
            scaling: RotaryScaling::None,
        };
        let (half_split, interleaved) = (RotaryLayout::HalfSplit, RotaryLayout::Interleaved);
        let expected = "model.position.dims = 7: must be even and at most head_dim = 32";
        assert_eq!(error_of(|c| c.position = rotary(7, interleaved)), expected);
        let expected =
            "model.position.dims = 33: must be at most head_dim = 32, rounded up to even";
        assert_eq!(error_of(|c| c.position = rotary(33, half_split)), expected);
        for dims in [7, 31] {
            assert_eq!(
                error_of(|c| c.position = rotary(dims, half_split)),
                "accepted"
            );
        }
    }

    #[test]
    fn windows_are_within_the_sequence_and_the_stack() {
        let windowed = |global_tokens, layer| {
            error_of(|c| {
                c.attention = AttentionKind::windowed(Window {
                    tokens: 8,
                    global_tokens,
                    full_layers: FullLayers::Listed(vec![layer]),
                });
            })
        };
        let expected = "model.attention.window.global_tokens = 65: must be at most seq_len = 64";
        assert_eq!(windowed(65, 0), expected);
        let expected = "model.attention.window.full_layers = 4: must be below n_layers = 4";
        assert_eq!(windowed(0, 4), expected);
        assert_eq!(windowed(64, 3), "accepted");
        let expected = "model.attention.window.tokens = 0: must be at least 1";
        let empty = error_of(|c| c.attention = AttentionKind::windowed(Window::new(0)));
        assert_eq!(empty, expected);
    }

    #[test]
    fn experts_are_within_their_ranges() {
        let with = |change: fn(&mut Experts)| {
            error_of(|c| {
                let mut experts = Experts {
                    count: 4,
                    normalize: true,
                    balance_loss: 0.01,
                    dense_layers: vec![1],
                    ..Experts::default()
                };
                change(&mut experts);
                c.experts = Some(experts);
            })
        };
        assert_eq!(with(|_| ()), "accepted");
        let expected = "model.experts.active = 5: must be between 1 and 4";
        assert_eq!(with(|experts| experts.active = 5), expected);
        let expected = "model.experts.count = 0: must be between 1 and 4096";
        assert_eq!(with(|experts| experts.count = 0), expected);
        let expected = "model.experts.z_loss = -1: must be at least 0 and finite";
        assert_eq!(with(|experts| experts.z_loss = -1.0), expected);
        let expected = "model.experts.dense_layers = 4: must be below n_layers = 4";
        assert_eq!(with(|experts| experts.dense_layers = vec![4]), expected);
    }

    #[test]
    fn scale_and_cap_are_positive() {
        let softmax = |scale, soft_cap| {
            error_of(|c| {
                c.attention = AttentionKind::Softmax {
                    window: None,
                    scale,
                    soft_cap,
                    sinks: false,
                };
            })
        };
        let expected = "model.attention.scale = 0: must be above 0 and finite";
        assert_eq!(softmax(Some(0.0), None), expected);
        assert_eq!(softmax(Some(0.5), None), "accepted");
        let expected = "model.attention.soft_cap = -1: must be above 0 and finite";
        assert_eq!(softmax(None, Some(-1.0)), expected);
        assert_eq!(softmax(None, Some(50.0)), "accepted");
    }

    #[test]
    fn linear_attention_has_no_weights_to_drop() {
        let linear = |features, change: fn(&mut ModelConfig)| {
            error_of(|c| {
                c.attention = AttentionKind::Linear { features, seed: 0 };
                change(c);
            })
        };
        assert_eq!(linear(Some(16), |_| ()), "accepted");
        let expected = "model.dropout_sites = [embedding, attention, residual]: must not contain \"attention\" with \
                        linear attention, which does not compute attention weights";
        assert_eq!(linear(Some(16), |c| c.dropout = 0.1), expected);
        let residual = |c: &mut ModelConfig| {
            c.dropout = 0.1;
            c.dropout_sites = vec![DropoutSite::Residual];
        };
        assert_eq!(linear(Some(16), residual), "accepted");
        let expected = "model.attention.features = 65537: must be between 1 and 65536";
        assert_eq!(linear(Some(65_537), |_| ()), expected);
        assert_eq!(linear(None, |_| ()), "accepted");
    }

    #[test]
    fn unset_sizes_get_defaults() {
        let mut raw = families::preset("pocket").expect("a preset").config;
        raw.vocab_size = Some(50_257);
        let config = TransformerConfig::try_from(raw).expect("legal");
        assert_eq!(config.family(), Family::Pocket);
        assert_eq!(config.head_dim(), 64);
        assert_eq!(config.feed_forward_width(), 1536);
    }

    #[test]
    fn tokens_are_checked() {
        let mut raw = families::preset("char-nano").expect("a preset").config;
        raw.vocab_size = Some(65);
        let config = TransformerConfig::try_from(raw).expect("legal");
        assert_eq!(config.check_tokens(&[]), Err(InputError::Empty));
        assert!(config.check_tokens(&[0; 65]).is_err());
        let error = config.check_tokens(&[1, 65]).expect_err("id 65 of 65");
        assert_eq!(
            error.to_string(),
            "token 65 at position 1 is outside of the vocabulary of 65"
        );
        assert_eq!(config.check_tokens(&[64]), Ok(()));
    }
}
