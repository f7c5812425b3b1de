//! Texts as vectors: tokens, encoder, pooling, normalization.

use burn::tensor::Tensor;
use emberlm_kernels::Backend;
use emberlm_model::encoder::{EncoderHeadConfig, Pooling, TextStates, TextTokens};
use emberlm_model::{InputError, Transformer};
use emberlm_tokenizer::{EncodedSequence, SequenceEncoder};

use crate::error::ModelError;

const PASS_TOKENS: usize = 1024;

/// An encoder that embeds texts. [`EncoderModel::embedder`](crate::EncoderModel::embedder) loads one.
#[derive(Debug)]
pub struct Embedder<B: Backend> {
    pub(crate) encoder: Transformer<B>,
    pub(crate) sequences: SequenceEncoder,
    pub(crate) pooling: Pooling,
    pub(crate) normalize: bool,
}

impl<B: Backend> Embedder<B> {
    /// Tokens of one pass, at most, unless a single text has more: enough rows for fast matrix products whose results
    /// stay in the CPU's cache.
    pub const PASS_TOKENS: usize = PASS_TOKENS;

    /// The encoder.
    pub fn encoder(&self) -> &Transformer<B> {
        &self.encoder
    }

    /// The encoder of texts as token ids.
    pub fn sequences(&self) -> &SequenceEncoder {
        &self.sequences
    }

    /// Embeds texts, `d_model` numbers each. A text that is too long is truncated.
    ///
    /// # Errors
    /// A text cannot be encoded, or has no tokens.
    pub fn embed<T: AsRef<str>>(&self, texts: &[T]) -> Result<Vec<Vec<f32>>, ModelError> {
        let texts: Vec<(&str, Option<&str>)> =
            texts.iter().map(|text| (text.as_ref(), None)).collect();
        Ok(self.embed_sequences(&self.sequences.encode_all(&texts)?)?)
    }

    /// Embeds encoded texts. Texts of similar length are processed in one pass, without padding.
    ///
    /// # Errors
    /// A sequence has no tokens, too many, or one outside of the vocabulary.
    pub fn embed_sequences(
        &self,
        sequences: &[EncodedSequence],
    ) -> Result<Vec<Vec<f32>>, InputError> {
        self.in_passes(sequences, |states| {
            let vectors = rows(states.pooled(self.pooling)); // [texts, d_model]
            let vectors = vectors.map(|vector| match self.normalize {
                true => unit_vector(vector),
                false => vector,
            });
            vectors.collect()
        })
    }

    /// The score of each label for encoded texts ([`ProblemType::scores`](emberlm_model::encoder::ProblemType::scores)), with a
    /// head that classifies texts. `None` with another head.
    ///
    /// # Errors
    /// Those of [`Embedder::embed_sequences`].
    pub fn class_scores(
        &self,
        sequences: &[EncodedSequence],
    ) -> Result<Option<Vec<Vec<f32>>>, InputError> {
        let head = self.encoder.config().encoder_head();
        let Some(EncoderHeadConfig::Sequence { problem, .. }) = head else {
            return Ok(None);
        };
        let scores = self.in_passes(sequences, |states| {
            let pooled = states.pooled(self.encoder.class_pooling());
            let logits = self.encoder.class_logits(pooled); // [texts, labels]
            let rows = logits.into_iter().flat_map(rows);
            rows.map(|logits| problem.scores(&logits)).collect()
        });
        scores.map(Some)
    }

    /// Computes a vector for each sequence. `vectors` maps the states of some texts to their vectors.
    fn in_passes(
        &self,
        sequences: &[EncodedSequence],
        vectors: impl Fn(&TextStates<B>) -> Vec<Vec<f32>> + Sync,
    ) -> Result<Vec<Vec<f32>>, InputError> {
        for sequence in sequences {
            self.encoder.config().check_tokens(&sequence.ids)?;
        }
        let mut order: Vec<usize> = (0..sequences.len()).collect();
        order.sort_by_key(|&text| sequences[text].ids.len());
        let mut all = vec![Vec::new(); sequences.len()];
        for pass in passes(&order, |text| sequences[text].ids.len()) {
            let texts = pass.iter().map(|&text| tokens(&sequences[text]));
            let texts: Vec<_> = texts.collect();
            let vectors = B::run(|| vectors(&self.encoder.encode(&texts)));
            for (&text, vector) in pass.iter().zip(vectors) {
                all[text] = vector;
            }
        }
        Ok(all)
    }
}

/// Reads the rows of `[rows, width]` from the device.
fn rows<B: Backend>(tensor: Tensor<B, 2>) -> impl Iterator<Item = Vec<f32>> {
    let [count, width] = tensor.dims();
    let values: Vec<f32> = tensor.into_data().iter().collect();
    (0..count).map(move |row| values[row * width..][..width].to_vec())
}

/// A sequence's tokens; segments are left out where all are 0.
fn tokens(sequence: &EncodedSequence) -> TextTokens<'_> {
    let segmented = sequence.segments.iter().any(|&segment| segment != 0);
    TextTokens {
        ids: &sequence.ids,
        segments: if segmented { &sequence.segments } else { &[] },
    }
}

/// Splits texts sorted by length into passes of at most [`PASS_TOKENS`] tokens.
fn passes(order: &[usize], len: impl Fn(usize) -> usize) -> Vec<&[usize]> {
    let mut passes = Vec::new();
    let (mut first, mut held) = (0, 0);
    for (end, &text) in order.iter().enumerate() {
        if held > 0 && held + len(text) > PASS_TOKENS {
            passes.push(&order[first..end]);
            (first, held) = (end, 0);
        }
        held += len(text);
    }
    if first < order.len() {
        passes.push(&order[first..]);
    }
    passes
}

/// The vector of length 1 in the same direction; a vector of zeros stays.
pub fn unit_vector(vector: Vec<f32>) -> Vec<f32> {
    let squares: f64 = vector.iter().map(|&x| f64::from(x).powi(2)).sum();
    let length = squares.sqrt().max(1e-12);
    vector
        .into_iter()
        .map(|x| (f64::from(x) / length) as f32)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_hold_at_most_their_tokens() {
        let lengths = [10, 600, 500, 400, 2000, 3];
        let order = [5, 0, 3, 2, 1, 4];
        let passes = passes(&order, |text| lengths[text]);
        assert_eq!(passes, [&[5, 0, 3, 2][..], &[1], &[4]]);
        assert!(super::passes(&[], |_| 1).is_empty());
    }
}
