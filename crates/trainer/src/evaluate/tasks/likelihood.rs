//! Log-likelihoods of given continuations under a model.

use std::ops::ControlFlow;

use burn::tensor::{Int, Tensor, TensorData};
use emberlm_kernels::Backend;
use emberlm_model::Transformer;

use crate::data::divided::for_each_batch;
use crate::error::TrainError;
use crate::peers::Peers;
use crate::read::host_read;

/// A token sequence whose last tokens are to be predicted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The context and its continuation: at most one token more than the model's context.
    pub tokens: Vec<u32>,
    /// The number of tokens at the end that form the continuation: at least one, and fewer than all.
    pub predicted: usize,
    /// True if the beginning of the context was left out.
    pub is_cut: bool,
}

impl Row {
    /// The number of input tokens: all but the last, which is only a target.
    pub fn seq(&self) -> usize {
        self.tokens.len() - 1
    }
}

/// The log-likelihood of a continuation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Likelihood {
    /// `Σ ln p(token)` over the continuation, in nats.
    pub sum: f64,
    /// The number of tokens of the continuation.
    pub tokens: usize,
    /// True if greedy decoding would produce the continuation.
    pub greedy: bool,
}

/// Tokens per batch, unless the caller sets the number of rows.
pub const BATCH_TOKENS: usize = 4096;

/// Scores every row, and returns the likelihoods in the order of `rows`. Batches have `batch` rows, or about
/// 4096 tokens, the longest rows first. Shorter rows are padded at the end, which causal attention ignores.
/// `done` is called with the number of tokens of each batch. Breaks if `stop` breaks on any rank.
///
/// The batches are divided among the ranks of `peers`. The result is the same on every rank, to the bit that of a single
/// process.
///
/// # Errors
/// A peer cannot be reached.
pub fn score<B: Backend>(
    peers: &dyn Peers<B>,
    decoder: &Transformer<B>,
    rows: &[Row],
    batch: Option<usize>,
    mut done: impl FnMut(u64),
    stop: impl Fn() -> ControlFlow<()>,
) -> Result<ControlFlow<(), Vec<Likelihood>>, TrainError> {
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by_key(|&at| std::cmp::Reverse(rows[at].seq()));
    let nothing = Likelihood {
        sum: 0.0,
        tokens: 0,
        greedy: true,
    };
    let mut batches = Vec::new();
    let mut left = order.as_slice();
    while let [longest, ..] = left {
        let seq = rows[*longest].seq();
        let count = batch.unwrap_or(BATCH_TOKENS / seq).clamp(1, left.len());
        let (places, rest) = left.split_at(count);
        batches.push(Ok((places, seq)));
        left = rest;
    }
    let mut found = vec![nothing; rows.len()];
    let scored = |&(places, seq): &(&[usize], usize)| {
        let batch: Vec<&Row> = places.iter().map(|&at| &rows[at]).collect();
        let scored = score_batch(decoder, &batch, seq);
        let numbers = |(sum, greedy)| [sum, f64::from(u8::from(greedy))];
        scored.into_iter().flat_map(numbers).collect()
    };
    let add = |&(places, _): &(&[usize], usize), numbers: &[f64]| {
        let (pairs, _) = numbers.as_chunks::<2>();
        for (&at, &[sum, greedy]) in places.iter().zip(pairs) {
            found[at] = Likelihood {
                sum,
                tokens: rows[at].predicted,
                greedy: greedy != 0.0,
            };
        }
        done(places.iter().map(|&at| rows[at].seq() as u64).sum());
    };
    let ended = for_each_batch(peers, batches, scored, add, stop)?;
    Ok(ended.map_continue(|()| found))
}

/// The sums of the log-probabilities of each row's continuation, and whether greedy decoding would produce it. No row is
/// longer than `seq`.
fn score_batch<B: Backend>(
    decoder: &Transformer<B>,
    rows: &[&Row],
    seq: usize,
) -> Vec<(f64, bool)> {
    let device = decoder.device();
    let tensor = |offset: usize| {
        let mut ids = vec![0i32; rows.len() * seq];
        for (ids, row) in ids.chunks_mut(seq).zip(rows) {
            let tokens = &row.tokens[offset..][..row.seq()];
            for (id, &token) in ids.iter_mut().zip(tokens) {
                *id = token as i32;
            }
        }
        Tensor::<B, 2, Int>::from_data(TensorData::new(ids, [rows.len(), seq]), &device)
    };
    let scores = decoder.token_scores(tensor(0), tensor(1));
    let losses: Vec<f64> = host_read(scores.losses).iter::<f64>().collect();
    let greedy: Vec<bool> = host_read(scores.greedy).iter::<bool>().collect();
    let of_row = |(at, row): (usize, &&Row)| {
        let start = at * seq;
        let continuation = start + row.seq() - row.predicted..start + row.seq();
        let sum = -losses[continuation.clone()].iter().sum::<f64>();
        (sum, greedy[continuation].iter().all(|&greedy| greedy))
    };
    rows.iter().enumerate().map(of_row).collect()
}
