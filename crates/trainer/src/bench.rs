//! Training speed: the same step as the loop's on one random batch, without clipping, as the peers are measured.

use std::time::Instant;

use burn::tensor::{Device, ElementConversion};
use emberlm_data::Batch;
use emberlm_kernels::TrainingBackend;
use emberlm_model::{DecoderConfig, count};

use crate::config::TrainConfig;
use crate::loader::to_tensors;
use crate::optimizer::Optimizer;
use crate::trainee::Trainee;

/// Steps that warm up caches, allocator and kernels.
const WARM_UP: usize = 3;

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
    pub peak_rss_mib: Option<u64>,
}

/// Measures `steps` steps (forward, mean loss, backward, update) of `batch` full sequences.
pub fn measure<B: TrainingBackend>(
    model: &DecoderConfig,
    train: &TrainConfig,
    batch: usize,
    steps: usize,
    device: &Device<B>,
) -> Measured {
    let decoder = model.init::<B>(train.seed, device);
    let mut trainee = Trainee { decoder };
    let mut optimizer = Optimizer::new(train);
    let tokens = batch * model.seq_len;
    let mut seconds = Vec::with_capacity(steps);
    for step in 0..WARM_UP + steps {
        let batch = to_tensors::<B>(random_batch(model, batch), device);
        let start = Instant::now();
        let (loss, grads) = trainee.loss_and_gradients(batch, tokens, train.objective());
        trainee = optimizer.update::<B, _>(trainee, grads, None, train.learning_rate);
        // Reading the loss waits for the step, on devices that work behind the program's back; the next step would
        // wait for the update.
        let _: f32 = loss.into_scalar().elem();
        if step >= WARM_UP {
            seconds.push(start.elapsed().as_secs_f64());
        }
    }
    seconds.sort_unstable_by(f64::total_cmp);
    let median = seconds[seconds.len() / 2];
    Measured {
        parameters: count::parameters(model).total,
        tokens_per_second: tokens as f64 / median,
        seconds_per_step: median,
        peak_rss_mib: peak_rss_mib(),
    }
}

/// Ids that look random; the same every time.
fn random_batch(model: &DecoderConfig, batch: usize) -> Batch {
    let count = batch * model.seq_len;
    let mut state = 1u64;
    let mut id = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) % model.vocab_size as u64) as u32
    };
    let inputs: Vec<u32> = (0..count).map(|_| id()).collect();
    let targets = (0..count).map(|_| id()).collect();
    Batch {
        inputs,
        targets,
        batch,
        seq: model.seq_len,
    }
}

/// The most memory that the process has held so far, by Linux's account; none elsewhere.
pub fn peak_rss_mib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib / 1024)
}
