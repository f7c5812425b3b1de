//! The predicted duration of a run. A few forward and backward passes on random tokens, and the updates after them, are
//! measured before the first step:
//!
//! ```text
//! step        accumulation · micro_batch · sequence + update
//! evaluation  tokens · sequence / (3 · seq_len)                 a forward pass is a third of a sequence's operations
//! run         steps · step + evaluations · evaluation
//! ```
//!
//! The prediction does not include samples, checkpoints, exchanges with other ranks, and data loading, which runs on other
//! threads.

use std::time::Instant;

use burn::tensor::Device;
use emberlm_kernels::TrainingBackend;
use emberlm_model::{Transformer, TransformerConfig, count};

use super::RunInputs;
use crate::bench::random_batch;
use crate::config::TrainConfig;
use crate::objective::TrainSource;
use crate::objective::loader::to_tensors;
use crate::objective::model::{TokenBatch, TrainingModel};
use crate::optimizer::Optimizer;
use crate::peers::Rank;
use crate::step::clip::global_norm;
use crate::step::gradients::{self, StepNumbers};

/// Floating-point operations of a run of a few seconds on a CPU, which is not worth a measurement.
const SHORT_RUN: f64 = 2e12;
/// Floating-point operations of a pass that takes at most a second or two on a CPU.
const PASS: f64 = 1e11;
/// Minimum ratio of the run's sequences to those of a measured pass.
const PASSES: u64 = 50;
/// Duration of the measurement in seconds.
const ENOUGH: f64 = 0.5;

/// The predicted seconds of a run at `step` on `world_size` ranks; `None` for a run of a few seconds, and for models other
/// than decoders. `model` is not changed.
pub(super) fn predict<B: TrainingBackend>(
    train: &TrainConfig,
    inputs: &RunInputs,
    model: &TrainingModel<B>,
    step: usize,
    world_size: usize,
    device: &Device<B>,
) -> Option<f64> {
    let (decoder, config) = (model.decoder()?, &inputs.model);
    // The lengths of completions differ.
    if !matches!(inputs.source, TrainSource::Windows { .. }) {
        return None;
    }
    let steps = train.steps.saturating_sub(step);
    let sequence_flops = count::flops_per_token(config).training as f64 * inputs.seq_len as f64;
    let measured = match B::is_asynchronous() {
        true => train.micro_batch,
        false => ((PASS / sequence_flops) as usize).clamp(1, train.micro_batch),
    };
    let all = train.sequences_before(train.steps) - train.sequences_before(step.min(train.steps));
    let all = all / world_size as u64;
    if all as f64 * sequence_flops < SHORT_RUN || all < PASSES * measured as u64 {
        return None;
    }
    let seconds = Seconds::measure(train, config, inputs.seq_len, decoder, measured, device);
    let evaluation = {
        let tokens = inputs.validation.tokens(train.evaluation.token_limit());
        tokens as f64 / inputs.seq_len as f64 * seconds.sequence / 3.0
    };
    let evaluations = evaluations(train, train.steps) - evaluations(train, step);
    // Each rank updates its shard.
    let update = seconds.update / world_size as f64;
    let steps = all as f64 * seconds.sequence + steps as f64 * update;
    Some(steps + evaluations as f64 * evaluation)
}

/// The number of evaluations up to `step`, including the one after the last step.
fn evaluations(train: &TrainConfig, step: usize) -> usize {
    let interval = train.evaluation.interval;
    let last = step == train.steps && !step.is_multiple_of(interval);
    step / interval + usize::from(last)
}

/// The measured seconds of the parts of a step.
#[derive(Clone, Copy)]
struct Seconds {
    /// Forward and backward pass of a sequence.
    sequence: f64,
    /// Norm of the gradients and update of the weights.
    update: f64,
}

impl Seconds {
    /// Measures passes over `sequences` sequences. They use no more memory than a step of the run:
    /// updated weights replace gradients and are dropped before the next pass.
    fn measure<B: TrainingBackend>(
        train: &TrainConfig,
        config: &TransformerConfig,
        seq_len: usize,
        decoder: &Transformer<B>,
        sequences: usize,
        device: &Device<B>,
    ) -> Self {
        let train = TrainConfig {
            micro_batch: sequences,
            ..train.clone()
        };
        let batch = random_batch(config, &train, seq_len);
        let batch = to_tensors::<B>(&batch, device);
        let decoder = decoder.clone().with_precision(train.precision.products);
        let model = TrainingModel::from(decoder);
        let mut optimizer = Optimizer::new(&train, model.parameters());
        let mut pass = || Self::pass(&train, &model, &batch, &mut optimizer, device);
        // The first pass allocates memory and the optimizer's state, and GPUs compile their kernels.
        pass();
        let mut sum = Self {
            sequence: 0.0,
            update: 0.0,
        };
        let mut passes = 0.0;
        while passes == 0.0 || (sum.sequence + sum.update < ENOUGH && passes < 1000.0) {
            let next = pass();
            sum.sequence += next.sequence;
            sum.update += next.update;
            passes += 1.0;
        }
        drop((model, optimizer, batch));
        if B::is_asynchronous() {
            B::memory_cleanup(device);
        }
        Self {
            sequence: sum.sequence / passes / sequences as f64,
            update: sum.update / passes,
        }
    }

    /// One pass over a micro-batch, and an update of a copy of the model.
    fn pass<B: TrainingBackend>(
        train: &TrainConfig,
        model: &TrainingModel<B>,
        batch: &TokenBatch<B>,
        optimizer: &mut Optimizer<B::InnerBackend>,
        device: &Device<B>,
    ) -> Self {
        let numbers = StepNumbers {
            step: 0,
            targets: batch.learnt.max(1),
            scale: None,
            rank: Rank::SINGLE,
        };
        let wait = || {
            // A failing device fails again in the first step, which reports the error.
            let _ = B::sync(device);
        };
        let begun = Instant::now();
        let micro_batches = [batch.clone()];
        let made = gradients::of_micro_batches(model, &micro_batches, numbers, train, None, None);
        wait();
        let sequence = begun.elapsed().as_secs_f64();
        if let Some(made) = made {
            let rate = train.schedule.learning_rate();
            B::run(|| {
                let norm = global_norm::<B, _>(model, &made.grads);
                let (_, factor) = gradients::clipping(norm, train.clip_norm, None, device);
                optimizer.update::<B, _>(model.clone(), made.grads, factor, rate)
            });
            wait();
        }
        Self {
            sequence,
            update: begun.elapsed().as_secs_f64() - sequence,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evaluations_follow_the_interval_and_the_end() {
        let mut train = TrainConfig {
            steps: 1000,
            ..TrainConfig::default()
        };
        train.evaluation.interval = 300;
        let counted = [0, 299, 300, 999, 1000].map(|step| evaluations(&train, step));
        assert_eq!(counted, [0, 0, 1, 3, 4]);
        train.evaluation.interval = 250;
        assert_eq!(evaluations(&train, 1000), 4);
    }
}
