//! Ragged batches: one forward pass over several sequences, each with its own length and cache.
//!
//! Decoding is bound by the time to read the weights. A ragged pass therefore concatenates the tokens of all
//! sequences to `[1, rows, d_model]`: embeddings, norms, linear layers and the head read their weights once for all
//! rows. Only attention runs per sequence, over the sequence's own keys and values (or the sums of linear attention).

use burn::tensor::{Int, Tensor, TensorData};

use emberlm_kernels::Backend;

use crate::decoder::Decoder;
use crate::kv_cache::{CachedRows, KvCache};

/// The output requested for one sequence of a ragged batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestedOutput {
    /// No output; the tokens are only added to the cache.
    None,
    /// The logits after the last token.
    Last,
    /// The logits after every token.
    All,
    /// The sum over the tokens of the final hidden states, before the logit scale.
    HiddenSum,
}

/// The next tokens of one sequence of a ragged batch.
#[derive(Debug)]
pub struct SequenceChunk<'a, B: Backend> {
    /// At least one token, each below `vocab_size`.
    pub tokens: &'a [u32],
    /// The sequence's cache (batch size 1), with room for the tokens. They continue the cached ones and are added to
    /// it.
    pub cache: &'a mut KvCache<B>,
    /// The requested output.
    pub output: RequestedOutput,
}

/// Outputs of one ragged pass.
#[derive(Debug)]
pub struct RaggedOutput<B: Backend> {
    /// Requested logits `[rows, vocab_size]` in the order of the chunks and their tokens; `None` if no chunk requests
    /// any.
    pub logits: Option<Tensor<B, 2>>,
    /// Hidden sums `[chunks, d_model]`, one row per chunk with [`RequestedOutput::HiddenSum`]; `None` without such a
    /// chunk.
    pub hidden_sums: Option<Tensor<B, 2>>,
}

impl<B: Backend> Decoder<B> {
    /// Runs the chunks in one pass and returns the outputs that they request. Except for rounding, the logits of a
    /// chunk are those of [`Decoder::forward_cached`]: matrix products of another shape may add their terms in
    /// another order.
    ///
    /// Each chunk's tokens must meet the requirements of [`Decoder::forward_cached`].
    pub fn ragged(&self, chunks: &mut [SequenceChunk<'_, B>]) -> RaggedOutput<B> {
        let (mut ids, mut positions, mut logit_rows) = (Vec::new(), Vec::new(), Vec::new());
        let mut summed = Vec::new();
        for chunk in chunks.iter() {
            let (first, end) = (ids.len(), ids.len() + chunk.tokens.len());
            let offset = chunk.cache.len();
            ids.extend(chunk.tokens.iter().map(|&id| i64::from(id)));
            let range = offset..offset + chunk.tokens.len();
            positions.extend(range.map(|position| position as i64));
            let rows = match chunk.output {
                RequestedOutput::None => end..end,
                RequestedOutput::Last => end.saturating_sub(1).max(first)..end,
                RequestedOutput::All => first..end,
                RequestedOutput::HiddenSum => {
                    summed.push(first..end);
                    end..end
                }
            };
            logit_rows.extend(rows.map(|row| row as i64));
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
        let positions =
            Tensor::<B, 1, Int>::from_data(TensorData::new(positions, [total]), &device);
        let ids = Tensor::<B, 2, Int>::from_data(TensorData::new(ids, [1, total]), &device);
        let mut x = self.embeddings.forward_at(ids, &positions, None);
        let angles = self.stack.angles_at(&positions);
        for (layer, block) in self.stack.blocks.iter().enumerate() {
            let sequences = chunks.iter_mut().filter(|chunk| !chunk.tokens.is_empty());
            let sequences = sequences.map(|chunk| CachedRows {
                rows: chunk.tokens.len(),
                cache: chunk.cache.layer(layer),
            });
            x = block.ragged(x, angles.of(layer), sequences.collect()); // [1, rows, d_model]
        }
        let sums = summed.into_iter().map(|rows| {
            let states = x.clone().narrow(1, rows.start, rows.len());
            self.stack.finish(states).sum_dim(1).squeeze_dim(1) // [1, d_model]
        });
        let sums: Vec<Tensor<B, 2>> = sums.collect();
        output.hidden_sums = (!sums.is_empty()).then(|| Tensor::cat(sums, 0));
        let rows = logit_rows.len();
        if rows == 0 {
            return output;
        }
        if rows < total {
            let logit_rows =
                Tensor::<B, 1, Int>::from_data(TensorData::new(logit_rows, [rows]), &device);
            x = x.select(1, logit_rows);
        }
        let logits = self.logits(self.stack.finish(x)); // [1, rows, vocab_size]
        output.logits = Some(logits.reshape([rows, self.config().vocab_size()]));
        output
    }
}
