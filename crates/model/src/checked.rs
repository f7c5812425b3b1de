//! The rules that make a configuration a model.

use std::ops::Deref;

use emberlm_kernels::{Activation, RotaryLayout};

use crate::config::{
    AttentionKind, DropoutSite, FeedForward, ModelConfig, Norm, Position, RotaryScaling,
};
use crate::error::{ConfigError, InputError};

/// A configuration that is a model: every size is set, every rule holds. Reads as a [`ModelConfig`].
#[derive(Clone, Debug, PartialEq)]
pub struct DecoderConfig(ModelConfig);

impl Deref for DecoderConfig {
    type Target = ModelConfig;

    fn deref(&self) -> &ModelConfig {
        &self.0
    }
}

impl TryFrom<ModelConfig> for DecoderConfig {
    type Error = ConfigError;

    fn try_from(mut raw: ModelConfig) -> Result<Self, ConfigError> {
        check_sizes(&raw)?;
        fill_defaults(&mut raw)?;
        check_attention(&raw)?;
        check_reach(&raw)?;
        check_parts(&raw)?;
        Ok(Self(raw))
    }
}

impl DecoderConfig {
    /// The configuration as it is written down, defaults filled in.
    pub fn raw(&self) -> &ModelConfig {
        &self.0
    }

    /// Hidden elements of the feed-forward part.
    pub fn feed_forward_width(&self) -> usize {
        match self.feed_forward {
            FeedForward::Dense { width, .. } | FeedForward::Gated { width, .. } => width,
        }
    }

    /// The feed-forward part's activation.
    pub fn activation(&self) -> Activation {
        match self.feed_forward {
            FeedForward::Dense { activation, .. } | FeedForward::Gated { activation, .. } => {
                activation
            }
        }
    }

    /// The norms' ε.
    pub fn norm_epsilon(&self) -> f64 {
        match self.norm {
            Norm::Layer { epsilon, .. } | Norm::Rms { epsilon } | Norm::UnitRms { epsilon } => {
                epsilon
            }
        }
    }

    /// How many of the newest tokens the attention of block `layer` sees; none where it sees all.
    pub fn window_of(&self, layer: usize) -> Option<usize> {
        let full = self.window == 0 || self.full_attention_layers.contains(&layer);
        (!full).then_some(self.window)
    }

    /// What the logits are multiplied by.
    pub fn logit_scale(&self) -> Option<f64> {
        self.head.scaled.then(|| 1.0 / (self.d_model as f64).sqrt())
    }

    /// The dropout probability at a site: 0 where it does not act.
    pub fn dropout_at(&self, site: DropoutSite) -> f64 {
        if self.dropout_sites.contains(&site) {
            self.dropout
        } else {
            0.0
        }
    }

    /// Whether the model can take `tokens` at once.
    ///
    /// # Errors
    /// No tokens, more than `seq_len`, or an id outside of the vocabulary.
    pub fn check_tokens(&self, tokens: &[u32]) -> Result<(), InputError> {
        if tokens.is_empty() {
            return Err(InputError::Empty);
        }
        if tokens.len() > self.seq_len {
            return Err(InputError::TooLong {
                tokens: tokens.len(),
                seq_len: self.seq_len,
            });
        }
        match tokens.iter().position(|&id| id as usize >= self.vocab_size) {
            Some(position) => Err(InputError::UnknownToken {
                id: tokens[position],
                position,
                vocab_size: self.vocab_size,
            }),
            None => Ok(()),
        }
    }
}

/// Beyond any model published; keeps products of sizes far from overflow.
const LARGEST_SIZE: usize = 1 << 24;

fn check_sizes(raw: &ModelConfig) -> Result<(), ConfigError> {
    for (field, value) in [
        ("vocab_size", raw.vocab_size),
        ("seq_len", raw.seq_len),
        ("d_model", raw.d_model),
        ("n_layers", raw.n_layers),
        ("heads", raw.heads),
        ("kv_heads", raw.kv_heads),
    ] {
        if value == 0 || value > LARGEST_SIZE {
            let rule = format!("must be between 1 and {LARGEST_SIZE}");
            return Err(ConfigError::new(field, value, rule));
        }
    }
    Ok(())
}

fn fill_defaults(raw: &mut ModelConfig) -> Result<(), ConfigError> {
    raw.full_attention_layers.sort_unstable();
    raw.full_attention_layers.dedup();
    if raw.head_dim == 0 {
        if !raw.d_model.is_multiple_of(raw.heads) {
            let rule = format!("must divide d_model = {}", raw.d_model);
            return Err(ConfigError::new("heads", raw.heads, rule));
        }
        raw.head_dim = raw.d_model / raw.heads;
    }
    match &mut raw.feed_forward {
        FeedForward::Dense { width, .. } | FeedForward::Gated { width, .. } if *width == 0 => {
            *width = 4 * raw.d_model;
        }
        _ => {}
    }
    if let AttentionKind::Linear { features, .. } = &mut raw.attention
        && *features == 0
    {
        *features = raw.head_dim.saturating_mul(4);
    }
    if let Position::Rotary { dims, .. } = &mut raw.position
        && *dims == 0
    {
        *dims = raw.head_dim;
    }
    Ok(())
}

/// Far beyond use: at 65,536 features the estimate's error is a percent or less.
const MOST_FEATURES: usize = 1 << 16;

/// What an attention sees, and whether it can be estimated.
fn check_reach(raw: &ModelConfig) -> Result<(), ConfigError> {
    let global = |rule: String| Err(ConfigError::new("global_tokens", raw.global_tokens, rule));
    if raw.global_tokens > 0 && raw.window == 0 {
        return global("must be 0 without a window: all tokens are seen anyway".to_owned());
    }
    if raw.global_tokens > raw.seq_len {
        return global(format!("must be at most seq_len = {}", raw.seq_len));
    }
    let AttentionKind::Linear { features, .. } = raw.attention else {
        return Ok(());
    };
    if features == 0 || features > MOST_FEATURES {
        let rule = format!("must be between 1 and {MOST_FEATURES}");
        return Err(ConfigError::new("attention.features", features, rule));
    }
    if raw.window > 0 {
        let rule = "must be 0 with linear attention, whose sums cannot forget a token";
        return Err(ConfigError::new("window", raw.window, rule));
    }
    if raw.dropout > 0.0 && raw.dropout_sites.contains(&DropoutSite::Attention) {
        let rule = "must not hold \"attention\" with linear attention, which never has its weights";
        let sites = format!("{:?}", raw.dropout_sites).to_lowercase();
        return Err(ConfigError::new("dropout_sites", sites, rule));
    }
    Ok(())
}

fn check_attention(raw: &ModelConfig) -> Result<(), ConfigError> {
    if let Some(&layer) = raw
        .full_attention_layers
        .iter()
        .find(|&&l| l >= raw.n_layers)
    {
        let rule = format!("must be below n_layers = {}", raw.n_layers);
        return Err(ConfigError::new("full_attention_layers", layer, rule));
    }
    if raw.kv_heads > raw.heads || !raw.heads.is_multiple_of(raw.kv_heads) {
        let rule = format!("must divide heads = {}", raw.heads);
        return Err(ConfigError::new("kv_heads", raw.kv_heads, rule));
    }
    if raw.head_dim > LARGEST_SIZE {
        let rule = format!("must be between 1 and {LARGEST_SIZE}");
        return Err(ConfigError::new("head_dim", raw.head_dim, rule));
    }
    let Position::Rotary {
        dims,
        base,
        layout,
        scaling,
    } = raw.position
    else {
        return Ok(());
    };
    let head_dim = raw.head_dim;
    let (turned, rule) = match layout {
        // As GPT-NeoX has it: of an odd number one element more turns, and the frequencies are by the odd number.
        RotaryLayout::HalfSplit => (
            dims.next_multiple_of(2),
            format!("must be at most head_dim = {head_dim}, rounded up to even"),
        ),
        RotaryLayout::Interleaved => (
            if dims.is_multiple_of(2) {
                dims
            } else {
                usize::MAX
            },
            format!("must be even and at most head_dim = {head_dim}"),
        ),
    };
    if turned > head_dim {
        return Err(ConfigError::new("position.dims", dims, rule));
    }
    if !(base.is_finite() && base > 0.0) {
        return Err(ConfigError::new(
            "position.base",
            base,
            "must be above 0 and finite",
        ));
    }
    check_scaling(scaling)
}

fn check_scaling(scaling: RotaryScaling) -> Result<(), ConfigError> {
    let positive = |field, value: f64| {
        if value.is_finite() && value > 0.0 {
            Ok(())
        } else {
            Err(ConfigError::new(field, value, "must be above 0 and finite"))
        }
    };
    match scaling {
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
            positive("position.scaling.original_seq_len", original_seq_len as f64)
        }
    }
}

fn check_parts(raw: &ModelConfig) -> Result<(), ConfigError> {
    let width = match raw.feed_forward {
        FeedForward::Dense { width, .. } | FeedForward::Gated { width, .. } => width,
    };
    if width > LARGEST_SIZE {
        let rule = format!("must be at most {LARGEST_SIZE}");
        return Err(ConfigError::new("feed_forward.width", width, rule));
    }
    if !(0.0..1.0).contains(&raw.dropout) {
        let rule = "must be at least 0 and below 1";
        return Err(ConfigError::new("dropout", raw.dropout, rule));
    }
    let (Norm::Layer { epsilon, .. } | Norm::Rms { epsilon } | Norm::UnitRms { epsilon }) =
        raw.norm;
    if !(epsilon.is_finite() && epsilon > 0.0) {
        let rule = "must be above 0 and finite";
        return Err(ConfigError::new("norm.epsilon", epsilon, rule));
    }
    if !(raw.head.soft_cap.is_finite() && raw.head.soft_cap >= 0.0) {
        let rule = "must be 0 (none) or above, and finite";
        return Err(ConfigError::new("head.soft_cap", raw.head.soft_cap, rule));
    }
    if let crate::config::Init::Normal { std, .. } = raw.init
        && !(std.is_finite() && std > 0.0)
    {
        return Err(ConfigError::new(
            "init.std",
            std,
            "must be above 0 and finite",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::families::{self, Family};

    fn error_of(change: impl FnOnce(&mut ModelConfig)) -> String {
        let mut raw = families::preset("char-nano").expect("a preset").config;
        raw.vocab_size = 65;
        change(&mut raw);
        match DecoderConfig::try_from(raw) {
            Ok(_) => "accepted".to_owned(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn each_rule_names_field_value_and_rule() {
        let expected = "model.heads = 0: must be between 1 and 16777216";
        assert_eq!(error_of(|c| c.heads = 0), expected);
        let expected = "model.heads = 3: must divide d_model = 128";
        assert_eq!(error_of(|c| c.heads = 3), expected);
        let expected = "model.kv_heads = 3: must divide heads = 4";
        assert_eq!(error_of(|c| c.kv_heads = 3), expected);
        let expected = "model.dropout = 1: must be at least 0 and below 1";
        assert_eq!(error_of(|c| c.dropout = 1.0), expected);
        let expected = "model.dropout = NaN: must be at least 0 and below 1";
        assert_eq!(error_of(|c| c.dropout = f64::NAN), expected);
    }

    #[test]
    fn rotary_dims_are_within_the_head() {
        let rotary = |dims, layout| Position::Rotary {
            dims,
            base: 10_000.0,
            layout,
            scaling: RotaryScaling::None,
        };
        let (halves, neighbours) = (RotaryLayout::HalfSplit, RotaryLayout::Interleaved);
        let expected = "model.position.dims = 7: must be even and at most head_dim = 32";
        assert_eq!(error_of(|c| c.position = rotary(7, neighbours)), expected);
        let expected =
            "model.position.dims = 33: must be at most head_dim = 32, rounded up to even";
        assert_eq!(error_of(|c| c.position = rotary(33, halves)), expected);
        for dims in [0, 7, 31] {
            assert_eq!(error_of(|c| c.position = rotary(dims, halves)), "accepted");
        }
    }

    #[test]
    fn global_tokens_need_a_window() {
        let expected =
            "model.global_tokens = 2: must be 0 without a window: all tokens are seen anyway";
        assert_eq!(error_of(|c| c.global_tokens = 2), expected);
        let windowed = |global_tokens| {
            error_of(|c| {
                c.window = 8;
                c.global_tokens = global_tokens;
            })
        };
        let expected = "model.global_tokens = 65: must be at most seq_len = 64";
        assert_eq!(windowed(65), expected);
        assert_eq!(windowed(64), "accepted");
    }

    #[test]
    fn linear_attention_has_no_window_and_no_weights_to_drop() {
        let linear = |change: fn(&mut ModelConfig)| {
            error_of(|c| {
                c.attention = AttentionKind::Linear {
                    features: 16,
                    seed: 0,
                };
                change(c);
            })
        };
        assert_eq!(linear(|_| ()), "accepted");
        let expected =
            "model.window = 8: must be 0 with linear attention, whose sums cannot forget a token";
        assert_eq!(linear(|c| c.window = 8), expected);
        let expected = "model.dropout_sites = [embedding, attention, residual]: must not hold \"attention\" with \
                        linear attention, which never has its weights";
        assert_eq!(linear(|c| c.dropout = 0.1), expected);
        let residual = |c: &mut ModelConfig| {
            c.dropout = 0.1;
            c.dropout_sites = vec![DropoutSite::Residual];
        };
        assert_eq!(linear(residual), "accepted");
        let features =
            |features| error_of(|c| c.attention = AttentionKind::Linear { features, seed: 0 });
        let expected = "model.attention.features = 65537: must be between 1 and 65536";
        assert_eq!(features(65_537), expected);
        assert_eq!(features(0), "accepted");
    }

    #[test]
    fn sizes_left_open_are_filled() {
        let mut raw = families::preset("pocket").expect("a preset").config;
        raw.vocab_size = 50_257;
        let config = DecoderConfig::try_from(raw).expect("legal");
        assert_eq!(config.family, Family::Pocket);
        assert_eq!(config.head_dim, 64);
        assert_eq!(config.feed_forward_width(), 1536);
    }

    #[test]
    fn tokens_are_checked() {
        let mut raw = families::preset("char-nano").expect("a preset").config;
        raw.vocab_size = 65;
        let config = DecoderConfig::try_from(raw).expect("legal");
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
