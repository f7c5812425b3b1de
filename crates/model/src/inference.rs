//! A decoder that only predicts, and may hold its weights in fewer bits for it.

use burn::tensor::{Device, Int, Tensor};
use emberlm_kernels::Backend;

use crate::checked::DecoderConfig;
use crate::decoder::Decoder;
use crate::kv_cache::KvCache;
use crate::ragged::{Piece, RaggedOutput};
use crate::token_scores::TokenScores;
use crate::tokens::Tokens;

/// In what numbers a decoder that only predicts holds the weights of its maps and its head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WeightFormat {
    /// As they are trained.
    #[default]
    F32,
    /// In 8 bits, symmetric, with a scale for each output; a quarter of the memory, and of what is read for a token. What is
    /// multiplied with them, and sums, stay f32, and so do embeddings, norms and biases.
    Int8,
}

impl WeightFormat {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::F32, Self::Int8];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Int8 => "int8",
        }
    }
}

/// A decoder that only predicts. Its parameters are out of reach, so that none can be saved or trained that are not the
/// model's own: it is no Burn module.
#[derive(Clone, Debug)]
pub struct InferenceDecoder<B: Backend>(Decoder<B>);

impl<B: Backend> Decoder<B> {
    /// The decoder for prediction alone. The floats of what becomes 8 bits are let go of, map by map.
    pub fn for_inference(mut self, weights: WeightFormat) -> InferenceDecoder<B> {
        match weights {
            WeightFormat::F32 => {}
            WeightFormat::Int8 => self.quantize(),
        }
        InferenceDecoder(self)
    }
}

/// What generation and evaluation ask of a decoder, whatever its weights are held in.
#[derive(Debug)]
pub struct Predictor<'a, B: Backend>(&'a Decoder<B>);

impl<B: Backend> Clone for Predictor<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: Backend> Copy for Predictor<'_, B> {}

impl<'a, B: Backend> From<&'a Decoder<B>> for Predictor<'a, B> {
    fn from(decoder: &'a Decoder<B>) -> Self {
        Self(decoder)
    }
}

impl<'a, B: Backend> From<&'a InferenceDecoder<B>> for Predictor<'a, B> {
    fn from(decoder: &'a InferenceDecoder<B>) -> Self {
        Self(&decoder.0)
    }
}

impl<'a, B: Backend> Predictor<'a, B> {
    /// What the model is.
    pub fn config(self) -> &'a DecoderConfig {
        self.0.config()
    }

    /// The device its weights are on.
    pub fn device(self) -> Device<B> {
        self.0.device()
    }

    /// [`Decoder::forward`].
    pub fn forward(self, tokens: Tensor<B, 2, Int>) -> Tensor<B, 3> {
        self.0.forward(tokens)
    }

    /// [`Decoder::next_logits`].
    pub fn next_logits(self, tokens: Tensor<B, 2, Int>, cache: &mut KvCache<B>) -> Tensor<B, 2> {
        self.0.next_logits(tokens, cache)
    }

    /// [`Decoder::mean_hidden`].
    pub fn mean_hidden(self, tokens: Tensor<B, 2, Int>) -> Tensor<B, 2> {
        self.0.mean_hidden(tokens)
    }

    /// [`Decoder::ragged`].
    pub fn ragged(self, pieces: &mut [Piece<'_, B>]) -> RaggedOutput<B> {
        self.0.ragged(pieces)
    }

    /// [`Decoder::token_scores`].
    pub fn token_scores(
        self,
        tokens: impl Into<Tokens<B>>,
        targets: Tensor<B, 2, Int>,
    ) -> TokenScores<B> {
        self.0.token_scores(tokens, targets)
    }

    /// [`Decoder::token_losses`].
    pub fn token_losses(
        self,
        tokens: impl Into<Tokens<B>>,
        targets: Tensor<B, 2, Int>,
    ) -> Tensor<B, 2> {
        self.0.token_losses(tokens, targets)
    }

    /// [`Decoder::loss_sum`].
    pub fn loss_sum(
        self,
        tokens: impl Into<Tokens<B>>,
        targets: Tensor<B, 2, Int>,
    ) -> Tensor<B, 1> {
        match self.0.is_quantized() {
            // The fused loss has no weights of 8 bits.
            true => self.token_losses(tokens, targets).sum(),
            false => self.0.loss_sum(tokens, targets),
        }
    }
}

#[cfg(test)]
mod tests {
    use burn_flex::Flex;

    use super::*;
    use crate::families;
    use crate::weights::named_tensors;

    #[test]
    fn the_floats_of_the_maps_are_let_go_of() {
        for tied in [true, false] {
            let mut raw = families::preset("char-nano").unwrap().config;
            (raw.vocab_size, raw.seq_len, raw.d_model) = (Some(31), 8, 16);
            (raw.n_layers, raw.heads, raw.kv_heads) = (2, 2, 2);
            raw.head.tied = tied;
            let config = DecoderConfig::try_from(raw).unwrap();
            let mut decoder = config.init::<Flex>(3, &Default::default());
            decoder.quantize();
            for (path, tensor) in named_tensors(&decoder) {
                let is_map = tensor.shape.len() == 2
                    && !path.starts_with("tokens")
                    && !path.starts_with("positions");
                assert_eq!(
                    tensor.values.len() == 1,
                    is_map,
                    "{path}: {:?}",
                    tensor.shape
                );
                assert_ne!(path, "head");
            }
        }
    }
}
