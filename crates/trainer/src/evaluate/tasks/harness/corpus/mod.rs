//! Metrics over all answers of a task at once. They are functions of counts that are added up over the items.
//!
//! `classification` counts pairs of correct and chosen choices, as scikit-learn does. `bleu` and `chrf` count the n-grams
//! (`ngrams`) of texts and `ter` their edits, as sacrebleu does, with its tokenizer `13a` (`tokenizer_13a`) and Python's
//! words (`words`).

mod bleu;
mod chrf;
mod classification;
mod ngrams;
mod ter;
mod tokenizer_13a;
mod words;

use super::fields::Doc;
use super::filters::Pipeline;
use super::metrics::{Metric, MetricKind};
use super::report::TaskAnswer;
use crate::evaluate::tasks::bootstrap;
use crate::evaluate::tasks::statistics::Estimate;

/// Bootstrap samples of the harness for a metric of choices.
const CHOICE_SAMPLES: usize = 100_000;
/// Bootstrap samples of the harness for a metric of texts.
const TEXT_SAMPLES: usize = 100;

/// The value of a metric, with the standard error of the harness if there is a bootstrap. `None` if it is not a metric over all
/// answers.
pub(super) fn estimate(
    kind: MetricKind,
    answers: &[TaskAnswer],
    filter: &Pipeline,
    bootstrap: bool,
) -> Option<Estimate> {
    let (score, samples): (fn(&[u64]) -> f64, usize) = match kind {
        MetricKind::F1 => (classification::f1, CHOICE_SAMPLES),
        MetricKind::Mcc => (classification::mcc, CHOICE_SAMPLES),
        MetricKind::Bleu => (bleu::score, TEXT_SAMPLES),
        MetricKind::Chrf | MetricKind::ChrfPlusPlus => (chrf::score, TEXT_SAMPLES),
        MetricKind::Ter => (ter::score, TEXT_SAMPLES),
        _ => return None,
    };
    let classes = answers.iter().map(choices).max().unwrap_or(0);
    let items: Vec<Vec<u64>> = answers
        .iter()
        .map(|answer| counts(kind, answer, filter, classes))
        .collect();
    Some(Estimate {
        value: score(&bootstrap::sum(&items)),
        stderr: bootstrap
            .then(|| bootstrap::stderr(&items, samples, score))
            .flatten(),
    })
}

/// The number of choices of an item.
fn choices(answer: &TaskAnswer) -> usize {
    match answer {
        TaskAnswer::Choice {
            log_likelihoods, ..
        } => log_likelihoods.len(),
        _ => 0,
    }
}

/// The counts of an item, of as many kinds as those of every other one.
fn counts(kind: MetricKind, answer: &TaskAnswer, filter: &Pipeline, classes: usize) -> Vec<u64> {
    match answer {
        TaskAnswer::Choice {
            correct, choice, ..
        } => {
            let correct = correct.first().copied().unwrap_or_default();
            classification::counts(correct, *choice, classes)
        }
        TaskAnswer::Text { answer, targets } => {
            let answer = filter.apply(answer);
            let target = targets.first().map_or("", String::as_str);
            match kind {
                MetricKind::Bleu => bleu::counts(&answer, target),
                MetricKind::Ter => ter::counts(&answer, target),
                MetricKind::ChrfPlusPlus => chrf::counts(&answer, target, 2),
                _ => chrf::counts(&answer, target, 0),
            }
        }
        TaskAnswer::Likelihood { .. } => Vec::new(),
    }
}

/// Rejects a document that one of the metrics is not defined for.
pub(super) fn check(metrics: &[Metric], doc: &Doc) -> Result<(), String> {
    let kinds = metrics.iter().map(|metric| metric.kind);
    for kind in kinds.filter(|kind| kind.is_of_corpus()) {
        let name = kind.name();
        let targets = doc.target.as_array().map_or(1, Vec::len);
        let is_of_choices = matches!(kind, MetricKind::F1 | MetricKind::Mcc);
        if doc.target.is_array() && (targets != 1 || !is_of_choices) {
            return Err(format!(
                "`doc_to_target` is a list: must be one target for the metric {name}"
            ));
        }
        let choices = doc.choices.as_ref().map_or(0, Vec::len);
        if kind == MetricKind::F1 && choices > 2 {
            return Err(format!(
                "`doc_to_choice` has {choices} choices: must be 2 for the metric {name}, of which the second one is positive"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
