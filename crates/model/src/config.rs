//! Model configuration as written by the user: sizes and one variant per component. [`crate::checked`] holds the rules.

mod attention;
mod derived;
mod legacy;

pub use attention::{AttentionKind, FullLayers, Window};
pub use derived::DerivedSize;

use documented::DocumentedFields;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use emberlm_kernels::{Activation, RotaryLayout};

/// A decoder as written in a configuration file, not yet checked. Keys of earlier versions are read too.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, DocumentedFields)]
#[serde(remote = "Self", deny_unknown_fields)]
pub struct ModelConfig {
    /// The published family it stems from, whose tensor names exchanged weights have: "pocket", "vanilla", "prenorm", "cs336", "gpt2", "gptj", "gpt_neox", "llama", "mistral", "qwen2", "qwen3", "gemma2" or "palm".
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
    /// Probability of dropping an element while training.
    pub dropout: f64,
    /// Where dropout acts: "embedding", "attention" (its weights), "hidden" (after the activation), "residual" (the output of a sublayer).
    pub dropout_sites: Vec<DropoutSite>,
    /// Multiply the embeddings by √d_model before positions are added.
    #[serde(default)]
    pub scale_embedding: bool,
    /// Normalize the embeddings before the first block.
    pub norm_embedding: bool,
    /// Which linear layers have a bias.
    pub bias: Biases,
    /// The attention: kind "softmax" { window { tokens, global_tokens, full_layers }, scale (default 1/√head_dim), soft_cap } or "linear" { features (default 4 · head_dim), seed }, a random estimate of it at a cost linear in the sequence.
    #[serde(default)]
    pub attention: AttentionKind,
    /// The normalization: kind "layer" { bias, epsilon }, "rms" { epsilon }, "offset_rms" { epsilon } (gain 1 + w) or "unit_rms" { epsilon } (no parameters, epsilon outside of the root).
    pub norm: Norm,
    /// The positions: kind "learned", "sinusoidal", "rotary" { dims (default: the whole head), base, layout "half_split" or "interleaved", scaling } or "none".
    pub position: Position,
    /// The feed-forward layer: kind "dense" or "gated", activation "relu", "relu_squared", "gelu", "gelu_tanh" or "silu", and its hidden width (default expansion · d_model) or its expansion (default 4).
    pub feed_forward: FeedForward,
    /// The order of sublayers and norms in a block: kind "pre_norm", "post_norm", "sandwich" or "parallel" { shared_norm }.
    pub wiring: Wiring,
    /// The output projection: tied to the embedding or not, with or without bias, scaled by 1/√d_model or not, soft_cap (default none).
    pub head: Head,
    /// Weight initialization: kind "normal" { std, scale_residual }, "fan_in" (PyTorch's defaults), "le_cun", "truncated_xavier" or "small".
    pub init: Init,
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
        ModelConfig::deserialize(Value::Object(fields)).map_err(D::Error::custom)
    }
}

/// A published family of models; [`crate::families`] holds what each is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Family {
    /// PocketTransformer.
    Pocket,
    /// The decoder of "Attention Is All You Need".
    Vanilla,
    /// The same with its norms first, learned positions and GELU.
    Prenorm,
    /// Stanford CS336's.
    Cs336,
    /// GPT-2.
    Gpt2,
    /// GPT-J.
    Gptj,
    /// GPT-NeoX and Pythia.
    GptNeox,
    /// LLaMA, its second and third version too.
    Llama,
    /// Mistral 7B.
    Mistral,
    /// Qwen2 and Qwen2.5.
    Qwen2,
    /// Qwen3's dense models.
    Qwen3,
    /// Gemma 2.
    Gemma2,
    /// PaLM.
    Palm,
}

/// A normalization with its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Norm {
    /// LayerNorm (Ba et al. 2016) with a gain, and a bias or not.
    Layer {
        /// True if it has a bias.
        bias: bool,
        /// Added to the variance.
        epsilon: f64,
    },
    /// RMSNorm (Zhang and Sennrich 2019) with a gain.
    Rms {
        /// Added to the mean square.
        epsilon: f64,
    },
    /// RMSNorm with the gain `1 + w`, where `w` starts at 0 (Gemma).
    OffsetRms {
        /// Added to the mean square.
        epsilon: f64,
    },
    /// RMSNorm without parameters, ε outside of the root.
    UnitRms {
        /// Added to the root of the mean square.
        epsilon: f64,
    },
}

impl Norm {
    /// Its ε.
    pub const fn epsilon(self) -> f64 {
        match self {
            Self::Layer { epsilon, .. }
            | Self::Rms { epsilon }
            | Self::OffsetRms { epsilon }
            | Self::UnitRms { epsilon } => epsilon,
        }
    }
}

/// How a token's position enters.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Position {
    /// A learned vector per position, added to the embedding.
    Learned,
    /// The fixed sines and cosines of Vaswani et al. 2017, added to the embedding.
    Sinusoidal,
    /// Rotated queries and keys (Su et al. 2021).
    Rotary {
        /// How many elements of a head are rotated, rounded up to whole pairs; by default all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        dims: Option<usize>,
        /// The base of the frequencies `base^(-2i/dims)`.
        base: f64,
        /// Which elements form a pair.
        layout: RotaryLayout,
        /// A change of the frequencies for longer contexts.
        #[serde(default)]
        scaling: RotaryScaling,
    },
    /// None: order is known from the causal mask alone.
    None,
}

/// A change of the rotary frequencies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum RotaryScaling {
    /// The frequencies as they are.
    #[default]
    None,
    /// All divided by a factor (Chen et al. 2023, "position interpolation").
    Linear {
        /// The divisor.
        factor: f64,
    },
    /// LLaMA 3.1's: long wavelengths divided, short ones kept, a smooth ramp between.
    Llama3 {
        /// The divisor of the longest wavelengths.
        factor: f64,
        /// Wavelengths above `original_seq_len / low_frequency_factor` are divided in full.
        low_frequency_factor: f64,
        /// Wavelengths below `original_seq_len / high_frequency_factor` are kept.
        high_frequency_factor: f64,
        /// The context that the frequencies were trained for.
        original_seq_len: usize,
    },
}

/// The feed-forward layer of a block.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FeedForward {
    /// Gated or not.
    pub kind: FeedForwardKind,
    /// `f`.
    pub activation: Activation,
    /// Hidden elements; by default `expansion · d_model`, rounded to a whole number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub width: Option<usize>,
    /// Hidden elements per element of `d_model`, where `width` is not set; by default 4.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expansion: Option<f64>,
}

impl FeedForward {
    /// `down(f(up(x)))`, of the default width.
    pub const fn dense(activation: Activation) -> Self {
        Self {
            kind: FeedForwardKind::Dense,
            activation,
            width: None,
            expansion: None,
        }
    }

    /// `down(f(gate(x)) · up(x))`, of the default width.
    pub const fn gated(activation: Activation) -> Self {
        Self {
            kind: FeedForwardKind::Gated,
            activation,
            width: None,
            expansion: None,
        }
    }

    /// The same with a hidden width.
    pub const fn with_width(self, width: usize) -> Self {
        Self {
            width: Some(width),
            ..self
        }
    }

    /// The same with a hidden width that follows `d_model`.
    pub const fn with_expansion(self, expansion: f64) -> Self {
        Self {
            expansion: Some(expansion),
            ..self
        }
    }
}

/// True if a feed-forward layer is gated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FeedForwardKind {
    /// `down(f(up(x)))`.
    Dense,
    /// `down(f(gate(x)) · up(x))` (Shazeer 2020).
    Gated,
}

/// How a block is wired; [`crate::Decoder`]'s blocks draw each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Wiring {
    /// `x + f(norm(x))`, a norm after the last block.
    PreNorm,
    /// `norm(x + f(x))`, a norm after the last block.
    PostNorm,
    /// `x + norm(f(norm(x)))`, four norms a block (Gemma 2), a norm after the last block.
    Sandwich,
    /// `x + attention(norm(x)) + feed_forward(norm(x))`, a norm after the last block.
    Parallel {
        /// One norm for both or one each.
        shared_norm: bool,
    },
}

/// Which linear maps have a bias.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Biases {
    /// The queries', keys' and values' projection.
    pub qkv: bool,
    /// The attention's output projection.
    pub attention_out: bool,
    /// The feed-forward's maps.
    pub feed_forward: bool,
}

impl Biases {
    /// A bias on all of them, or on none.
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
    /// True if the embedding's weight serves as the projection.
    pub tied: bool,
    /// True if it has a bias.
    pub bias: bool,
    /// True if logits are multiplied by 1/√d_model, before a bias is added.
    #[serde(default)]
    pub scaled: bool,
    /// Bounds logits to ±cap by `cap · tanh(logits / cap)`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub soft_cap: Option<f64>,
}

/// A place where dropout can act.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DropoutSite {
    /// The embeddings.
    Embedding,
    /// The attention's weights, after the softmax.
    Attention,
    /// The feed-forward's hidden elements, after the activation.
    Hidden,
    /// What a sublayer adds to the residual stream.
    Residual,
}

/// How the first weights are drawn. Gains start at 1, norms' biases at 0.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Init {
    /// `N(0, std²)` for embeddings and maps, biases 0; with `scale_residual` the maps into the residual stream take
    /// `std / √(2 · n_layers)` (Radford et al. 2019).
    Normal {
        /// The standard deviation.
        std: f64,
        /// True if maps into the residual stream start smaller.
        scale_residual: bool,
    },
    /// PyTorch's defaults: embeddings `N(0, 1)`, maps and their biases uniform in `±1/√fan_in`.
    FanIn,
    /// Maps `N(0, 1/fan_in)`, embeddings `N(0, 1)`, biases 0 (Chowdhery et al. 2022, section 5).
    LeCun,
    /// Every table and map `N(0, 2/(rows + columns))`, cut at three standard deviations, biases 0 (Glorot and Bengio
    /// 2010).
    TruncatedXavier,
    /// `N(0, 2/(5 · d_model))` (Nguyen and Salazar 2019), maps into the residual stream with the standard deviation
    /// `2/(n_layers · √d_model)` (Wang and Komatsuzaki 2021), biases 0.
    Small,
}
