//! One pass over pieces of several sequences, each with its own length and cache.
//!
//! A token costs the reading of all weights, regardless of its sequence. Here the pieces' tokens lie in one block of rows,
//! `[1, rows, d_model]`: embedding, norms, linear layers and head read the weights once for all of them. Only attention works
//! piece by piece, each over its own keys and values, or sums.

use burn::tensor::{Int, Tensor, TensorData};

use emberlm_kernels::Backend;

use crate::decoder::Decoder;
use crate::kv_cache::{CachedRows, KvCache};

/// The output requested for a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestedOutput {
    /// None: its tokens are only read into the cache.
    None,
    /// The logits after its last token.
    Last,
    /// The logits after each of its tokens.
    All,
    /// The sum of its tokens' final hidden states, before the logit scale.
    HiddenSum,
}

/// The next tokens of one sequence.
#[derive(Debug)]
pub struct Piece<'a, B: Backend> {
    /// At least one, each below `vocab_size`.
    pub tokens: &'a [u32],
    /// Of only this sequence (batch 1), with room for them: they continue what it holds, and are added to it.
    pub cache: &'a mut KvCache<B>,
    /// The requested output.
    pub wanted: RequestedOutput,
}

/// The outputs that the pieces of one pass request.
#[derive(Debug)]
pub struct RaggedOutput<B: Backend> {
    /// `[rows, vocab_size]`, in the order of the pieces and their tokens; none if no piece requests logits.
    pub logits: Option<Tensor<B, 2>>,
    /// `[pieces, d_model]`, one row per piece with [`RequestedOutput::HiddenSum`], in order; none if there is no such piece.
    pub hidden_sums: Option<Tensor<B, 2>>,
}

impl<B: Backend> Decoder<B> {
    /// The outputs that the pieces request. Each piece's logits are those of [`Decoder::forward_cached`] on only the piece,
    /// except for rounding: products of more rows may add up their terms in another order.
    ///
    /// The requirements on tokens are those of [`Decoder::forward_cached`], for each piece.
    pub fn ragged(&self, pieces: &mut [Piece<'_, B>]) -> RaggedOutput<B> {
        let (mut ids, mut places, mut wanted) = (Vec::new(), Vec::new(), Vec::new());
        let mut summed = Vec::new();
        for piece in pieces.iter() {
            let (first, end) = (ids.len(), ids.len() + piece.tokens.len());
            let offset = piece.cache.len();
            ids.extend(piece.tokens.iter().map(|&id| i64::from(id)));
            places.extend((offset..offset + piece.tokens.len()).map(|place| place as i64));
            let rows = match piece.wanted {
                RequestedOutput::None => end..end,
                RequestedOutput::Last => end.saturating_sub(1).max(first)..end,
                RequestedOutput::All => first..end,
                RequestedOutput::HiddenSum => {
                    summed.push(first..end);
                    end..end
                }
            };
            wanted.extend(rows.map(|row| row as i64));
        }
        let total = ids.len();
        let mut output = RaggedOutput {
            logits: None,
            hidden_sums: None,
        };
        if total == 0 {
            return output;
        }
        let device = self.device();
        let places = Tensor::<B, 1, Int>::from_data(TensorData::new(places, [total]), &device);
        let ids = Tensor::<B, 2, Int>::from_data(TensorData::new(ids, [1, total]), &device);
        let mut x = self.embeddings.forward_at(ids, &places);
        let angles = self.stack.angles_at(&places);
        for (layer, block) in self.stack.blocks.iter().enumerate() {
            let sequences = pieces.iter_mut().filter(|piece| !piece.tokens.is_empty());
            let sequences = sequences.map(|piece| CachedRows {
                rows: piece.tokens.len(),
                cache: piece.cache.layer(layer),
            });
            x = block.ragged(x, angles.of(layer), sequences.collect()); // [1, rows, d_model]
        }
        let sums = summed.into_iter().map(|rows| {
            let states = x.clone().narrow(1, rows.start, rows.len());
            self.stack.finish(states).sum_dim(1).squeeze_dim(1) // [1, d_model]
        });
        let sums: Vec<Tensor<B, 2>> = sums.collect();
        output.hidden_sums = (!sums.is_empty()).then(|| Tensor::cat(sums, 0));
        let rows = wanted.len();
        if rows == 0 {
            return output;
        }
        if rows < total {
            let wanted = Tensor::<B, 1, Int>::from_data(TensorData::new(wanted, [rows]), &device);
            x = x.select(1, wanted);
        }
        let logits = self.logits(self.stack.finish(x)); // [1, rows, vocab_size]
        output.logits = Some(logits.reshape([rows, self.config().vocab_size()]));
        output
    }
}
