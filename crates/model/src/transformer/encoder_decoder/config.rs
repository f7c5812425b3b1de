//! Configuration of an encoder–decoder: as written, and checked.

use documented::DocumentedFields;
use emberlm_kernels::{Activation, Reach};
use serde::{Deserialize, Serialize};

use crate::config::limits::{LARGEST_SIZE, MOST_LAYERS, positive, within};
use crate::config::{FeedForward, Head, Norm, RelativePositions};
use crate::error::{ConfigError, InputError};
use crate::nn::attention::{AttentionConfig, Mechanism};
use crate::nn::block::BlockConfig;
use crate::nn::cross_attention::CrossAttentionConfig;
use crate::nn::embeddings::EmbeddingsConfig;
use crate::nn::feed_forward::FeedForwardConfig;
use crate::nn::lm_head::LmHeadConfig;
use crate::nn::relative_bias::RelativeConfig;
use crate::nn::stack::StackConfig;
use crate::transformer::count::encoder_decoder_counts;

/// An encoder–decoder's configuration as written, not yet checked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, DocumentedFields)]
#[serde(deny_unknown_fields)]
pub struct EncoderDecoderSettings {
    /// Number of token ids; in a run's configuration, 0 for as many as the tokenizer and the objective need.
    pub vocab_size: usize,
    /// Width of the residual stream.
    pub d_model: usize,
    /// Number of blocks in the encoder.
    pub encoder_layers: usize,
    /// Number of blocks in the decoder.
    pub decoder_layers: usize,
    /// Attention heads per block.
    pub heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// The relative positions of both stacks.
    pub relative_positions: RelativePositions,
    /// The feed-forward layer.
    pub feed_forward: FeedForward,
    /// The normalization.
    pub norm: Norm,
    /// The output projection.
    pub head: Head,
    /// Probability of dropping an element during training, at every site that T5 has.
    pub dropout: f64,
    /// Factor on the standard deviations of the initial weights.
    pub init_factor: f64,
    /// The token that begins every target.
    pub start_token: u32,
    /// The token that stands for ignored labels in the decoder's input.
    pub padding_token: u32,
}

impl EncoderDecoderSettings {
    /// The sizes of the preset `t5-nano`, without dropout; the vocabulary depends on the data.
    pub fn nano(vocab_size: usize) -> Self {
        Self {
            vocab_size,
            encoder_layers: 2,
            decoder_layers: 2,
            feed_forward: FeedForward::gated(Activation::GeluTanh).with_width(256),
            ..Self::new(128, 4)
        }
    }

    /// T5's components with `heads` heads and one block per stack of width `d_model`, without dropout.
    pub fn new(d_model: usize, heads: usize) -> Self {
        Self {
            vocab_size: 32_128,
            d_model,
            encoder_layers: 1,
            decoder_layers: 1,
            heads,
            head_dim: d_model / heads.max(1),
            relative_positions: RelativePositions {
                buckets: 32,
                max_distance: 128,
            },
            feed_forward: FeedForward::dense(Activation::Relu),
            norm: Norm::Rms { epsilon: 1e-6 },
            head: Head {
                tied: true,
                bias: false,
                scaled: true,
                scale: None,
                soft_cap: None,
            },
            dropout: 0.0,
            init_factor: 1.0,
            start_token: 0,
            padding_token: 0,
        }
    }
}

/// A checked configuration: every rule holds. [`EncoderDecoderConfig::try_from`] builds one.
#[derive(Clone, Debug, PartialEq)]
pub struct EncoderDecoderConfig {
    settings: EncoderDecoderSettings,
}

impl TryFrom<EncoderDecoderSettings> for EncoderDecoderConfig {
    type Error = ConfigError;

    fn try_from(mut settings: EncoderDecoderSettings) -> Result<Self, ConfigError> {
        let width = settings.feed_forward.width_for(settings.d_model);
        for (field, value) in [
            ("vocab_size", settings.vocab_size),
            ("d_model", settings.d_model),
            ("heads", settings.heads),
            ("head_dim", settings.head_dim),
            ("feed_forward.width", width),
        ] {
            within(field, value, 1..=LARGEST_SIZE)?;
        }
        within("encoder_layers", settings.encoder_layers, 1..=MOST_LAYERS)?;
        within("decoder_layers", settings.decoder_layers, 1..=MOST_LAYERS)?;
        settings.feed_forward.width = Some(width);
        settings.feed_forward.expansion = None;
        check_positions(settings.relative_positions)?;
        check_numbers(&settings)?;
        let vocab_size = settings.vocab_size;
        for (field, id) in [
            ("start_token", settings.start_token),
            ("padding_token", settings.padding_token),
        ] {
            if id as usize >= vocab_size {
                let rule = format!("must be below vocab_size = {vocab_size}");
                return Err(ConfigError::new(field, id, rule));
            }
        }
        Ok(Self { settings })
    }
}

fn check_positions(positions: RelativePositions) -> Result<(), ConfigError> {
    let RelativePositions {
        buckets,
        max_distance,
    } = positions;
    within("relative_positions.buckets", buckets, 4..=LARGEST_SIZE)?;
    // Buckets of one distance each reach half as far as there are buckets.
    if !(buckets / 2 + 1..=LARGEST_SIZE).contains(&max_distance) {
        let rule = format!("must be above buckets / 2 = {}", buckets / 2);
        return Err(ConfigError::new(
            "relative_positions.max_distance",
            max_distance,
            rule,
        ));
    }
    Ok(())
}

fn check_numbers(settings: &EncoderDecoderSettings) -> Result<(), ConfigError> {
    for (field, value) in [
        ("norm.epsilon", settings.norm.epsilon()),
        ("init_factor", settings.init_factor),
        ("head.scale", settings.head.scale.unwrap_or(1.0)),
        ("head.soft_cap", settings.head.soft_cap.unwrap_or(1.0)),
    ] {
        positive(field, value)?;
    }
    if !(0.0..1.0).contains(&settings.dropout) {
        let rule = "must be in 0..1";
        return Err(ConfigError::new("dropout", settings.dropout, rule));
    }
    Ok(())
}

impl EncoderDecoderConfig {
    /// The configuration as written, with its defaults filled in.
    pub fn settings(&self) -> &EncoderDecoderSettings {
        &self.settings
    }

    /// Number of token ids.
    pub fn vocab_size(&self) -> usize {
        self.settings.vocab_size
    }

    /// Returns an error for tokens that the model cannot process. Their number is not limited: positions are relative.
    ///
    /// # Errors
    /// There are none, or one is outside of the vocabulary.
    pub fn check_tokens(&self, ids: &[u32]) -> Result<(), InputError> {
        let vocab_size = self.vocab_size();
        if ids.is_empty() {
            return Err(InputError::Empty);
        }
        match ids.iter().position(|&id| id as usize >= vocab_size) {
            Some(position) => Err(InputError::UnknownToken {
                id: ids[position],
                position,
                vocab_size,
            }),
            None => Ok(()),
        }
    }

    /// The embeddings of source and target.
    pub fn embeddings(&self) -> EmbeddingsConfig {
        let settings = &self.settings;
        EmbeddingsConfig {
            dropout: settings.dropout,
            ..EmbeddingsConfig::new(settings.vocab_size, settings.d_model)
        }
    }

    /// The encoder.
    pub fn encoder(&self) -> StackConfig {
        self.stack(self.settings.encoder_layers, Reach::Full, None)
    }

    /// The decoder.
    pub fn decoder(&self) -> StackConfig {
        let settings = &self.settings;
        let cross = CrossAttentionConfig {
            head_dim: settings.head_dim,
            scale: 1.0,
            dropout: settings.dropout,
            ..CrossAttentionConfig::new(settings.d_model, settings.heads)
        };
        self.stack(settings.decoder_layers, Reach::Causal, Some(cross))
    }

    fn stack(
        &self,
        n_layers: usize,
        reach: Reach,
        cross_attention: Option<CrossAttentionConfig>,
    ) -> StackConfig {
        let relative = RelativeConfig {
            positions: self.settings.relative_positions,
            both_directions: reach == Reach::Full,
        };
        StackConfig {
            relative: Some(relative),
            dropout: self.settings.dropout,
            ..StackConfig::new(n_layers, self.block(reach, cross_attention))
        }
    }

    fn block(&self, reach: Reach, cross_attention: Option<CrossAttentionConfig>) -> BlockConfig {
        let settings = &self.settings;
        let width = settings.feed_forward.width_for(settings.d_model);
        let feed_forward = FeedForwardConfig {
            kind: settings.feed_forward.kind,
            activation: settings.feed_forward.activation,
            dropout: settings.dropout,
            ..FeedForwardConfig::new(settings.d_model, width)
        };
        let attention = AttentionConfig {
            head_dim: settings.head_dim,
            mechanism: Mechanism::Softmax {
                reach,
                scale: 1.0,
                soft_cap: None,
                dropout: settings.dropout,
            },
            ..AttentionConfig::new(settings.d_model, settings.heads)
        };
        BlockConfig {
            cross_attention,
            norm: settings.norm,
            dropout: settings.dropout,
            ..BlockConfig::new(attention, feed_forward)
        }
    }

    /// The head.
    pub fn lm_head(&self) -> LmHeadConfig {
        let settings = &self.settings;
        let width = settings.d_model;
        let by_width = || settings.head.scaled.then(|| 1.0 / (width as f64).sqrt());
        LmHeadConfig {
            tied: settings.head.tied,
            bias: settings.head.bias,
            scale: settings.head.scale.or_else(by_width),
            soft_cap: settings.head.soft_cap,
            ..LmHeadConfig::new(settings.vocab_size, width)
        }
    }

    /// Number of parameters; [`crate::transformer::count::encoder_decoder_table`] has those of each component.
    pub fn parameters(&self) -> u128 {
        let counts = encoder_decoder_counts(self);
        counts.iter().map(|count| count.total()).sum()
    }
}
