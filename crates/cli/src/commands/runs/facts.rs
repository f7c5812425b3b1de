//! The facts about a run in one line each.

use std::time::Duration;

use chrono::{DateTime, Utc};
use indicatif::HumanDuration;

use super::details::RunDetails;
use crate::plot::short;

/// Names and values of the facts that are known.
pub fn facts(run: &RunDetails) -> Vec<(String, String)> {
    let step = match run.steps {
        Some(steps) => format!("{} of {steps}", run.step),
        None => run.step.to_string(),
    };
    let tags: Vec<&str> = run.tags.iter().map(String::as_str).collect();
    let forked = run.ancestors.first();
    let pace = run.history.paces.last();
    let best = run.best_validation_loss.zip(run.best_step);
    let seconds = run.seconds;
    let time = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let all = [
        ("folder", Some(run.path.display().to_string())),
        (
            "tags",
            Some(tags.join(", ")).filter(|tags| !tags.is_empty()),
        ),
        (
            "note",
            Some(run.note.clone()).filter(|note| !note.is_empty()),
        ),
        (
            "forked from",
            forked.map(|from| format!("{} at step {}", from.run.display(), from.step)),
        ),
        ("step", Some(step)),
        ("tokens", run.tokens.map(|tokens| short(tokens as f64))),
        (
            "training time",
            time.map(|time| HumanDuration(time).to_string()),
        ),
        (
            "throughput",
            pace.map(|pace| format!("{} tokens per second", short(pace.tokens_per_second))),
        ),
        ("last event", run.time.map(date)),
        (
            "lowest validation loss",
            best.map(|(loss, step)| format!("{loss:.4} at step {step}")),
        ),
    ];
    all.into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .collect()
}

/// A time in Unix seconds as a date.
pub fn date(time: f64) -> String {
    let date = DateTime::<Utc>::from_timestamp(time as i64, 0);
    date.map_or_else(
        || format!("{time} s since 1970"),
        |date| date.format("%Y-%m-%d %H:%M:%S UTC").to_string(),
    )
}
