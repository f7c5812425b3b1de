//! Measures the device memory of a training step by component.

use burn::module::AutodiffModule;
use burn::optim::GradientsParams;
use burn::tensor::Device;
use emberlm_kernels::TrainingBackend;
use emberlm_model::{TrainingPass, TransformerConfig};
use serde::Serialize;

use crate::bench::random_batch;
use crate::config::TrainConfig;
use crate::error::TrainError;
use crate::objective::adapted;
use crate::objective::loader::to_tensors;
use crate::objective::model::TrainingModel;
use crate::optimizer::Optimizer;
use crate::step::ema::Average;

/// The memory of a step with one micro-batch, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MemoryReport {
    /// The parameters, and constant tables such as those of the positions.
    pub weights: u64,
    /// The optimizer's state, and the running average of the weights if there is one.
    pub optimizer: u64,
    /// The gradients of all parameters.
    pub gradients: u64,
    /// The activations that blocks and norms keep for the backward pass, measured when the head begins.
    pub activations: u64,
    /// The tensors that the head's loss keeps for its backward pass.
    pub head: u64,
    /// The tokens and targets of a micro-batch.
    pub batch: u64,
    /// Total memory reserved on the device: the components above, buffers of running operations, and memory
    /// retained for reuse. An upper bound of the peak.
    pub reserved: u64,
}

/// Measures a step on random tokens. `None` if the device shares the CPU's memory.
///
/// # Errors
/// The sequences are longer than the model's context, or the model does not support isolated documents.
pub fn measure<B: TrainingBackend>(
    model: &TransformerConfig,
    train: &TrainConfig,
    device: &Device<B>,
) -> Result<Option<MemoryReport>, TrainError> {
    let seq = train.sequence_tokens(model.seq_len())?;
    if train.documents.isolates_documents() {
        model.check_documents()?;
    }
    let Some(before) = B::memory(device) else {
        return Ok(None);
    };
    let held = || B::memory(device).map_or(0, |memory| memory.in_use);
    // Memory that was in use before may have been freed in the meantime.
    let since = |earlier: u64| held().saturating_sub(earlier);

    let decoder = model.init::<B>(train.seed, device);
    let decoder = adapted(decoder, train.adapter.as_ref(), train.seed)?;
    let decoder = decoder.with_precision(train.precision.products);
    let mut training = TrainingModel::from(decoder.clone());
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
    let (loss, grads) = decoder.gradients(batch.tokens.clone(), pass, |hidden| {
        report.activations = since(with_batch);
        let with_activations = held();
        let loss = decoder.training_loss_sum_of(hidden, targets, train.loss_options()) / divisor;
        report.head = since(with_activations);
        loss
    });
    let grads = GradientsParams::from_grads(grads, &training);
    drop(loss);
    report.gradients = since(with_batch);

    let mut optimizer = Optimizer::new(train, training.parameters());
    let mut average = (train.ema > 0.0).then(|| Average::new(training.valid(), train.ema));
    drop(decoder);
    training = optimizer.update::<B, _>(training, grads, None, train.schedule.learning_rate());
    if let Some(average) = &mut average {
        average.update(&training.valid(), optimizer.updates());
    }
    report.optimizer = since(with_batch);
    report.reserved = B::memory(device).map_or(0, |memory| memory.reserved);
    drop((training, optimizer, average, batch));
    // Release the memory, so the run starts with a clean device.
    B::memory_cleanup(device);
    Ok(Some(report))
}
