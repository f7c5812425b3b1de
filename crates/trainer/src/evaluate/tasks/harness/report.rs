//! The results of a task.

use serde::Serialize;

use super::corpus;
use super::filters::Pipeline;
use super::metrics::{Metric, MetricKind, weighted};
use super::{HarnessItem, HarnessTask, Reference, Request, TaskRequests};
use crate::evaluate::tasks::largest;
use crate::evaluate::tasks::likelihood::Likelihood;
use crate::evaluate::tasks::statistics::Estimate;

/// The result of a task.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskReport {
    /// The name of the task.
    pub task: String,
    /// Few-shot examples before each item.
    pub num_fewshot: usize,
    /// The metrics, in the order of the file.
    pub metrics: Vec<TaskMetric>,
    /// The answer to each item.
    pub answers: Vec<TaskAnswer>,
}

/// The value of a metric.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskMetric {
    /// The metric.
    pub kind: MetricKind,
    /// The name of the filter of the answers; `none` without one.
    pub filter: String,
    /// The value, with a standard error unless it is a perplexity per word or byte.
    pub estimate: Estimate,
}

/// The answer to an item.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum TaskAnswer {
    /// Of `multiple_choice`.
    Choice {
        /// The numbers of the correct choices.
        correct: Vec<usize>,
        /// The number of the most probable choice.
        choice: usize,
        /// `ln p(choice)` of each choice, in nats.
        log_likelihoods: Vec<f64>,
    },
    /// Of `loglikelihood` and `loglikelihood_rolling`.
    Likelihood {
        /// `ln p(target)`, in nats.
        log_likelihood: f64,
        /// True if greedy decoding would produce the target.
        greedy: bool,
    },
    /// Of `generate_until`.
    Text {
        /// The generated text before filters.
        answer: String,
        /// The texts that it is compared with.
        targets: Vec<String>,
    },
}

impl TaskReport {
    /// The metrics with their names and filters ([`MetricKind::filtered`]).
    pub fn named(&self) -> impl Iterator<Item = (String, &TaskMetric)> {
        named(&self.metrics)
    }
}

/// Metrics with their names and filters.
pub(super) fn named(metrics: &[TaskMetric]) -> impl Iterator<Item = (String, &TaskMetric)> {
    let metrics = metrics.iter();
    metrics.map(|metric| (metric.kind.filtered(&metric.filter), metric))
}

impl HarnessTask {
    /// Computes the result from the likelihoods of the rows and the answers to the questions of `requests`, in their order. Without
    /// `bootstrap`, metrics over all answers have no standard error.
    pub fn report(
        &self,
        requests: &TaskRequests,
        likelihoods: &[Likelihood],
        answers: &[String],
        bootstrap: bool,
    ) -> TaskReport {
        let starts = std::iter::once(0).chain(requests.ends.iter().copied());
        let found = starts
            .zip(&requests.ends)
            .map(|(start, &end)| &likelihoods[start..end]);
        let scored: Vec<(&HarnessItem, &[Likelihood])> = self.items.iter().zip(found).collect();
        let mut texts = answers.iter();
        let answers: Vec<TaskAnswer> = scored
            .iter()
            .map(|(item, found)| answer(item, found, &mut texts))
            .collect();
        let mut metrics = Vec::new();
        for metric in &self.config.metrics {
            for filter in &self.config.filters {
                let of_all = corpus::estimate(metric.kind, &answers, filter, bootstrap);
                metrics.push(TaskMetric {
                    kind: metric.kind,
                    filter: filter.name.clone(),
                    estimate: of_all.unwrap_or_else(|| estimate(metric, filter, &scored, &answers)),
                });
            }
        }
        TaskReport {
            task: self.config.name.clone(),
            num_fewshot: self.config.num_fewshot,
            metrics,
            answers,
        }
    }
}

/// The value of a metric that has a value for each item.
fn estimate(
    metric: &Metric,
    filter: &Pipeline,
    scored: &[(&HarnessItem, &[Likelihood])],
    answers: &[TaskAnswer],
) -> Estimate {
    let of = |((item, found), answer): (&(&HarnessItem, &[Likelihood]), &TaskAnswer)| match answer {
        TaskAnswer::Text { answer, targets } => {
            let answer = filter.apply(answer);
            f64::from(targets.iter().any(|target| metric.matches(&answer, target)))
        }
        _ => value(metric, item, found),
    };
    let values: Vec<f64> = scored.iter().zip(answers).map(of).collect();
    match metric.kind {
        MetricKind::Perplexity => Estimate::mean(values.into_iter().map(|value| -value)).exp(),
        MetricKind::WordPerplexity | MetricKind::BytePerplexity | MetricKind::BitsPerByte => {
            let units = scored.iter().map(|(item, _)| units(metric.kind, item));
            weighted(metric.kind, values.into_iter().zip(units))
        }
        _ => Estimate::mean(values),
    }
}

fn answer<'a>(
    item: &HarnessItem,
    found: &[Likelihood],
    texts: &mut impl Iterator<Item = &'a String>,
) -> TaskAnswer {
    match &item.answer {
        Reference::Choice { choices, correct } => {
            let sums: Vec<f64> = found
                .iter()
                .take(choices.len())
                .map(|found| found.sum)
                .collect();
            TaskAnswer::Choice {
                correct: correct.clone(),
                choice: largest(&sums),
                log_likelihoods: sums,
            }
        }
        Reference::None => TaskAnswer::Likelihood {
            log_likelihood: found.iter().map(|found| found.sum).sum(),
            greedy: found.iter().all(|found| found.greedy),
        },
        Reference::Texts(targets) => TaskAnswer::Text {
            answer: texts.next().cloned().unwrap_or_default(),
            targets: targets.clone(),
        },
    }
}

/// The value of a metric for an item that is scored by likelihoods.
fn value(metric: &Metric, item: &HarnessItem, found: &[Likelihood]) -> f64 {
    let Reference::Choice { choices, correct } = &item.answer else {
        return match metric.kind {
            MetricKind::Acc => f64::from(found.iter().all(|found| found.greedy)),
            _ => found.iter().map(|found| found.sum).sum(),
        };
    };
    let (own, unconditional) = found.split_at(choices.len());
    let is_best = |score: &dyn Fn(usize) -> f64| {
        let scores: Vec<f64> = (0..choices.len()).map(score).collect();
        f64::from(correct.contains(&largest(&scores)))
    };
    match metric.kind {
        MetricKind::AccNorm => is_best(&|at| own[at].sum / choices[at].chars().count() as f64),
        MetricKind::AccBytes => is_best(&|at| own[at].sum / choices[at].len() as f64),
        MetricKind::AccMutualInfo => is_best(&|at| own[at].sum - unconditional[at].sum),
        MetricKind::ExactMatch => f64::from(correct.iter().any(|&at| own[at].greedy)),
        _ => is_best(&|at| own[at].sum),
    }
}

/// The words or bytes of a rolling text. As in the harness, blanks at its ends delimit empty words.
fn units(kind: MetricKind, item: &HarnessItem) -> usize {
    let Request::Rolling(text) = &item.request else {
        return 0;
    };
    match kind {
        MetricKind::WordPerplexity => {
            let words = text.split_whitespace().count();
            let blank = |c: Option<char>| usize::from(c.is_some_and(char::is_whitespace));
            match words {
                // One blank between two empty words, or one empty word.
                0 => 1 + usize::from(!text.is_empty()),
                _ => words + blank(text.chars().next()) + blank(text.chars().next_back()),
            }
        }
        _ => text.len(),
    }
}
