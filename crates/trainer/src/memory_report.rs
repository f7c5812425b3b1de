//! The device memory of a training step, part by part.

use burn::module::AutodiffModule;
use burn::optim::GradientsParams;
use burn::tensor::Device;
use emberlm_data::Packing;
use emberlm_kernels::TrainingBackend;
use emberlm_model::{DecoderConfig, TrainingPass};
use serde::Serialize;

use crate::bench::random_batch;
use crate::config::TrainConfig;
use crate::ema::Average;
use crate::error::TrainError;
use crate::loader::to_tensors;
use crate::optimizer::Optimizer;
use crate::training_model::TrainingModel;

/// Bytes of a step with one micro-batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MemoryReport {
    /// The parameters, and the tables that follow from the configuration.
    pub weights: u64,
    /// The optimizer's state of them, and their running average where there is one.
    pub optimizer: u64,
    /// One for each parameter.
    pub gradients: u64,
    /// The activations that the blocks and norms keep for their gradients, when the head begins.
    pub activations: u64,
    /// The tensors that the head's loss keeps for its gradients.
    pub head: u64,
    /// A micro-batch's tokens and targets.
    pub batch: u64,
    /// Total memory reserved on the device: the parts, the buffers of running operations, and the memory that is kept
    /// for tensors to come. It is never less than the peak.
    pub reserved: u64,
}

/// Measures a step on random tokens; `None` if the device shares the CPU's memory.
///
/// # Errors
/// Its sequences are longer than the model's context, or the model cannot keep documents apart where it is to.
pub fn measure<B: TrainingBackend>(
    model: &DecoderConfig,
    train: &TrainConfig,
    device: &Device<B>,
) -> Result<Option<MemoryReport>, TrainError> {
    let seq = train.sequence_tokens(model.seq_len())?;
    if train.documents == Packing::Isolated {
        model.check_documents()?;
    }
    let Some(before) = B::memory(device) else {
        return Ok(None);
    };
    let held = || B::memory(device).map_or(0, |memory| memory.in_use);
    // What was there before may have been given back meanwhile.
    let since = |earlier: u64| held().saturating_sub(earlier);

    let decoder = model.init::<B>(train.seed, device);
    let mut training = TrainingModel {
        decoder: decoder.with_precision(train.precision.products),
    };
    let mut report = MemoryReport {
        weights: since(before.in_use),
        ..MemoryReport::default()
    };
    let with_weights = held();

    let batch = to_tensors::<B>(&random_batch(model, train, seq), device);
    report.batch = since(with_weights);
    let with_batch = held();

    let (targets, divisor) = (batch.targets.clone(), batch.learnt.max(1) as f64);
    let pass = TrainingPass {
        recompute: train.recompute,
        ..TrainingPass::default()
    };
    let decoder = &training.decoder;
    let (loss, grads) = decoder.gradients(batch.tokens.clone(), pass, |hidden| {
        report.activations = since(with_batch);
        let with_activations = held();
        let loss = decoder.training_loss_sum_of(hidden, targets, train.objective()) / divisor;
        report.head = since(with_activations);
        loss
    });
    let grads = GradientsParams::from_grads(grads, &training);
    drop(loss);
    report.gradients = since(with_batch);

    let mut optimizer = Optimizer::new(train, training.decoder.parameters());
    let mut average = (train.ema > 0.0).then(|| Average::new(training.valid().decoder, train.ema));
    training = optimizer.update::<B, _>(training, grads, None, train.schedule.learning_rate());
    if let Some(average) = &mut average {
        average.update(&training.valid().decoder, optimizer.updates());
    }
    report.optimizer = since(with_batch);
    report.reserved = B::memory(device).map_or(0, |memory| memory.reserved);
    drop((training, optimizer, average, batch));
    // The run that follows begins with a clean device.
    B::memory_cleanup(device);
    Ok(Some(report))
}
