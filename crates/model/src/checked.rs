//! A configuration that is a model, and the components that it describes. `rules` are what makes it one.

mod rules;

use emberlm_kernels::{Activation, Reach};

use crate::attention::{AttentionConfig, Mechanism, default_scale};
use crate::block::BlockConfig;
use crate::config::{
    AttentionKind, Biases, DropoutSite, Family, FeedForward, Head, Init, ModelConfig, Norm,
    Position, Window, Wiring,
};
use crate::embeddings::EmbeddingsConfig;
use crate::error::InputError;
use crate::feed_forward::FeedForwardConfig;
use crate::lm_head::LmHeadConfig;
use crate::position::{AddedPositionsConfig, RotaryConfig};
use crate::stack::StackConfig;

/// A configuration that is a model: every size is set, every rule holds. [`DecoderConfig::try_from`] makes one;
/// [`DecoderConfig::embeddings`], [`DecoderConfig::stack`] and [`DecoderConfig::lm_head`] are its components.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct DecoderConfig {
    /// The published family it stems from.
    pub family: Family,
    /// Number of token ids.
    pub vocab_size: usize,
    /// The longest sequence, in tokens.
    pub seq_len: usize,
    /// Width of the residual stream.
    pub d_model: usize,
    /// Number of blocks.
    pub n_layers: usize,
    /// Query heads per block.
    pub heads: usize,
    /// Key-value heads per block.
    pub kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// True if queries and keys are normalized per head.
    pub qk_norm: bool,
    /// Probability of dropping an element while training.
    pub dropout: f64,
    /// The sites of dropout.
    pub dropout_sites: Vec<DropoutSite>,
    /// True if the embeddings are multiplied by √d_model.
    pub scale_embedding: bool,
    /// True if the embeddings are normalized before the first block.
    pub norm_embedding: bool,
    /// Which linear layers have a bias.
    pub bias: Biases,
    /// The attention, its default features filled in.
    pub attention: AttentionKind,
    /// The normalization.
    pub norm: Norm,
    /// The positions, their default dims filled in.
    pub position: Position,
    /// The feed-forward layer, its default width filled in.
    pub feed_forward: FeedForward,
    /// The order of sublayers and norms in a block.
    pub wiring: Wiring,
    /// The output projection.
    pub head: Head,
    /// Weight initialization.
    pub init: Init,
}

impl DecoderConfig {
    /// The configuration as it is written to files, with its defaults filled in.
    pub fn raw(&self) -> ModelConfig {
        let Self {
            family,
            vocab_size,
            seq_len,
            d_model,
            n_layers,
            heads,
            kv_heads,
            head_dim,
            qk_norm,
            dropout,
            dropout_sites,
            scale_embedding,
            norm_embedding,
            bias,
            attention,
            norm,
            position,
            feed_forward,
            wiring,
            head,
            init,
        } = self.clone();
        ModelConfig {
            family,
            vocab_size: Some(vocab_size),
            seq_len,
            d_model,
            n_layers,
            heads,
            kv_heads: Some(kv_heads),
            head_dim: Some(head_dim),
            qk_norm,
            dropout,
            dropout_sites,
            scale_embedding,
            norm_embedding,
            bias,
            attention,
            norm,
            position,
            feed_forward,
            wiring,
            head,
            init,
        }
    }

    /// The embeddings.
    pub fn embeddings(&self) -> EmbeddingsConfig {
        let seq_len = self.seq_len;
        EmbeddingsConfig {
            vocab_size: self.vocab_size,
            d_model: self.d_model,
            positions: match self.position {
                Position::Learned => AddedPositionsConfig::Learned { seq_len },
                Position::Sinusoidal => AddedPositionsConfig::Sinusoidal { seq_len },
                Position::Rotary { .. } | Position::None => AddedPositionsConfig::None,
            },
            scale: self.scale_embedding,
            norm: self.norm_embedding.then_some(self.norm),
            dropout: self.dropout_at(DropoutSite::Embedding),
        }
    }

    /// The blocks.
    pub fn stack(&self) -> StackConfig {
        StackConfig {
            n_layers: self.n_layers,
            block: BlockConfig {
                attention: self.attention(),
                feed_forward: self.feed_forward(),
                norm: self.norm,
                wiring: self.wiring,
                dropout: self.dropout_at(DropoutSite::Residual),
            },
            full_layers: self
                .window()
                .map_or_else(Vec::new, |window| window.full_layers.layers(self.n_layers)),
            rotary: self.rotary(),
            final_norm: true,
        }
    }

    /// The language-model head.
    pub fn lm_head(&self) -> LmHeadConfig {
        LmHeadConfig {
            vocab_size: self.vocab_size,
            d_model: self.d_model,
            tied: self.head.tied,
            bias: self.head.bias,
            scale: self.logit_scale(),
            soft_cap: self.head.soft_cap,
        }
    }

    /// The attention of a block, which [`DecoderConfig::attention_of`] says for each.
    fn attention(&self) -> AttentionConfig {
        AttentionConfig {
            d_model: self.d_model,
            heads: self.heads,
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
            qkv_bias: self.bias.qkv,
            out_bias: self.bias.attention_out,
            qk_norm: self.qk_norm.then_some(self.norm),
            mechanism: match &self.attention {
                AttentionKind::Softmax {
                    window,
                    scale,
                    soft_cap,
                } => Mechanism::Softmax {
                    reach: match window {
                        Some(window) => Reach::Window {
                            tokens: window.tokens,
                            global_tokens: window.global_tokens,
                        },
                        None => Reach::Causal,
                    },
                    scale: scale.unwrap_or_else(|| default_scale(self.head_dim)),
                    soft_cap: *soft_cap,
                    dropout: self.dropout_at(DropoutSite::Attention),
                },
                AttentionKind::Linear { features, seed } => Mechanism::Linear {
                    features: features.unwrap_or_else(|| self.head_dim.saturating_mul(4)),
                    seed: *seed,
                    stream: 0,
                },
            },
        }
    }

    /// The attention of block `layer`.
    pub fn attention_of(&self, layer: usize) -> AttentionConfig {
        self.stack().attention(layer)
    }

    /// The feed-forward layer of a block.
    pub fn feed_forward(&self) -> FeedForwardConfig {
        FeedForwardConfig {
            d_model: self.d_model,
            width: self.feed_forward_width(),
            kind: self.feed_forward.kind,
            activation: self.feed_forward.activation,
            bias: self.bias.feed_forward,
            dropout: self.dropout_at(DropoutSite::Hidden),
        }
    }

    /// The rotation of queries and keys.
    pub fn rotary(&self) -> Option<RotaryConfig> {
        match self.position {
            Position::Rotary {
                dims,
                base,
                layout,
                scaling,
            } => Some(RotaryConfig {
                seq_len: self.seq_len,
                dims: dims.unwrap_or(self.head_dim),
                base,
                layout,
                scaling,
            }),
            Position::Learned | Position::Sinusoidal | Position::None => None,
        }
    }

    /// Hidden elements of the feed-forward layer.
    pub fn feed_forward_width(&self) -> usize {
        self.feed_forward.width_for(self.d_model)
    }

    /// The feed-forward layer's activation.
    pub fn activation(&self) -> Activation {
        self.feed_forward.activation
    }

    /// The norms' ε.
    pub fn norm_epsilon(&self) -> f64 {
        self.norm.epsilon()
    }

    /// The sliding window.
    pub fn window(&self) -> Option<&Window> {
        match &self.attention {
            AttentionKind::Softmax { window, .. } => window.as_ref(),
            AttentionKind::Linear { .. } => None,
        }
    }

    /// The number of the newest tokens that the attention of block `layer` sees; none where it sees all.
    pub fn window_of(&self, layer: usize) -> Option<usize> {
        let window = self.window()?;
        (!window.full_layers.contains(layer)).then_some(window.tokens)
    }

    /// The factor of the logits.
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

    /// Returns true if the model can take `tokens` at once.
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
