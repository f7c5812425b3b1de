//! Evaluation: the loss over a split, in total and by position in the window. `validation` evaluates during training,
//! [`tasks`] are published evaluation tasks.

pub mod tasks;
pub(crate) mod validation;

use std::ops::ControlFlow;

use burn::tensor::Tensor;
use emberlm_data::{Batch, DataError, EvalBatches, IGNORED, Packing, Windows};
use emberlm_kernels::Backend;
use emberlm_model::Transformer;

use crate::data::divided::{exchange, for_each_batch, interleaved};
use crate::error::TrainError;
use crate::objective::loader::to_tensors;
use crate::objective::model::TokenBatch;
use crate::peers::{Peers, SingleProcess};
use crate::read::host_read;

/// Batches per read of the losses. Reading waits for an asynchronous device.
const READ_TOGETHER: usize = 64;

/// As [`READ_TOGETHER`], with several ranks. They exchange losses after each read, and only then learn of a request to
/// stop on one of them.
const READ_TOGETHER_AMONG_RANKS: usize = 8;

/// The result of an evaluation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evaluation {
    /// Mean cross-entropy in nats per token; NaN without tokens.
    pub loss: f64,
    /// Predicted tokens, excluding masked tokens and padding.
    pub tokens: u64,
}

/// A description of the evaluated windows, as training and `emberlm eval` print it.
pub fn evaluated_windows(seq_len: usize, packing: Packing) -> String {
    match packing {
        Packing::Stream => format!("in windows of {seq_len}, stride {seq_len}"),
        Packing::Isolated | Packing::BestFit => {
            format!("in rows of {seq_len} of isolated documents, stride {seq_len}")
        }
    }
}

/// Predicts every token of a split except its first, in windows of at most the model's context. `max_tokens`
/// limits the number of predicted tokens. Masked tokens are part of the input but are not predicted.
///
/// # Errors
/// The split cannot be read, or has fewer than two tokens.
pub fn evaluate<B: Backend>(
    decoder: &Transformer<B>,
    windows: &Windows,
    batch: usize,
    max_tokens: Option<u64>,
) -> Result<Evaluation, TrainError> {
    evaluate_observed(decoder, windows, batch, max_tokens, |_| ())
}

/// As [`evaluate`], and calls `observe` with every batch once it is computed, or queued on an asynchronous
/// device.
///
/// # Errors
/// See [`evaluate`].
pub fn evaluate_observed<B: Backend>(
    decoder: &Transformer<B>,
    windows: &Windows,
    batch: usize,
    max_tokens: Option<u64>,
    observe: impl FnMut(&Batch),
) -> Result<Evaluation, TrainError> {
    evaluate_among(&SingleProcess, decoder, windows, batch, max_tokens, observe)
}

/// As [`evaluate_observed`], with the batches divided among the ranks of `peers`. The result is the same on every rank, to
/// the bit that of a single process. All ranks must evaluate the same model on the same windows. `observe` is called with
/// the batches of all ranks.
///
/// # Errors
/// See [`evaluate`]; also if a peer cannot be reached.
pub fn evaluate_among<B: Backend>(
    peers: &dyn Peers<B>,
    decoder: &Transformer<B>,
    windows: &Windows,
    batch: usize,
    max_tokens: Option<u64>,
    mut observe: impl FnMut(&Batch),
) -> Result<Evaluation, TrainError> {
    let device = decoder.device();
    let batches = EvalBatches::new(windows, batch, max_tokens)?;
    let tensors = |batch: &Batch| to_tensors::<B>(batch, &device);
    let targets = |batch: &Batch| {
        let targets = batch.targets.iter();
        targets.filter(|&&target| target != IGNORED).count()
    };
    let loss = |tensors: TokenBatch<B>| decoder.loss_sum(tensors.tokens, tensors.targets);
    let observe = |batch: &Batch| {
        observe(batch);
        ControlFlow::Continue(())
    };
    let found = mean_loss(peers, batches, targets, tensors, loss, observe)?;
    Ok(found.unwrap_or(Evaluation {
        loss: f64::NAN,
        tokens: 0,
    }))
}

/// The mean loss per target over batches, which are divided among ranks. `tensors` copies a batch to the device. `observe`
/// is called with each batch; with this rank's batches once they are computed, or queued on an asynchronous device. `None`
/// if `observe` breaks on any rank.
pub(crate) fn mean_loss<B: Backend, T>(
    peers: &dyn Peers<B>,
    batches: impl Iterator<Item = Result<T, DataError>>,
    targets: impl Fn(&T) -> usize,
    tensors: impl Fn(&T) -> TokenBatch<B>,
    loss: impl Fn(TokenBatch<B>) -> Tensor<B, 1> + Sync,
    mut observe: impl FnMut(&T) -> ControlFlow<()>,
) -> Result<Option<Evaluation>, TrainError> {
    let (index, world_size) = (peers.rank().index(), peers.rank().world_size());
    let together = match world_size {
        1 => READ_TOGETHER,
        ranks => READ_TOGETHER_AMONG_RANKS * ranks,
    };
    let (mut sum, mut tokens) = (0.0f64, 0u64);
    // The batches since the last read, and the losses of this rank's.
    let (mut count, mut unread) = (0, Vec::new());
    let mut stop = ControlFlow::Continue(());
    let mut add = |unread: &mut Vec<Tensor<B, 1>>, stop| -> Result<_, TrainError> {
        let losses = std::mem::take(unread);
        let data = (!losses.is_empty()).then(|| host_read(Tensor::cat(losses, 0)));
        let own = data.map_or_else(Vec::new, |data| data.iter::<f64>().collect());
        let found = exchange(peers, own, stop)?;
        if let ControlFlow::Continue(all) = &found {
            sum = interleaved(all).fold(sum, |sum, loss| sum + loss);
        }
        Ok(found.is_continue())
    };
    for batch in batches {
        let batch = batch?;
        tokens += targets(&batch) as u64;
        if count % world_size == index && stop.is_continue() {
            let tensors = tensors(&batch);
            unread.push(B::run(|| loss(tensors)));
        }
        count += 1;
        if observe(&batch).is_break() {
            if world_size == 1 {
                return Ok(None);
            }
            stop = ControlFlow::Break(());
        }
        if count == together {
            if !add(&mut unread, stop)? {
                return Ok(None);
            }
            count = 0;
        }
    }
    if !add(&mut unread, stop)? {
        return Ok(None);
    }
    let loss = sum / tokens as f64;
    Ok(Some(Evaluation { loss, tokens }))
}

/// The loss by position in the window, or in the document if documents are isolated. At position `p`, a token
/// is predicted from the `p + 1` tokens before it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PositionLosses {
    /// By position: the sum of the losses in nats and the number of tokens.
    sums: Vec<(f64, u64)>,
}

impl PositionLosses {
    /// The mean loss and the number of tokens of every position.
    pub fn positions(&self) -> Vec<Evaluation> {
        self.sums.iter().map(|&sum| mean([sum])).collect()
    }

    /// The mean over all tokens, equal to the result of [`evaluate`].
    pub fn overall(&self) -> Evaluation {
        mean(self.sums.iter().copied())
    }

    /// The mean loss over positions 0, 1, 2–3, 4–7 and so on, each with its first and last position.
    pub fn by_powers_of_two(&self) -> Vec<(usize, usize, Evaluation)> {
        let count = self.sums.len();
        let mut buckets = Vec::new();
        let mut first = 0;
        while first < count {
            let end = (2 * first).max(1).min(count);
            let found = mean(self.sums[first..end].iter().copied());
            buckets.push((first, end - 1, found));
            first = end;
        }
        buckets
    }

    /// Adds the losses of a batch's positions.
    fn add(&mut self, losses: impl IntoIterator<Item = f64>, batch: &Batch) {
        for (at, (loss, &target)) in losses.into_iter().zip(&batch.targets).enumerate() {
            if target == IGNORED {
                continue;
            }
            let documents = batch.documents.as_ref();
            let begin = documents.map_or(0, |documents| documents[at] as usize);
            let position = at % batch.seq - begin;
            if self.sums.len() <= position {
                self.sums.resize(position + 1, (0.0, 0));
            }
            let (sum, count) = &mut self.sums[position];
            *sum += loss;
            *count += 1;
        }
    }
}

fn mean(sums: impl IntoIterator<Item = (f64, u64)>) -> Evaluation {
    let add = |(sum, count): (f64, u64), (s, n): (f64, u64)| (sum + s, count + n);
    let (sum, tokens) = sums.into_iter().fold((0.0, 0), add);
    let loss = sum / tokens as f64;
    Evaluation { loss, tokens }
}

/// As [`evaluate`], but returns the loss of each position. Calls `observe` with every batch once its losses
/// are read.
///
/// # Errors
/// See [`evaluate`].
pub fn evaluate_positions<B: Backend>(
    decoder: &Transformer<B>,
    windows: &Windows,
    batch: usize,
    observe: impl FnMut(&Batch),
) -> Result<PositionLosses, TrainError> {
    evaluate_positions_among(&SingleProcess, decoder, windows, batch, observe)
}

/// As [`evaluate_positions`], with the batches divided among the ranks of `peers`, as in [`evaluate_among`].
///
/// # Errors
/// See [`evaluate_among`].
pub fn evaluate_positions_among<B: Backend>(
    peers: &dyn Peers<B>,
    decoder: &Transformer<B>,
    windows: &Windows,
    batch: usize,
    mut observe: impl FnMut(&Batch),
) -> Result<PositionLosses, TrainError> {
    let device = decoder.device();
    let mut found = PositionLosses::default();
    let losses = |batch: &Batch| {
        let tensors = to_tensors::<B>(batch, &device);
        let losses = decoder.token_losses(tensors.tokens, tensors.targets);
        host_read(losses).iter::<f64>().collect()
    };
    let add = |batch: &Batch, losses: &[f64]| {
        found.add(losses.iter().copied(), batch);
        observe(batch);
    };
    let batches = EvalBatches::new(windows, batch, None)?;
    // It breaks only if it is stopped.
    let _ = for_each_batch(peers, batches, losses, add, || ControlFlow::Continue(()))?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn position_losses_are_grouped_by_powers_of_two() {
        let mut found = PositionLosses::default();
        let batch = |batch: usize, seq: usize| Batch {
            inputs: vec![0; batch * seq],
            targets: vec![0; batch * seq],
            documents: None,
            batch,
            seq,
        };
        // Two windows of 6 and a last one of 2. The losses at position p are p, p + 1 and, in the last
        // window, 4.
        let losses = [0., 1., 2., 3., 4., 5., 1., 2., 3., 4., 5., 6.];
        found.add(losses, &batch(2, 6));
        found.add([4., 4.], &batch(1, 2));
        let of = |loss: f64, tokens| Evaluation { loss, tokens };
        assert_eq!(found.positions()[0], of(5. / 3., 3));
        assert_eq!(found.positions()[5], of(5.5, 2));
        assert_eq!(
            found.by_powers_of_two(),
            [
                (0, 0, of(5. / 3., 3)),
                (1, 1, of(7. / 3., 3)),
                (2, 3, of(3., 4)),
                (4, 5, of(5., 4))
            ]
        );
        assert_eq!(found.overall(), of(44. / 14., 14));
    }

    #[test]
    fn positions_restart_at_each_document() {
        let mut found = PositionLosses::default();
        // Documents of 3 and 2 tokens and one of padding. The loss of ignored targets is 0.
        found.add(
            [1., 2., 0., 4., 0., 0.],
            &Batch {
                inputs: vec![9, 1, 2, 9, 3, 9],
                targets: vec![1, 2, IGNORED, 3, IGNORED, IGNORED],
                documents: Some(vec![0, 0, 0, 3, 3, 5]),
                batch: 1,
                seq: 6,
            },
        );
        let of = |loss: f64, tokens| Evaluation { loss, tokens };
        assert_eq!(found.positions(), [of(2.5, 2), of(2., 1)]);
    }
}
