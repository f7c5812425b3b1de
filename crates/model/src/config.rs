//! Model configuration as written by the user: sizes and one variant per component. [`crate::transformer::checked`] holds the rules.

mod additions;
mod architecture;
mod attention;
pub(crate) mod base;
pub mod choices;
mod delta_nets;
mod derived;
pub(crate) mod difference;
mod experts;
mod family;
mod heads;
mod latent_attention;
mod legacy;
pub(crate) mod limits;
mod positions;
mod size_ratio;
mod tiny;

pub use additions::{ResidualMix, ValueEmbeddings, ZeroInit};
pub use architecture::{Architecture, ModelKind};
pub use attention::{AttentionKind, FullLayers, QkNormSpan, Window};
pub use delta_nets::DeltaNets;
pub use derived::DerivedSize;
pub use experts::{ExpertGroups, ExpertScores, Experts};
pub use family::Family;
pub use heads::{
    EncoderHeadConfig, PooledActivation, Pooling, ProblemType, TokenLayer, most_probable,
};
pub use latent_attention::LatentAttention;
pub use positions::{LayerPositions, RelativePositions, RotaryScaling};
pub use size_ratio::SizeRatio;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use emberlm_kernels::{Activation, RotaryLayout};

/// Configuration of a model as written in a file, not yet checked. Keys of earlier versions are accepted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "documented", derive(documented::DocumentedFields))]
#[serde(remote = "Self", deny_unknown_fields)]
pub struct ModelConfig {
    /// The published family; it determines the tensor names of exchanged weights: "pocket", "vanilla", "prenorm", "cs336", "gpt2", "gptj", "gpt_neox", "llama", "mistral", "mixtral", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "olmoe", "gemma2", "olmo2", "olmo3", "smollm3", "phi3", "granite", "gemma3_text", "starcoder2", "cohere", "glm4", "bloom", "falcon", "gpt_oss", "qwen3_next", "qwen3_5_text", "deepseek_v2", "deepseek_v3", "glm4_moe", "glm4_moe_lite" or "palm".
    pub family: Family,
    /// Number of token ids; by default the dataset's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vocab_size: Option<usize>,
    /// The longest sequence, in tokens.
    pub seq_len: usize,
    /// Width of the residual stream.
    pub d_model: usize,
    /// Number of blocks.
    pub n_layers: usize,
    /// Query heads per block.
    pub heads: usize,
    /// Key-value heads per block, each for heads / kv_heads query heads; by default heads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_heads: Option<usize>,
    /// Width of a head; by default d_model / heads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head_dim: Option<usize>,
    /// Normalize queries and keys per head before attention, with the model's norm.
    pub qk_norm: bool,
    /// The elements that one norm of queries or keys covers: "head" (each head) or "projection" (all heads together, with a gain for each element); by default "head".
    #[serde(default, skip_serializing_if = "QkNormSpan::is_head")]
    pub qk_norm_span: QkNormSpan,
    /// Probability of dropping an element during training.
    pub dropout: f64,
    /// The sites of dropout: "embedding", "attention" (its weights), "hidden" (after the activation), "residual" (the output of a sublayer).
    pub dropout_sites: Vec<DropoutSite>,
    /// Multiply the embeddings by √d_model before positions are added.
    #[serde(default)]
    pub scale_embedding: bool,
    /// Factor on the embeddings instead of √d_model; by default none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub embedding_scale: Option<f64>,
    /// Factor on the output of each sublayer before it is added to the residual stream; by default none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub residual_scale: Option<f64>,
    /// Learned factors of each block's input, a · stream + b · embeddings, in a decoder: { stream (a at the start, default 1), embedding (b at the start, default 0.1) }; by default none (modded-nanogpt).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub residual_mix: Option<ResidualMix>,
    /// Value embeddings of a decoder: in some blocks a vector of each token, times a gate per key-value head, is added to its values: { layers (a list or { every = 2 }, the default), gate_inputs (default 32) }; by default none (Zhou et al. 2024, nanochat).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_embeddings: Option<ValueEmbeddings>,
    /// Normalize the embeddings before the first block.
    pub norm_embedding: bool,
    /// The linear layers that have a bias: { qkv, attention_out, feed_forward }, or true or false for all three.
    pub bias: Biases,
    /// The attention: kind "softmax" { window { tokens, global_tokens, full_layers }, scale (default 1/√head_dim), soft_cap, sinks (default false) } or "linear" { features (default 4 · head_dim), seed }, an estimate by random features whose cost is linear in the sequence length.
    #[serde(default)]
    pub attention: AttentionKind,
    /// Multiply the output of the attention's heads by σ(gate(x)), with another projection of its input (Qiu et al. 2025).
    #[serde(default, skip_serializing_if = "choices::is_no")]
    pub gated_attention: bool,
    /// Gated delta nets in place of the attention in a decoder's blocks, except in full_layers: { key_heads (default heads), value_heads (a multiple of key_heads; default key_heads), key_dim (default head_dim), value_dim (default key_dim), taps (of the convolutions; default 4), full_layers (a list or { every = 4 }, the default) }; by default none (Yang et al. 2024).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delta_nets: Option<DeltaNets>,
    /// Keys and values computed from a latent vector of each token, which is what the cache holds, in a decoder: { rank (width of the latents), query_rank (width of latents of the queries; default none), rope_dim (the last elements of a head, which are rotated; those of keys are the same in all heads; default head_dim / 2), value_dim (width of a head of values; default head_dim) }; by default none (DeepSeek-AI 2024).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latent_attention: Option<LatentAttention>,
    /// The normalization: kind "layer" { bias (default true), epsilon }, "rms" { epsilon }, "offset_rms" { epsilon } (gain 1 + w) or "unit_rms" { epsilon } (no parameters, epsilon outside of the root); epsilon is 1e-5 by default.
    pub norm: Norm,
    /// The positions: kind "learned", "sinusoidal", "rotary" { dims (default: the whole head), base (default 10000), layout "half_split" (default) or "interleaved", scaling { kind "none" (default), "linear", "llama3", "dynamic", "yarn" or "longrope" } }, "alibi", "relative" { buckets (default 32), max_distance (default 128) } or "none".
    pub position: Position,
    /// Positions of some blocks that differ from the rotary ones of `position`: kind "none" { layers } or "rotary" { layers, base (default 10000), scaling }; layers is a list or { every = 4 } (default).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layer_positions: Option<LayerPositions>,
    /// The feed-forward layer: kind "dense" or "gated", activation "relu", "relu_squared", "gelu", "gelu_tanh" or "silu", and its hidden width (default expansion · d_model) or its expansion (default 4).
    pub feed_forward: FeedForward,
    /// A mixture of experts in place of the feed-forward layer, whose kind and activation its experts have; 0 for none: count (default 8), active (experts per token, default 2), width (default feed_forward's), normalize (divide the weights of a token's experts by their sum, as a softmax over only the chosen logits does), scores ("softmax", the default, or "sigmoid" of the router's outputs), choice_bias (add a number per expert to the scores for the choice only; default false), groups { count, active } (choose among the experts of the best groups only; default none), scale (factor on the weights; default none), shared_width (an expert of every token; default none), shared_gate (weight it by a sigmoid gate; default true), balance_loss and z_loss (coefficients of the router's losses in training; default 0), dense_layers (blocks that keep the feed-forward layer).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub experts: Option<Experts>,
    /// The order of sublayers and norms in a block: kind "pre_norm", "post_norm", "output_norm", "sandwich" or "parallel" { shared_norm (default false) }.
    pub wiring: Wiring,
    /// The output projection: tied to the embedding or not, with or without bias, scaled by 1/√d_model or by scale (default none), soft_cap (default none).
    pub head: Head,
    /// Weight initialization: kind "normal" { std (default 0.02), scale_residual (default false) }, "fan_in" (PyTorch's defaults), "le_cun", "truncated_xavier", "small" or "t5" { factor (default 1) }.
    pub init: Init,
    /// Linear layers that start with zeros instead: "head" (an untied one), "residual" (those that write to the residual stream).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub zero_init: Vec<ZeroInit>,
    /// The stacks: kind "decoder" (the default), "encoder" { segments (BERT's token types, default 0), first_position (row of a text's first token in the table of learned positions, default 0), first_norm (default true), attention_dropout (default 0), head } or "encoder_decoder" { encoder_layers (default n_layers, which are the decoder's), start_token (begins every target), padding_token (stands for ignored labels) }.
    #[serde(default, skip_serializing_if = "Architecture::is_decoder")]
    pub architecture: Architecture,
}

impl ModelConfig {
    /// The kind of model.
    pub fn kind(&self) -> ModelKind {
        self.architecture.kind()
    }

    /// The configuration with enough token ids for its other settings, if their number is unset or 0, to check those before
    /// the data is known.
    pub fn with_any_vocabulary(&self) -> Self {
        let mut config = self.clone();
        let set = config.vocab_size.filter(|&size| size > 0);
        config.vocab_size = set.or(Some(match config.architecture {
            Architecture::EncoderDecoder {
                start_token,
                padding_token,
                ..
            } => (start_token.max(padding_token) as usize).saturating_add(1),
            Architecture::Decoder | Architecture::Encoder { .. } => 1,
        }));
        config
    }
}

impl Serialize for ModelConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // The derived function: `remote` makes it an inherent one.
        ModelConfig::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for ModelConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut fields: Map<String, Value> = Deserialize::deserialize(deserializer)?;
        legacy::upgrade(&mut fields).map_err(D::Error::custom)?;
        choices::complete(&mut fields);
        ModelConfig::deserialize(Value::Object(fields)).map_err(D::Error::custom)
    }
}

/// Normalization and its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Norm {
    /// LayerNorm (Ba et al. 2016) with a gain and an optional bias.
    Layer {
        /// True if it has a bias; by default true.
        #[serde(default = "choices::yes")]
        bias: bool,
        /// Added to the variance; by default 1e-5.
        #[serde(default = "choices::epsilon")]
        epsilon: f64,
    },
    /// RMSNorm (Zhang and Sennrich 2019) with a gain.
    Rms {
        /// Added to the mean square; by default 1e-5.
        #[serde(default = "choices::epsilon")]
        epsilon: f64,
    },
    /// RMSNorm with the gain `1 + w`, where `w` starts at 0 (Gemma).
    OffsetRms {
        /// Added to the mean square; by default 1e-5.
        #[serde(default = "choices::epsilon")]
        epsilon: f64,
    },
    /// RMSNorm without parameters and with ε outside the root.
    UnitRms {
        /// Added to the root of the mean square; by default 1e-5.
        #[serde(default = "choices::epsilon")]
        epsilon: f64,
    },
}

impl Norm {
    /// The norm's ε.
    pub const fn epsilon(self) -> f64 {
        match self {
            Self::Layer { epsilon, .. }
            | Self::Rms { epsilon }
            | Self::OffsetRms { epsilon }
            | Self::UnitRms { epsilon } => epsilon,
        }
    }
}

/// Encoding of token positions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Position {
    /// A learned vector per position, added to the embedding.
    Learned,
    /// The fixed sines and cosines of Vaswani et al. 2017, added to the embedding.
    Sinusoidal,
    /// Rotated queries and keys (Su et al. 2021).
    Rotary {
        /// Number of rotated elements of a head, rounded up to an even number; by default all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        dims: Option<usize>,
        /// The base of the frequencies `base^(-2i/dims)`; by default 10,000.
        #[serde(default = "choices::rotary_base")]
        base: f64,
        /// Assignment of elements to pairs; by default half-split.
        #[serde(default = "choices::rotary_layout")]
        layout: RotaryLayout,
        /// Scaling of the frequencies for longer contexts.
        #[serde(default)]
        scaling: RotaryScaling,
    },
    /// Adds `-slope · distance` to the scores, with a fixed slope per head (Press et al. 2021, "ALiBi").
    Alibi,
    /// No encoding; only the causal mask conveys order.
    None,
    /// A bias of each head's scores by the distance of query and key (Raffel et al. 2020, T5).
    Relative(RelativePositions),
}

/// The feed-forward layer of a block.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FeedForward {
    /// Dense or gated.
    pub kind: FeedForwardKind,
    /// Activation function `f`.
    pub activation: Activation,
    /// Hidden width; by default `expansion · d_model`, rounded to an integer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub width: Option<usize>,
    /// Ratio of the hidden width to `d_model` if `width` is not set; by default 4.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expansion: Option<f64>,
}

impl FeedForward {
    /// `down(f(up(x)))` with the default width.
    pub const fn dense(activation: Activation) -> Self {
        Self {
            kind: FeedForwardKind::Dense,
            activation,
            width: None,
            expansion: None,
        }
    }

    /// `down(f(gate(x)) · up(x))` with the default width.
    pub const fn gated(activation: Activation) -> Self {
        Self {
            kind: FeedForwardKind::Gated,
            activation,
            width: None,
            expansion: None,
        }
    }

    /// Returns the layer with a fixed hidden width.
    pub const fn with_width(self, width: usize) -> Self {
        Self {
            width: Some(width),
            ..self
        }
    }

    /// Returns the layer with a hidden width proportional to `d_model`.
    pub const fn with_expansion(self, expansion: f64) -> Self {
        Self {
            expansion: Some(expansion),
            ..self
        }
    }
}

/// Structure of a feed-forward layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FeedForwardKind {
    /// `down(f(up(x)))`.
    Dense,
    /// `down(f(gate(x)) · up(x))` (Shazeer 2020).
    Gated,
}

/// Order of the sublayers and norms of a block; the source of `block.rs` has a diagram of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Wiring {
    /// `x + f(norm(x))`, with a norm after the last block.
    PreNorm,
    /// `norm(x + f(x))`, with a norm after the last block.
    PostNorm,
    /// `x + norm(f(x))`, with a norm after the last block (OLMo 2).
    OutputNorm,
    /// `x + norm(f(norm(x)))`: four norms per block (Gemma 2), with a norm after the last block.
    Sandwich,
    /// `x + attention(norm(x)) + feed_forward(norm(x))`, with a norm after the last block.
    Parallel {
        /// True if one norm serves both sublayers; by default each has its own.
        #[serde(default)]
        shared_norm: bool,
    },
}

/// Biases of the linear layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Biases {
    /// The projection to queries, keys and values.
    pub qkv: bool,
    /// The attention's output projection.
    pub attention_out: bool,
    /// The feed-forward layer's projections.
    pub feed_forward: bool,
}

impl Biases {
    /// A bias in every layer, or in none.
    pub const fn all(bias: bool) -> Self {
        Self {
            qkv: bias,
            attention_out: bias,
            feed_forward: bias,
        }
    }
}

/// The output projection.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// True if the projection shares the token embedding's weight.
    pub tied: bool,
    /// True if it has a bias.
    pub bias: bool,
    /// True if logits are multiplied by 1/√d_model, before a bias is added.
    #[serde(default)]
    pub scaled: bool,
    /// Factor on the logits instead of 1/√d_model, before a bias is added.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale: Option<f64>,
    /// Bounds logits to ±cap by `cap · tanh(logits / cap)`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub soft_cap: Option<f64>,
}

/// A site where dropout can act.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DropoutSite {
    /// The embeddings.
    Embedding,
    /// The attention weights, after the softmax.
    Attention,
    /// The feed-forward's hidden activations.
    Hidden,
    /// A sublayer's output, before it is added to the residual stream.
    Residual,
}

/// Weight initialization. Gains start at 1 and norm biases at 0.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Init {
    /// `N(0, std²)` for embeddings and linear layers, biases 0. With `scale_residual`, layers that write to the
    /// residual stream use `std / √(2 · n_layers)` (Radford et al. 2019).
    Normal {
        /// The standard deviation; by default 0.02.
        #[serde(default = "choices::std")]
        std: f64,
        /// True if layers that write to the residual stream start smaller; by default false.
        #[serde(default)]
        scale_residual: bool,
    },
    /// PyTorch's defaults: embeddings `N(0, 1)`, linear layers and their biases uniform in `±1/√fan_in`.
    FanIn,
    /// Linear layers `N(0, 1/fan_in)`, embeddings `N(0, 1)`, biases 0 (Chowdhery et al. 2022, section 5).
    LeCun,
    /// Every table and linear layer `N(0, 2/(rows + columns))`, truncated at three standard deviations, biases 0
    /// (Glorot and Bengio 2010).
    TruncatedXavier,
    /// `N(0, 2/(5 · d_model))` (Nguyen and Salazar 2019), layers that write to the residual stream with standard
    /// deviation `2/(n_layers · √d_model)` (Wang and Komatsuzaki 2021), biases 0.
    Small,
    /// T5's: [`Init::LeCun`] with queries divided by `√head_dim`, because the scores have no factor.
    T5 {
        /// Factor on all standard deviations; by default 1.
        #[serde(default = "choices::one")]
        factor: f64,
    },
}
