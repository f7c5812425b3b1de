//! Benchmarks: speed and memory of the training step on random batches, and throughput of the data loader.

use std::sync::Arc;
use std::time::Instant;

use burn::data::dataloader::DataLoader;
use burn::module::AutodiffModule;
use burn::tensor::Device;
use emberlm_data::{Batch, DataError, IGNORED};
use emberlm_kernels::{Backend, TrainingBackend};
use emberlm_model::{ModelKind, TransformerConfig, count};
use emberlm_system::measure::median;

use crate::config::{ObjectiveConfig, TrainConfig};
use crate::data::TrainingData;
use crate::error::TrainError;
use crate::fit::SequenceSizes;
use crate::memory;
use crate::objective::adapted;
use crate::objective::loader::{TrainLoader, to_tensors};
use crate::objective::model::{TokenBatch, TrainingModel};
use crate::objective::{HostBatch, TrainSource};
use crate::optimizer::Optimizer;
use crate::peers::{Peers, Rank, SimulatedPeers, SingleProcess};
use crate::read::host_read;
use crate::step::engine::{EngineOptions, ReadPolicy, StepBatches, StepEngine, StepPosition};

/// Warm-up steps for caches, the allocator and kernels.
pub const WARM_UP: usize = 3;

/// The result of a benchmark.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Parameters of the model.
    pub parameters: usize,
    /// Tokens per second at the median step time.
    pub tokens_per_second: f64,
    /// The median step time in seconds.
    pub seconds_per_step: f64,
    /// The peak resident memory of the process so far, if the system reports it.
    pub peak_bytes: Option<u64>,
    /// Memory reserved on the device; an upper bound of the peak in use. `None` if the device shares the
    /// CPU's memory.
    pub device_bytes: Option<u64>,
    /// Model FLOP/s, forward and backward (`count::flops_per_token`).
    pub flops: f64,
}

impl Measured {
    /// The model's FLOP/s over `product_flops`, the measured FLOP/s of a large matrix product.
    pub fn utilization(&self, product_flops: f64) -> f64 {
        self.flops / product_flops
    }
}

/// Times `steps` training steps after `warm_up` untimed ones. A step is the one of the training loop with the
/// settings of `train`: forward and backward pass of every micro-batch, clipping and update.
///
/// # Errors
/// The sequences are longer than the model's context, or the model does not support isolated documents.
pub fn measure<B: TrainingBackend>(
    model: &TransformerConfig,
    train: &TrainConfig,
    warm_up: usize,
    steps: usize,
    device: &Device<B>,
) -> Result<Measured, TrainError> {
    measure_among::<B>(
        model,
        train,
        Arc::new(SingleProcess),
        warm_up,
        steps,
        device,
    )
}

/// As [`measure`], on one of several ranks, which share the micro-batches of each step. Throughput is that of all ranks.
///
/// # Errors
/// As [`measure`]; also if the micro-batches cannot be divided among the ranks.
pub fn measure_among<B: TrainingBackend>(
    model: &TransformerConfig,
    train: &TrainConfig,
    peers: Arc<dyn Peers<B::InnerBackend>>,
    warm_up: usize,
    steps: usize,
    device: &Device<B>,
) -> Result<Measured, TrainError> {
    let (measured, _) = measure_steps::<B>(model, train, peers, warm_up, steps, device)?;
    Ok(measured)
}

/// Measures the peak memory of a run: two steps and then an evaluation of one batch, with the optimizer's
/// state still allocated. The first step allocates that state; the second one holds it throughout. With several `ranks`,
/// that of rank 0, without the memory of an MPI library: its peers are simulated.
///
/// # Errors
/// See [`measure`].
pub fn measure_peak<B: TrainingBackend>(
    model: &TransformerConfig,
    train: &TrainConfig,
    ranks: usize,
    device: &Device<B>,
) -> Result<Measured, TrainError> {
    let peers: Arc<dyn Peers<B::InnerBackend>> = match ranks > 1 {
        true => Arc::new(SimulatedPeers::new(ranks)),
        false => Arc::new(SingleProcess),
    };
    let (measured, after) = measure_steps::<B>(model, train, peers, 1, 1, device)?;
    let sizes = SequenceSizes::of(model, train)?;
    let evaluated = TrainConfig {
        micro_batch: train.evaluation.batch,
        ..train.clone()
    };
    let batch = random_tensors::<B::InnerBackend>(model, &evaluated, sizes, device);
    if let Some(trained) = after.training.as_ref().map(AutodiffModule::valid) {
        host_read(B::run(|| match trained.class_logits(&batch) {
            Some(logits) => logits.sum(),
            None => trained.loss_sum(batch),
        }));
    }
    drop(after.engine);
    Ok(Measured {
        peak_bytes: memory::peak(),
        device_bytes: B::memory(device).map(|memory| memory.reserved),
        ..measured
    })
}

/// A model in training on random batches.
struct Steps<'a, B: TrainingBackend> {
    model: &'a TransformerConfig,
    train: &'a TrainConfig,
    device: &'a Device<B>,
    sizes: SequenceSizes,
    micro_batches: usize,
    /// Steps that run together: on an asynchronous device, the training loop reads losses only when it logs.
    together: usize,
    /// `None` while a step runs.
    training: Option<TrainingModel<B>>,
    engine: StepEngine<B>,
}

impl<'a, B: TrainingBackend> Steps<'a, B> {
    fn new(
        model: &'a TransformerConfig,
        train: &'a TrainConfig,
        peers: Arc<dyn Peers<B::InnerBackend>>,
        device: &'a Device<B>,
    ) -> Result<Self, TrainError> {
        let micro_batches = train.rank_micro_batches(peers.rank())?;
        let sizes = SequenceSizes::of(model, train)?;
        if train.documents.isolates_documents() {
            model.check_documents()?;
        }
        let initial = model.init::<B>(train.seed, device);
        let training = adapted(initial, train.adapter.as_ref(), train.seed)?;
        let mut training: TrainingModel<B> = training.into();
        training = training.with_precision(train.precision.products);
        let optimizer = Optimizer::new(train, training.parameters()).sharded(peers.rank());
        let options = EngineOptions::of::<B>(train, device);
        // With several ranks, parameters are gathered while the next step begins.
        let is_waiting =
            options.read_policy == ReadPolicy::EveryStep && peers.rank().world_size() == 1;
        let together = match is_waiting {
            true => 1,
            false => train.log_interval.max(1),
        };
        let engine = StepEngine::<B>::new(
            train.clone(),
            options.read_policy,
            peers,
            optimizer,
            None,
            StepPosition {
                loss_scale: options.loss_scale,
                ..StepPosition::default()
            },
        );
        Ok(Self {
            model,
            train,
            device,
            sizes,
            micro_batches,
            together,
            training: Some(training),
            engine,
        })
    }

    fn batches(&self) -> StepBatches<B> {
        let batch = |_| random_tensors::<B>(self.model, self.train, self.sizes, self.device);
        StepBatches::new((0..self.micro_batches).map(batch).collect())
    }

    /// Takes a step, and waits for its result if it `is_last`. Random tokens give no step that has to be recomputed.
    fn step(&mut self, batches: StepBatches<B>, is_last: bool) -> Result<(), TrainError> {
        if let Some(training) = self.training.take() {
            let (training, report) = self.engine.step(training, batches, is_last);
            self.training = Some(training);
            report?;
        }
        Ok(())
    }

    /// Takes `count` steps, and returns the seconds of one.
    fn time(&mut self, count: usize) -> Result<f64, TrainError> {
        let made: Vec<_> = (0..count).map(|_| self.batches()).collect();
        let start = Instant::now();
        for (number, batches) in (1..).zip(made) {
            self.step(batches, number == count)?;
        }
        Ok(start.elapsed().as_secs_f64() / count as f64)
    }
}

/// Implements [`measure`]; also returns the model and the engine.
fn measure_steps<'a, B: TrainingBackend>(
    model: &'a TransformerConfig,
    train: &'a TrainConfig,
    peers: Arc<dyn Peers<B::InnerBackend>>,
    warm_up: usize,
    steps: usize,
    device: &'a Device<B>,
) -> Result<(Measured, Steps<'a, B>), TrainError> {
    let mut taken = Steps::<B>::new(model, train, peers, device)?;
    let tokens = train.micro_batch * train.accumulation * taken.sizes.input;
    for _ in 0..warm_up {
        taken.time(1)?;
    }
    let mut seconds = Vec::with_capacity(steps);
    let mut left = steps;
    while left > 0 {
        let count = left.min(taken.together);
        seconds.push(taken.time(count)?);
        left -= count;
    }
    let median = median(seconds);
    let measured = Measured {
        parameters: model.parameters() as usize,
        tokens_per_second: tokens as f64 / median,
        seconds_per_step: median,
        peak_bytes: memory::peak(),
        device_bytes: B::memory(device).map(|memory| memory.reserved),
        flops: count::flops_per_token(model).training as f64 * tokens as f64 / median,
    };
    Ok((measured, taken))
}

/// Takes `warm_up` training steps, and another one within `observe`, which calls the function that it is given once. Like
/// most steps of a run, that one does not wait for its result if the device is asynchronous.
///
/// # Errors
/// See [`measure`].
pub fn observe_step<B: TrainingBackend, T>(
    model: &TransformerConfig,
    train: &TrainConfig,
    warm_up: usize,
    device: &Device<B>,
    observe: impl FnOnce(&mut dyn FnMut() -> Result<(), TrainError>) -> T,
) -> Result<T, TrainError> {
    let mut steps = Steps::<B>::new(model, train, Arc::new(SingleProcess), device)?;
    for _ in 0..warm_up {
        steps.time(1)?;
    }
    let mut batches = Some(steps.batches());
    Ok(observe(&mut || match batches.take() {
        Some(batches) => steps.step(batches, false),
        None => Ok(()),
    }))
}

/// Positions per second that the training loop's loader delivers as tensors, measured over `batches`
/// micro-batches after a warm-up of a tenth as many.
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
    let loader = TrainLoader {
        source: TrainSource::next_token(windows),
        first_window: 0,
        micro_batch: train.micro_batch,
        repeated: None,
        rank: Rank::SINGLE,
        workers: train.loader_workers,
        windows: u64::MAX,
        device: device.clone(),
    };
    let mut made = DataLoader::<B, Result<TokenBatch<B>, DataError>>::iter(&loader);
    let mut take = |count: usize| -> Result<usize, DataError> {
        let taken = made.by_ref().take(count);
        taken.map(|batch| Ok(batch?.count())).sum()
    };
    take(batches / 10)?;
    let start = Instant::now();
    let positions = take(batches)?;
    Ok(positions as f64 / start.elapsed().as_secs_f64())
}

/// A batch for a model of any kind, on the device. Inputs of labelled texts and of pairs have padding masks, as in a run.
fn random_tensors<B: Backend>(
    model: &TransformerConfig,
    train: &TrainConfig,
    sizes: SequenceSizes,
    device: &Device<B>,
) -> TokenBatch<B> {
    if model.kind() == ModelKind::Decoder {
        return to_tensors::<B>(&random_batch(model, train, sizes.input), device);
    }
    let batch = train.micro_batch;
    let mut id = pseudo_random(model.vocab_size());
    let inputs = (0..batch * sizes.input).map(|_| id()).collect();
    let (target_seq, targets) = match (model.kind(), &train.objective) {
        (ModelKind::Encoder, ObjectiveConfig::Classify(_)) => (1, vec![0; batch]),
        (ModelKind::Encoder, _) => {
            // Of masked tokens, one in seven.
            let chosen = |at: usize| if at.is_multiple_of(7) { id() } else { IGNORED };
            let targets = (0..batch * sizes.input).map(chosen);
            (sizes.input, targets.collect())
        }
        _ => {
            let targets = (0..batch * sizes.target).map(|_| id());
            (sizes.target, targets.collect())
        }
    };
    let reads_records = train.objective.reads_records();
    let host = HostBatch {
        inputs,
        documents: None,
        segments: None,
        lengths: reads_records.then(|| vec![sizes.input; batch]),
        targets,
        batch,
        seq: sizes.input,
        target_seq,
        completions: None,
    };
    host.to_tensors(device)
}

/// A generator of pseudo-random ids below `vocab_size`, always the same.
pub fn pseudo_random(vocab_size: usize) -> impl FnMut() -> u32 {
    let mut state = 1u64;
    move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) % vocab_size as u64) as u32
    }
}

/// A batch of pseudo-random ids, the same on every call. With isolated documents, each sequence holds two.
pub(crate) fn random_batch(model: &TransformerConfig, train: &TrainConfig, seq: usize) -> Batch {
    let batch = train.micro_batch;
    let count = batch * seq;
    let mut id = pseudo_random(model.vocab_size());
    let inputs: Vec<u32> = (0..count).map(|_| id()).collect();
    let targets = (0..count).map(|_| id()).collect();
    let half = seq / 2;
    let begin = |at: usize| if at % seq < half { 0 } else { half as u32 };
    let documents = || (0..count).map(begin).collect();
    Batch {
        inputs,
        targets,
        documents: train.documents.isolates_documents().then(documents),
        batch,
        seq,
    }
}
