//! Training speed and memory: the same step as the loop's, on random batches. And the speed that batches come with.

use std::time::Instant;

use burn::data::dataloader::DataLoader;
use burn::tensor::{Device, ElementConversion};
use emberlm_data::{Batch, Packing};
use emberlm_kernels::TrainingBackend;
use emberlm_model::{DecoderConfig, TrainingPass, count};

use crate::clip::{clip_factor, global_norm};
use crate::config::TrainConfig;
use crate::data::TrainingData;
use crate::error::TrainError;
use crate::gradients::accumulate;
use crate::loader::{Failure, TrainLoader, to_tensors};
use crate::memory;
use crate::optimizer::Optimizer;
use crate::trainee::Trainee;

/// Steps that warm up caches, allocator and kernels.
pub const WARM_UP: usize = 3;

/// What was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// The model's.
    pub parameters: usize,
    /// Over the median step.
    pub tokens_per_second: f64,
    /// The median.
    pub seconds_per_step: f64,
    /// The process's largest resident memory so far, where the system tells.
    pub peak_bytes: Option<u64>,
}

/// Measures `steps` steps as `train` has them (its micro-batches forward, mean loss, backward, clipping, update) after
/// `warm_up` others.
///
/// # Errors
/// Its sequences are longer than the model's context, or the model cannot keep documents apart where it is to.
pub fn measure<B: TrainingBackend>(
    model: &DecoderConfig,
    train: &TrainConfig,
    warm_up: usize,
    steps: usize,
    device: &Device<B>,
) -> Result<Measured, TrainError> {
    let seq = train.sequence_tokens(model.seq_len)?;
    if train.documents == Packing::Isolated {
        model.check_documents()?;
    }
    let decoder = model.init::<B>(train.seed, device);
    let decoder = decoder.with_precision(train.precision);
    let mut trainee = Trainee { decoder };
    let mut optimizer = Optimizer::new(train);
    let tokens = train.micro_batch * train.accumulation * seq;
    let mut seconds = Vec::with_capacity(steps);
    for step in 0..warm_up + steps {
        let batches = (0..train.accumulation)
            .map(|_| to_tensors::<B>(&random_batch(model, train, seq), device))
            .collect();
        let passes = TrainingPass::of_step(train.seed, step as u64, train.recompute);
        let start = Instant::now();
        trainee = B::run(|| {
            let (loss, grads) = accumulate(&trainee, batches, tokens, train.objective(), passes);
            let norm = (train.clip_norm > 0.0).then(|| global_norm::<B, _>(&trainee, &grads));
            let factor = norm
                .flatten()
                .and_then(|norm| clip_factor(norm, train.clip_norm));
            let trainee = optimizer.update::<B, _>(trainee, grads, factor, train.learning_rate);
            // Reading the loss waits for the step, on devices that work behind the program's back; the next step would
            // wait for the update.
            let _: f32 = loss.into_scalar().elem();
            trainee
        });
        if step >= warm_up {
            seconds.push(start.elapsed().as_secs_f64());
        }
    }
    seconds.sort_unstable_by(f64::total_cmp);
    let median = seconds.get(seconds.len() / 2).copied().unwrap_or(f64::NAN);
    Ok(Measured {
        parameters: count::parameters(model).total,
        tokens_per_second: tokens as f64 / median,
        seconds_per_step: median,
        peak_bytes: memory::peak(),
    })
}

/// The positions per second that come as tensors from the loop's own loader, taken as fast as they come: over `batches`
/// micro-batches as `train` has them, after a tenth as many.
///
/// # Errors
/// The data cannot be read.
pub fn measure_loader<B: TrainingBackend>(
    data: &TrainingData,
    train: &TrainConfig,
    batches: usize,
    device: &Device<B>,
) -> Result<f64, TrainError> {
    let (windows, _) = data.batches(train.seed, train.seq_len, train.documents)?;
    let failure = Failure::default();
    let loader = TrainLoader::<B> {
        batches: windows,
        first_window: 0,
        micro_batch: train.micro_batch,
        workers: train.loader_workers,
        windows: u64::MAX,
        device: device.clone(),
        failure: failure.clone(),
    };
    let mut made = loader.iter();
    let mut take = |count: usize| made.by_ref().take(count).map(|batch| batch.count()).sum();
    let _: usize = take(batches / 10);
    let start = Instant::now();
    let positions: usize = take(batches);
    let seconds = start.elapsed().as_secs_f64();
    match failure.take() {
        Some(error) => Err(error.into()),
        None => Ok(positions as f64 / seconds),
    }
}

/// Ids that look random; the same every time. Where documents are isolated, there are two in a row.
pub(crate) fn random_batch(model: &DecoderConfig, train: &TrainConfig, seq: usize) -> Batch {
    let batch = train.micro_batch;
    let count = batch * seq;
    let mut state = 1u64;
    let mut id = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) % model.vocab_size as u64) as u32
    };
    let inputs: Vec<u32> = (0..count).map(|_| id()).collect();
    let targets = (0..count).map(|_| id()).collect();
    let half = seq / 2;
    let begin = |at: usize| if at % seq < half { 0 } else { half as u32 };
    let documents = || (0..count).map(begin).collect();
    Batch {
        inputs,
        targets,
        documents: (train.documents == Packing::Isolated).then(documents),
        batch,
        seq,
    }
}
