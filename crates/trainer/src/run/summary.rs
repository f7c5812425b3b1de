//! The summary line of a run before its first step.

use burn::tensor::Device;
use emberlm_kernels::TrainingBackend;
use emberlm_system::digits::grouped;

use super::{RunInputs, duration};
use crate::config::TrainConfig;
use crate::objective::TrainSource;
use crate::optimizer::RankCost;
use crate::run::initial_state::InitialState;
use crate::step::devices::RankDevices;
use crate::{epochs, fit, memory};

/// Formats parameters, device, tokens per step and epochs, the predicted duration unless it is a few seconds, and on
/// CPUs the predicted memory.
pub(super) fn line<B: TrainingBackend>(
    train: &TrainConfig,
    inputs: &RunInputs,
    initial: &InitialState<B>,
    devices: &RankDevices,
    device: &Device<B>,
) -> String {
    let all = grouped(inputs.model.parameters() as u64);
    let parameters = match train.adapter {
        Some(_) => {
            let parameters = initial.model.parameters();
            let trained = parameters.iter().filter(|parameter| parameter.trainable);
            let count: usize = trained
                .map(|parameter| parameter.shape.iter().product::<usize>())
                .sum();
            format!(
                "an adapter of {} parameters for {all}",
                grouped(count as u64)
            )
        }
        None => format!("{all} parameters"),
    };
    // Records are counted, not their tokens.
    let (is_of_records, length, unit) = match inputs.source {
        TrainSource::Records(_) => (true, 1, "texts"),
        TrainSource::Pairs(_) => (true, 1, "pairs"),
        TrainSource::Prompts(_) => (true, 1, "completions"),
        TrainSource::Windows { .. } => (false, inputs.seq_len as u64, "tokens"),
    };
    let of_run = train.sequences_before(train.steps) * length;
    let passes = match train.overfit_batch {
        true => "the same in each step".to_owned(),
        false => {
            let epochs = epochs::epochs(1, inputs.size, of_run);
            format!("{epochs:.1} epochs of {} {unit}", grouped(inputs.size))
        }
    };
    let counts = train.accumulations();
    let (least, most) = counts.fold((usize::MAX, 0), |(least, most), count| {
        (least.min(count), most.max(count))
    });
    let micro_batches = match (least, most) {
        (1, 1) => String::new(),
        (least, most) if least == most => format!("{most} × "),
        (least, most) => format!("{least} to {most} × "),
    };
    let of_step = |count: usize| grouped(count as u64 * train.micro_batch as u64 * length);
    let of_step = match least == most {
        true => of_step(most),
        false => format!("{} to {}", of_step(least), of_step(most)),
    };
    let sequences = match is_of_records {
        true => train.micro_batch.to_string(),
        false => format!("{} × {length}", train.micro_batch),
    };
    let world_size = devices.count();
    let ranks = match world_size {
        1 => String::new(),
        count => format!(", {count} ranks"),
    };
    let mut line = format!(
        "training {parameters} on {}{ranks}: {} steps of {micro_batches}{sequences} = {} {unit}, {passes}",
        initial.state.backend,
        grouped(train.steps as u64),
        of_step,
    );
    // Before the measurement, whose memory the process keeps.
    let memory = predicted_bytes::<B>(train, inputs, world_size, device);
    let step = initial.state.step;
    // Only the device of rank 0 is measured.
    let seconds = match devices.are_alike() {
        true => duration::predict(train, inputs, &initial.model, step, world_size, device),
        false => None,
    };
    if let Some(seconds) = seconds {
        let left = if step > 0 { " left" } else { "" };
        line += &format!("; about {}{left}", hours(seconds));
    }
    if let Some(mib) = memory.map(|bytes| bytes >> 20) {
        let each = if world_size > 1 { " per rank" } else { "" };
        line += &format!("; about {} MiB of memory{each}", grouped(mib));
    }
    line
}

/// Formats the memory that a rank holds and its exchanges.
pub(super) fn rank_line(cost: RankCost, train: &TrainConfig) -> String {
    let mib = |bytes: u64| format!("{:.1} MiB", bytes as f64 / (1 << 20) as f64);
    let average = match train.ema > 0.0 {
        true => format!(", {} of averaged weights", mib(cost.weights)),
        false => String::new(),
    };
    format!(
        "each of {} ranks: {} of weights, at most {} of optimizer state ({} in all){average}; sends and receives {} per step",
        cost.world_size,
        mib(cost.weights),
        mib(cost.state),
        mib(cost.all_state),
        mib(cost.exchanged),
    )
}

/// The predicted peak memory of a rank in bytes; `None` for a device with its own memory, which is not
/// predicted.
fn predicted_bytes<B: TrainingBackend>(
    train: &TrainConfig,
    inputs: &RunInputs,
    ranks: usize,
    device: &Device<B>,
) -> Option<u64> {
    if B::memory(device).is_some() {
        return None;
    }
    let program = memory::resident().unwrap_or(0);
    let prediction = fit::predict_rank(&inputs.model, &inputs.sized(train), ranks, program).ok()?;
    Some(prediction.total)
}

/// Formats a time in seconds, in minutes, or in hours and minutes.
fn hours(seconds: f64) -> String {
    if seconds < 100.0 {
        return format!("{} s", seconds.ceil());
    }
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
    fn durations_use_seconds_minutes_and_hours() {
        for (seconds, text) in [
            (39.2, "40 s"),
            (110.0, "2 min"),
            (3600.0, "1 h 0 min"),
            (70_000.0, "19 h"),
            (4e6, "1,111 h"),
        ] {
            assert_eq!(super::hours(seconds), text);
        }
    }
}
