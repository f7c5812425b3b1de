//! The stacks of a model.

use crate::config::EncoderHeadConfig;

/// The stacks of a model and what only one kind of model has.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Architecture {
    /// A causal stack with a language-model head.
    #[default]
    Decoder,
    /// A stack whose tokens attend to those on both sides, with an optional head.
    Encoder {
        /// Number of segment vectors (BERT's token types).
        segments: usize,
        /// Row of a text's first token in the table of learned positions (RoBERTa: 2). The table has as many rows in
        /// addition to those of the longest sequence.
        first_position: usize,
        /// False if the first block's attention reads its input, the normalized embeddings, without a norm.
        first_norm: bool,
        /// Probability of dropping an attention weight during training.
        attention_dropout: f64,
        /// The head.
        head: Option<EncoderHeadConfig>,
    },
    /// An encoder, and a decoder with cross-attention to its states.
    EncoderDecoder {
        /// Blocks of the encoder; those of the decoder are `n_layers`.
        encoder_layers: usize,
        /// The token that begins every target.
        start_token: u32,
        /// The token that stands for ignored labels in the decoder's input.
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

impl Architecture {
    /// The kind of model.
    pub fn kind(&self) -> ModelKind {
        match self {
            Self::Decoder => ModelKind::Decoder,
            Self::Encoder { .. } => ModelKind::Encoder,
            Self::EncoderDecoder { .. } => ModelKind::EncoderDecoder,
        }
    }
}
