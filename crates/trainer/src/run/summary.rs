//! The size of a run, in a line before its first step.

use burn::tensor::Device;
use emberlm_kernels::TrainingBackend;
use emberlm_model::count;
use emberlm_system::digits::grouped;

use super::RunInputs;
use crate::config::TrainConfig;
use crate::{epochs, fit, memory, peak};

/// Floating-point operations from which on a run takes minutes on a CPU, so that a measurement of its matrix product pays.
const WORTH_ESTIMATING: f64 = 2e13;
/// The share of the matrix product's operations per second that training reaches, typically.
const UTILIZATION: f64 = 0.5;

/// Parameters, device, tokens per step, epochs; the time of runs that take minutes, estimated from the device's matrix
/// product; and the predicted memory on CPUs.
pub(super) fn line<B: TrainingBackend>(
    train: &TrainConfig,
    inputs: &RunInputs,
    backend: &str,
    world_size: usize,
    device: &Device<B>,
) -> String {
    let parameters = grouped(count::parameters(&inputs.model).total as u64);
    let step_tokens = train.step_sequences(world_size) * inputs.seq_len as u64;
    let tokens = inputs.data.train_tokens();
    let epochs = epochs::epochs(train.steps, tokens, step_tokens);
    let micro_batches = match train.accumulation {
        1 => String::new(),
        count => format!("{count} × "),
    };
    let mut line = format!(
        "training {parameters} parameters on {backend}: {} steps of {micro_batches}{} × {} = {} tokens, {epochs:.1} epochs of {} tokens",
        grouped(train.steps as u64),
        train.micro_batch,
        inputs.seq_len,
        grouped(step_tokens),
        grouped(tokens),
    );
    let flops = count::flops_per_token(&inputs.model).training as f64
        * (step_tokens * train.steps as u64) as f64;
    if flops > WORTH_ESTIMATING {
        let peak = peak::matrix_product::<B>(train.precision.products, device);
        line += &format!("; about {}", hours(flops / (UTILIZATION * peak)));
    }
    if let Some(mib) = predicted_mib::<B>(train, inputs, device) {
        line += &format!("; about {} MiB of memory", grouped(mib));
    }
    line
}

/// The predicted peak of the process in MiB; `None` for a device with memory of its own, which the prediction is not of.
fn predicted_mib<B: TrainingBackend>(
    train: &TrainConfig,
    inputs: &RunInputs,
    device: &Device<B>,
) -> Option<u64> {
    if B::memory(device).is_some() {
        return None;
    }
    let program = memory::resident().unwrap_or(0);
    let prediction = fit::predict(&inputs.model, train, program).ok()?;
    Some(prediction.total >> 20)
}

/// A time in minutes, or in hours and minutes.
fn hours(seconds: f64) -> String {
    let minutes = (seconds / 60.0).ceil() as u64;
    match (minutes / 60, minutes % 60) {
        (0, minutes) => format!("{minutes} min"),
        (hours, minutes) if hours < 10 => format!("{hours} h {minutes} min"),
        (hours, _) => format!("{} h", grouped(hours)),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn times_are_in_minutes_and_hours() {
        for (seconds, text) in [
            (90.0, "2 min"),
            (3600.0, "1 h 0 min"),
            (70_000.0, "19 h"),
            (4e6, "1,111 h"),
        ] {
            assert_eq!(super::hours(seconds), text);
        }
    }
}
