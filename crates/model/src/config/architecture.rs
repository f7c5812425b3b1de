//! The stacks of a model.

use serde::{Deserialize, Serialize};

use crate::config::EncoderHeadConfig;
use crate::config::choices::{is_yes, yes};

/// The stacks of a model and what only one kind of model has.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Architecture {
    /// A causal stack with a language-model head.
    #[default]
    Decoder,
    /// A stack whose tokens attend to those on both sides, with an optional head.
    Encoder {
        /// Number of segment vectors (BERT's token types).
        #[serde(default)]
        segments: usize,
        /// Row of a text's first token in the table of learned positions (RoBERTa: 2). The table has as many rows in
        /// addition to those of the longest sequence.
        #[serde(default)]
        first_position: usize,
        /// False if the first block's attention reads its input, the normalized embeddings, without a norm.
        #[serde(default = "yes", skip_serializing_if = "is_yes")]
        first_norm: bool,
        /// Probability of dropping an attention weight during training.
        #[serde(default)]
        attention_dropout: f64,
        /// The head.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        head: Option<EncoderHeadConfig>,
    },
    /// An encoder, and a decoder with cross-attention to its states.
    EncoderDecoder {
        /// Blocks of the encoder; those of the decoder are `n_layers`.
        encoder_layers: usize,
        /// The token that begins every target.
        #[serde(default)]
        start_token: u32,
        /// The token that stands for ignored labels in the decoder's input.
        #[serde(default)]
        padding_token: u32,
    },
}

emberlm_system::named! {
    /// The kinds of models by their stacks.
    pub enum ModelKind {
        /// Continues tokens.
        Decoder = "decoder",
        /// Maps texts to vectors, or to the outputs of a head.
        Encoder = "encoder",
        /// Maps sources to targets.
        EncoderDecoder = "encoder–decoder",
    }
}

impl ModelKind {
    /// The name with its article.
    pub const fn named(self) -> &'static str {
        match self {
            Self::Decoder => "a decoder",
            Self::Encoder => "an encoder",
            Self::EncoderDecoder => "an encoder–decoder",
        }
    }
}

impl Architecture {
    /// True for a decoder.
    pub fn is_decoder(&self) -> bool {
        *self == Self::Decoder
    }

    /// The kind of model.
    pub fn kind(&self) -> ModelKind {
        match self {
            Self::Decoder => ModelKind::Decoder,
            Self::Encoder { .. } => ModelKind::Encoder,
            Self::EncoderDecoder { .. } => ModelKind::EncoderDecoder,
        }
    }
}
