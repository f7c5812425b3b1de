//! The metrics of tasks in the log of a run.

use crate::report::metrics::{Direction, Metric, Phase};

/// The declaration of a task's metric.
pub(super) fn declared(task: &str, metric: &str, lower_is_better: bool) -> Metric {
    let direction = match lower_is_better {
        true => Direction::LowerIsBetter,
        false => Direction::HigherIsBetter,
    };
    Metric::new(metric_name(task, metric), format!("{task} {metric}"))
        .phase(Phase::Validation)
        .direction(direction)
}

/// The name of a metric in `events.jsonl`: `arc_easy_acc_norm`.
pub(super) fn metric_name(task: &str, metric: &str) -> String {
    let allowed = |c: char| match c.to_ascii_lowercase() {
        c if c.is_ascii_alphanumeric() => c,
        _ => '_',
    };
    format!("{task}_{metric}").chars().map(allowed).collect()
}
