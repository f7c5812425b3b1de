//! Ragged batches: one forward pass over several sequences, each with its own length and cache.
//!
//! Decoding is bound by the time to read the weights. A ragged pass therefore concatenates the tokens of all
//! sequences to `[1, rows, d_model]`: embeddings, norms, linear layers and the head read their weights once for all
//! rows. Only attention runs per sequence, over the sequence's own keys and values (or the sums of linear attention).
//! Sequences with different adapters of one model share a pass: the linear layers read their weights once for all rows,
//! and each adapter's update is added to its rows.
//!
//! In an encoder–decoder the sequences are targets; cross-attention runs per sequence too, over the keys and values of
//! its source, which were computed once.

use std::ops::Range;

use burn::tensor::{Device, Int, Tensor, TensorData};

use emberlm_kernels::{AttentionMask, Backend};

use crate::nn::adapter_rows::{AdapterGroup, AdapterRows};
use crate::nn::embeddings::Embeddings;
use crate::nn::kv_cache::KvCache;
use crate::nn::packed::{self, RowSpan};
use crate::nn::stack::{Stack, StackInputs, StackSpan};
use crate::transformer::encoder_decoder::EncodedSource;
use crate::transformer::model::Transformer;

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
    /// The source of an encoder–decoder's target.
    pub source: Option<&'a EncodedSource<B>>,
    /// The number of an adapter in the decoder's bank ([`Transformer::add_to_bank`]); `None` for the decoder's own weights.
    pub adapter: Option<usize>,
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

impl<B: Backend> Default for RaggedOutput<B> {
    fn default() -> Self {
        Self {
            logits: None,
            hidden_sums: None,
        }
    }
}

impl<B: Backend> Transformer<B> {
    /// Runs the chunks in one pass and returns the outputs that they request. Except for rounding, the logits of a
    /// chunk are those of [`Transformer::forward_cached`]: matrix products of another shape may add their terms in
    /// another order.
    ///
    /// Chunks may have different adapters. Neighbours with one adapter are computed together, so chunks should be sorted
    /// by adapter. A number that the bank does not have selects no adapter.
    ///
    /// Each chunk's tokens must meet the requirements of [`Transformer::forward_cached`].
    pub fn ragged(&self, chunks: &mut [SequenceChunk<'_, B>]) -> RaggedOutput<B> {
        let adapters = adapter_rows(chunks);
        PassRows::of(chunks).run(RaggedPass {
            embeddings: &self.embeddings,
            stack: &self.stack,
            spans: spans(chunks),
            adapters: adapters.as_ref(),
            logits: |states| self.logits(states),
        })
    }
}

/// The chunks as spans of rows, each with its cache and memory.
fn spans<'a, B: Backend>(chunks: &'a mut [SequenceChunk<'_, B>]) -> Vec<StackSpan<'a, B>> {
    let mut first = 0;
    let chunks = chunks.iter_mut();
    let chunks = chunks.filter(|chunk| !chunk.tokens.is_empty());
    let of = |chunk: &'a mut SequenceChunk<'_, B>| {
        let rows = RowSpan {
            first,
            count: 1,
            len: chunk.tokens.len(),
        };
        first += rows.len;
        StackSpan {
            rows,
            mask: AttentionMask::default(),
            cache: Some(&mut *chunk.cache),
            memory: chunk.source.map(EncodedSource::memory),
        }
    };
    chunks.map(of).collect()
}

/// The adapters of the rows; `None` if no chunk has one.
fn adapter_rows<B: Backend>(chunks: &[SequenceChunk<'_, B>]) -> Option<AdapterRows> {
    let groups = chunks.iter().map(|chunk| AdapterGroup {
        adapter: chunk.adapter,
        rows: chunk.tokens.len(),
    });
    let has_adapters = chunks.iter().any(|chunk| chunk.adapter.is_some());
    has_adapters.then(|| AdapterRows::of(groups))
}

/// The components of a model for a pass over rows, and their inputs.
struct RaggedPass<'a, B: Backend, F> {
    embeddings: &'a Embeddings<B>,
    stack: &'a Stack<B>,
    spans: Vec<StackSpan<'a, B>>,
    adapters: Option<&'a AdapterRows>,
    /// Maps the states after the final norm to logits, `[1, rows, d_model]` to `[1, rows, vocab_size]`.
    logits: F,
}

/// The rows of a pass: the tokens of all chunks, one chunk after the other.
struct PassRows {
    ids: Vec<i64>,
    /// The rows whose logits are requested.
    logits: Vec<i64>,
    /// For each requested sum, the rows to add up.
    summed: Vec<Range<usize>>,
}

impl PassRows {
    fn of<B: Backend>(chunks: &[SequenceChunk<'_, B>]) -> Self {
        let (mut ids, mut logits, mut summed) = (Vec::new(), Vec::new(), Vec::new());
        for chunk in chunks {
            let (first, end) = (ids.len(), ids.len() + chunk.tokens.len());
            ids.extend(chunk.tokens.iter().map(|&id| i64::from(id)));
            let rows = match chunk.output {
                RequestedOutput::None => end..end,
                RequestedOutput::Last => end.saturating_sub(1).max(first)..end,
                RequestedOutput::All => first..end,
                RequestedOutput::HiddenSum => {
                    summed.push(first..end);
                    end..end
                }
            };
            logits.extend(rows.map(|row| row as i64));
        }
        Self {
            ids,
            logits,
            summed,
        }
    }

    /// `[1, rows]`.
    fn ids<B: Backend>(&self, device: &Device<B>) -> Tensor<B, 2, Int> {
        let shape = [1, self.ids.len()];
        Tensor::from_data(TensorData::new(self.ids.clone(), shape), device)
    }

    /// Runs the pass and computes the requested outputs.
    fn run<B: Backend>(
        self,
        pass: RaggedPass<'_, B, impl FnOnce(Tensor<B, 3>) -> Tensor<B, 3>>,
    ) -> RaggedOutput<B> {
        if self.ids.is_empty() {
            return RaggedOutput::default();
        }
        let RaggedPass {
            embeddings,
            stack,
            spans,
            adapters,
            logits,
        } = pass;
        let device = embeddings.tokens.device();
        let places = spans.iter().map(|span| (span.rows, span.past()));
        let positions = packed::positions(places, &device); // [rows]
        let ids = self.ids(&device);
        let x = embeddings.forward_at(ids.clone(), &positions, None);
        let inputs = StackInputs {
            ids: Some(ids),
            adapters,
            probe: None,
        };
        let mut x = stack.run_blocks(x, spans, inputs); // [1, rows, d_model]
        let sums = self.summed.into_iter().map(|rows| {
            let states = x.clone().narrow(1, rows.start, rows.len());
            stack.finish(states).sum_dim(1).squeeze_dim(1) // [1, d_model]
        });
        let sums: Vec<Tensor<B, 2>> = sums.collect();
        let mut output = RaggedOutput {
            hidden_sums: (!sums.is_empty()).then(|| Tensor::cat(sums, 0)),
            logits: None,
        };
        let rows = self.logits.len();
        if rows == 0 {
            return output;
        }
        if rows < self.ids.len() {
            let requested = TensorData::new(self.logits, [rows]);
            let requested = Tensor::<B, 1, Int>::from_data(requested, &x.device());
            x = x.select(1, requested);
        }
        output.logits = Some(logits(stack.finish(x)).squeeze_dim(0)); // [rows, vocab_size]
        output
    }
}
