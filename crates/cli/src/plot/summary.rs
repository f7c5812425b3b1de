//! The rows of a legend: the losses of each curve.

use super::axis::short;
use super::group::{Group, NamedRun};
use super::mean::Mean;

/// Column headings of the legend. `names` is that of the names.
pub fn headings(names: &str, validated: bool) -> Vec<String> {
    let numbers = match validated {
        true => ["validation loss", "lowest", "at step"],
        false => ["training loss", "tokens", "at step"],
    };
    let all = std::iter::once(names).chain(numbers);
    all.map(str::to_owned).collect()
}

/// The placeholder of a missing number.
pub const NONE: &str = "–";

/// The legend's row of a group. Losses are those of its run, or means with standard deviations.
pub fn row(group: &Group, validated: bool) -> Vec<String> {
    let figures = match validated {
        true => validation(&group.runs),
        false => training(&group.runs),
    };
    std::iter::once(group.label()).chain(figures).collect()
}

/// The last validation loss, the lowest one, and its step.
fn validation(runs: &[NamedRun]) -> [String; 3] {
    let last = runs.iter().filter_map(|run| run.history.last_evaluation());
    let best = || runs.iter().filter_map(|run| run.history.best());
    [
        loss(last.map(|last| last.loss)),
        loss(best().map(|best| best.loss)),
        range(best().map(|best| best.step as f64), |step| step.to_string()),
    ]
}

/// The last training loss, its tokens, and its step.
fn training(runs: &[NamedRun]) -> [String; 3] {
    let last = || runs.iter().filter_map(|run| run.history.steps.last());
    [
        loss(last().map(|last| last.loss)),
        range(last().map(|last| last.tokens as f64), short),
        range(last().map(|last| last.step as f64), |step| step.to_string()),
    ]
}

fn loss(losses: impl Iterator<Item = f64>) -> String {
    let losses: Vec<f64> = losses.collect();
    match Mean::of(&losses) {
        Some(Mean { mean, deviation }) if mean.is_finite() => match losses.len() {
            1 => format!("{mean:.4}"),
            _ => format!("{mean:.4} ± {deviation:.4}"),
        },
        _ => NONE.to_owned(),
    }
}

/// The least and the greatest of some values.
fn range(values: impl Iterator<Item = f64>, shown: impl Fn(f64) -> String) -> String {
    let values: Vec<f64> = values.collect();
    match super::axis::ends(&values) {
        None => NONE.to_owned(),
        Some((low, high)) if shown(low) == shown(high) => shown(low),
        Some((low, high)) => format!("{}–{}", shown(low), shown(high)),
    }
}
