//! The configurations of the components of a model.

use emberlm_kernels::Reach;

use super::TransformerConfig;
use crate::config::{Architecture, AttentionKind, DropoutSite, ModelKind, Position, Wiring};
use crate::nn::attention::{AttentionConfig, Mechanism, default_scale};
use crate::nn::block::BlockConfig;
use crate::nn::cross_attention::CrossAttentionConfig;
use crate::nn::embeddings::EmbeddingsConfig;
use crate::nn::feed_forward::FeedForwardConfig;
use crate::nn::lm_head::LmHeadConfig;
use crate::nn::mixture::MixtureConfig;
use crate::nn::position::{AddedPositionsConfig, RotaryConfig};
use crate::nn::relative_bias::RelativeConfig;
use crate::nn::routing::RoutingRule;
use crate::nn::stack::{LayerRotaryConfig, StackConfig};
use crate::nn::value_embedding::ValueEmbeddingConfig;

impl TransformerConfig {
    /// Configuration of the embeddings.
    pub fn embeddings(&self) -> EmbeddingsConfig {
        let seq_len = self.filled.seq_len + self.first_position();
        EmbeddingsConfig {
            vocab_size: self.vocab_size,
            d_model: self.filled.d_model,
            positions: match self.filled.position {
                Position::Learned => AddedPositionsConfig::Learned { seq_len },
                Position::Sinusoidal => AddedPositionsConfig::Sinusoidal { seq_len },
                Position::Rotary { .. }
                | Position::Alibi
                | Position::Relative(_)
                | Position::None => AddedPositionsConfig::None,
            },
            segments: match self.filled.architecture {
                Architecture::Encoder { segments, .. } => segments,
                Architecture::Decoder | Architecture::EncoderDecoder { .. } => 0,
            },
            scale: self.embedding_scale(),
            norm: self.filled.norm_embedding.then_some(self.filled.norm),
            dropout: self.dropout_at(DropoutSite::Embedding),
        }
    }

    /// The stack whose output the head reads: the decoder, or else the encoder.
    pub fn stack(&self) -> StackConfig {
        match self.kind() {
            ModelKind::Encoder => self.encoder_stack(self.filled.n_layers),
            ModelKind::Decoder => self.stack_of(self.filled.n_layers, false, None),
            ModelKind::EncoderDecoder => {
                let cross = CrossAttentionConfig {
                    head_dim: self.head_dim,
                    scale: self.score_scale(),
                    dropout: self.dropout_at(DropoutSite::Attention),
                    ..CrossAttentionConfig::new(self.filled.d_model, self.filled.heads)
                };
                self.stack_of(self.filled.n_layers, false, Some(cross))
            }
        }
    }

    /// The encoder of an encoder–decoder.
    pub fn source_stack(&self) -> Option<StackConfig> {
        match self.filled.architecture {
            Architecture::EncoderDecoder { encoder_layers, .. } => {
                Some(self.encoder_stack(encoder_layers))
            }
            Architecture::Decoder | Architecture::Encoder { .. } => None,
        }
    }

    /// All stacks in the order of the forward pass.
    pub fn stacks(&self) -> Vec<StackConfig> {
        let source = self.source_stack().into_iter();
        source.chain([self.stack()]).collect()
    }

    fn encoder_stack(&self, n_layers: usize) -> StackConfig {
        let first_norm = match self.filled.architecture {
            Architecture::Encoder { first_norm, .. } => first_norm,
            Architecture::Decoder | Architecture::EncoderDecoder { .. } => true,
        };
        StackConfig {
            first_norm,
            // Post-norm blocks end with a norm.
            final_norm: self.kind() != ModelKind::Encoder || self.filled.wiring != Wiring::PostNorm,
            ..self.stack_of(n_layers, true, None)
        }
    }

    /// A stack whose tokens attend to those on both sides, or a causal one.
    fn stack_of(
        &self,
        n_layers: usize,
        both_directions: bool,
        cross_attention: Option<CrossAttentionConfig>,
    ) -> StackConfig {
        let attention = self.block_attention(both_directions);
        let block = BlockConfig {
            cross_attention,
            experts: self.mixture(),
            norm: self.filled.norm,
            wiring: self.filled.wiring,
            mix: self.filled.residual_mix,
            residual_scale: self.filled.residual_scale,
            dropout: self.dropout_at(DropoutSite::Residual),
            ..BlockConfig::new(attention, self.block_feed_forward())
        };
        let relative = match self.filled.position {
            Position::Relative(positions) => Some(RelativeConfig {
                positions,
                both_directions,
            }),
            _ => None,
        };
        StackConfig {
            full_layers: self
                .window()
                .map_or_else(Vec::new, |window| window.full_layers.layers(n_layers)),
            dense_layers: self
                .experts()
                .map_or_else(Vec::new, |experts| experts.dense_layers.clone()),
            value_layers: self
                .value_embeddings()
                .map_or_else(Vec::new, |values| values.layers.layers(n_layers)),
            delta: self.delta_layers(),
            rotary: self.rotary(),
            layer_rotary: self.layer_rotary(),
            relative,
            dropout: match self.kind() {
                ModelKind::EncoderDecoder => self.dropout_at(DropoutSite::Residual),
                ModelKind::Decoder | ModelKind::Encoder => 0.0,
            },
            ..StackConfig::new(n_layers, block)
        }
    }

    /// Configuration of the language-model head.
    pub fn lm_head(&self) -> LmHeadConfig {
        LmHeadConfig {
            vocab_size: self.vocab_size,
            d_model: self.filled.d_model,
            tied: self.filled.head.tied,
            bias: self.filled.head.bias,
            scale: self.logit_scale(),
            soft_cap: self.filled.head.soft_cap,
        }
    }

    /// Attention settings common to all blocks; [`StackConfig::attention`] adds those of each block.
    fn block_attention(&self, both_directions: bool) -> AttentionConfig {
        AttentionConfig {
            d_model: self.filled.d_model,
            heads: self.filled.heads,
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
            qkv_bias: self.filled.bias.qkv,
            out_bias: self.filled.bias.attention_out,
            qk_norm: self.filled.qk_norm.then_some(self.filled.norm),
            qk_norm_span: self.filled.qk_norm_span,
            values: self.value_embeddings().map(|values| ValueEmbeddingConfig {
                vocab_size: self.vocab_size,
                gate_inputs: values.gate_inputs_for(self.filled.d_model),
            }),
            alibi: self.filled.position == Position::Alibi,
            gated: self.filled.gated_attention,
            latent: self.latent(),
            mechanism: match &self.filled.attention {
                AttentionKind::Softmax {
                    window,
                    soft_cap,
                    sinks,
                    ..
                } => Mechanism::Softmax {
                    reach: match window {
                        Some(window) if both_directions => Reach::Local {
                            distance: window.tokens,
                        },
                        Some(window) => Reach::Window {
                            tokens: window.tokens,
                            global_tokens: window.global_tokens,
                        },
                        None if both_directions => Reach::Full,
                        None => Reach::Causal,
                    },
                    scale: self.score_scale(),
                    soft_cap: *soft_cap,
                    sinks: *sinks,
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

    /// Factor on the scores of a softmax.
    fn score_scale(&self) -> f64 {
        let scale = match self.filled.attention {
            AttentionKind::Softmax { scale, .. } => scale,
            AttentionKind::Linear { .. } => None,
        };
        scale.unwrap_or_else(|| default_scale(self.head_dim))
    }

    /// The feed-forward layer of a block.
    fn block_feed_forward(&self) -> FeedForwardConfig {
        FeedForwardConfig {
            d_model: self.filled.d_model,
            width: self.feed_forward_width(),
            kind: self.filled.feed_forward.kind,
            activation: self.filled.feed_forward.activation,
            bias: self.filled.bias.feed_forward,
            dropout: self.dropout_at(DropoutSite::Hidden),
        }
    }

    /// The mixture of experts of a block.
    fn mixture(&self) -> Option<MixtureConfig> {
        let experts = self.experts()?;
        let feed_forward = self.block_feed_forward();
        let expert = FeedForwardConfig {
            width: experts.width.unwrap_or(feed_forward.width),
            ..feed_forward
        };
        Some(MixtureConfig {
            routing: RoutingRule {
                active: experts.active,
                scores: experts.scores,
                normalize: experts.normalize,
                groups: experts.groups,
                scale: experts.scale,
            },
            choice_bias: experts.choice_bias,
            shared_width: experts.shared_width,
            shared_gate: experts.shared_gate,
            ..MixtureConfig::new(expert, experts.count, experts.active)
        })
    }

    /// Rotation of queries and keys, if any.
    pub fn rotary(&self) -> Option<RotaryConfig> {
        match &self.filled.position {
            Position::Rotary {
                dims,
                base,
                layout,
                scaling,
            } => Some(RotaryConfig {
                seq_len: self.filled.seq_len,
                dims: dims.unwrap_or(self.head_dim),
                base: *base,
                layout: *layout,
                scaling: scaling.clone(),
            }),
            Position::Learned
            | Position::Sinusoidal
            | Position::Alibi
            | Position::Relative(_)
            | Position::None => None,
        }
    }

    /// The rotation of blocks with other positions, if any.
    fn layer_rotary(&self) -> Option<LayerRotaryConfig> {
        let positions = self.filled.layer_positions.as_ref()?;
        let layers = self.filled.n_layers;
        Some(LayerRotaryConfig::of(positions, layers, self.rotary()))
    }
}
