//! The evaluation of a run's validation data.

use std::ops::ControlFlow;

use emberlm_data::{Batch, DataError, EvalBatches};
use emberlm_kernels::Backend;

use crate::data::divided::for_each_batch;
use crate::error::TrainError;
use crate::evaluate::{Evaluation, evaluated_windows, mean_loss};
use crate::objective::model::TrainingModel;
pub(crate) use crate::objective::validation::Validation;
use crate::objective::validation::ValidationSet;
use crate::objective::{
    ClassScores, HostBatch, PairSet, PreferenceScores, RecordSet, RewardValidation, WindowTask,
};
use crate::peers::Peers;
use crate::read::host_read;
use crate::report::events::DatasetLoss;
use crate::report::metrics::MetricValues;

mod limits;

pub(crate) use limits::Limits;

/// The outcome of a validation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ValidationOutcome {
    /// The mean loss in nats per target. With several datasets, the mean of their losses with the weights of training.
    pub(crate) loss: f64,
    /// Predicted targets.
    pub(crate) tokens: u64,
    /// The loss of each dataset; empty for a single one.
    pub(crate) datasets: Vec<DatasetLoss>,
    /// The metrics of the objective.
    pub(crate) metrics: MetricValues,
    /// A text that the evaluation has sampled.
    pub(crate) sample: Option<String>,
}

/// The outcome of a validation, if there is anything to predict. Breaks if a stop was requested.
pub(crate) type Validated = ControlFlow<(), Option<ValidationOutcome>>;

impl Validation {
    /// A log line about a validation of at most `max_tokens` of each dataset. `None` if it has no tokens.
    pub(crate) fn announcement(&self, max_tokens: Option<u64>) -> Option<String> {
        match self {
            Self::Windows { sets, .. } => {
                let tokens = self.tokens(max_tokens);
                (tokens > 0).then(|| format!("validation: {tokens} tokens {}", described(sets)))
            }
            Self::Labelled { records, .. } | Self::Pairs(records) => {
                Some(format!("validation: {} texts", records.len()))
            }
            Self::Preferences(pairs) => Some(format!("validation: {} pairs", pairs.len())),
            Self::Rewards(validation) => {
                let count = validation.prompts.prompts().len();
                Some(format!("validation: {count} prompts"))
            }
        }
    }

    /// Evaluates a model. The outcome is `None` if there is nothing to predict. Breaks if a stop is requested on any rank.
    ///
    /// All ranks must call this with the same model. They divide the batches, and have the same outcome.
    pub(crate) fn evaluate<B: Backend>(
        &self,
        model: &TrainingModel<B>,
        limits: Limits<'_>,
        peers: &dyn Peers<B>,
    ) -> Result<Validated, TrainError> {
        match self {
            Self::Windows {
                sets,
                task,
                sequence,
            } => {
                let tokens = limits.batch.saturating_mul(*sequence);
                evaluate_sets(sets, &**task, tokens, model, limits, peers)
            }
            Self::Labelled { records, labels } => {
                evaluate_labels(records, *labels, model, limits, peers)
            }
            Self::Preferences(pairs) => evaluate_preferences(pairs, model, limits, peers),
            Self::Rewards(validation) => evaluate_rewards(validation, model, limits, peers),
            Self::Pairs(records) => {
                let batches = limits.of_records(records.batches(limits.batch));
                let found = evaluate_batches(batches.map(Ok), model, limits, peers)?;
                Ok(match found {
                    Some(found) => ControlFlow::Continue(Some(ValidationOutcome::of(found))),
                    None => ControlFlow::Break(()),
                })
            }
        }
    }
}

impl ValidationOutcome {
    fn of(evaluation: Evaluation) -> Self {
        Self {
            loss: evaluation.loss,
            tokens: evaluation.tokens,
            datasets: Vec::new(),
            metrics: MetricValues::default(),
            sample: None,
        }
    }
}

/// The mean loss over batches. `None` if a stop is requested.
fn evaluate_batches<B: Backend>(
    batches: impl Iterator<Item = Result<HostBatch, DataError>>,
    model: &TrainingModel<B>,
    limits: Limits<'_>,
    peers: &dyn Peers<B>,
) -> Result<Option<Evaluation>, TrainError> {
    let device = model.device();
    mean_loss(
        peers,
        batches,
        HostBatch::learnt,
        |batch| batch.to_tensors::<B>(&device),
        |batch| model.loss_sum(batch),
        |_| limits.check(),
    )
}

/// The windows of validation splits; with the name of each if they differ.
fn described(sets: &[ValidationSet]) -> String {
    let held = sets.iter().filter(|set| set.windows.split().len() > 1);
    let held: Vec<_> = held
        .map(|set| {
            let windows = evaluated_windows(set.windows.seq_len(), set.windows.packing());
            (set.name.as_str(), windows)
        })
        .collect();
    match &held[..] {
        [(_, first), rest @ ..] if rest.iter().all(|(_, windows)| windows == first) => {
            first.clone()
        }
        _ => {
            let named = held
                .iter()
                .map(|(name, windows)| format!("{windows} ({name})"));
            named.collect::<Vec<_>>().join("; ")
        }
    }
}

/// The mean loss over the validation splits, in batches of about `tokens_at_once` tokens.
fn evaluate_sets<B: Backend>(
    sets: &[ValidationSet],
    task: &dyn WindowTask,
    tokens_at_once: usize,
    model: &TrainingModel<B>,
    limits: Limits<'_>,
    peers: &dyn Peers<B>,
) -> Result<Validated, TrainError> {
    let mut datasets = Vec::new();
    let (mut sum, mut weights, mut tokens) = (0.0, 0.0, 0);
    for set in sets {
        // A dataset may have no validation split.
        if set.windows.split().len() < 2 {
            continue;
        }
        let batch = (tokens_at_once / set.windows.seq_len()).max(1);
        let batches = EvalBatches::new(&set.windows, batch, limits.max_tokens)?;
        let mut window = 0;
        let batches = batches.filter_map(|batch: Result<Batch, DataError>| match batch {
            Ok(batch) => {
                let first = window;
                window += batch.batch as u64;
                task.host_batch(batch, first).map(Ok)
            }
            Err(error) => Some(Err(error)),
        });
        let Some(evaluation) = evaluate_batches(batches, model, limits, peers)? else {
            return Ok(ControlFlow::Break(()));
        };
        if evaluation.tokens == 0 {
            continue;
        }
        sum += set.weight * evaluation.loss;
        weights += set.weight;
        tokens += evaluation.tokens;
        datasets.push(DatasetLoss {
            dataset: set.name.clone(),
            loss: evaluation.loss,
            tokens: evaluation.tokens,
        });
    }
    if sets.len() == 1 {
        datasets.clear();
    }
    let loss = sum / weights;
    Ok(ControlFlow::Continue((tokens > 0).then_some(
        ValidationOutcome {
            loss,
            tokens,
            datasets,
            metrics: MetricValues::default(),
            sample: None,
        },
    )))
}

/// The loss, the accuracy and the F1 of predicted labels.
fn evaluate_labels<B: Backend>(
    records: &RecordSet,
    labels: usize,
    model: &TrainingModel<B>,
    limits: Limits<'_>,
    peers: &dyn Peers<B>,
) -> Result<Validated, TrainError> {
    let device = model.device();
    let mut scores = ClassScores::new(labels);
    let batches = limits.of_records(records.batches(limits.batch)).map(Ok);
    let logits = |batch: &HostBatch| {
        let tensors = batch.to_tensors::<B>(&device);
        // Only classifiers have logits.
        let logits = B::run(|| model.class_logits(&tensors));
        logits.map_or_else(Vec::new, |logits| host_read(logits).iter().collect())
    };
    let add = |batch: &HostBatch, logits: &[f64]| scores.add(logits, &batch.targets);
    let found = for_each_batch(peers, batches, logits, add, || limits.check())?;
    Ok(found.map_continue(|()| {
        (scores.count() > 0).then(|| ValidationOutcome {
            loss: scores.loss(),
            tokens: scores.count(),
            datasets: Vec::new(),
            metrics: scores.values(),
            sample: None,
        })
    }))
}

/// The loss and the rewards of pairs.
fn evaluate_preferences<B: Backend>(
    pairs: &PairSet,
    model: &TrainingModel<B>,
    limits: Limits<'_>,
    peers: &dyn Peers<B>,
) -> Result<Validated, TrainError> {
    let device = model.device();
    let mut scores = PreferenceScores::default();
    let batches = limits.of_records(pairs.batches(limits.batch)).map(Ok);
    let of_batch = |batch: &HostBatch| {
        let tensors = batch.to_tensors::<B>(&device);
        let scores = B::run(|| model.completion_scores(&tensors));
        scores.preferences().to_numbers()
    };
    let add = |_: &HostBatch, numbers: &[f64]| scores.add(&PreferenceScores::of_numbers(numbers));
    let found = for_each_batch(peers, batches, of_batch, add, || limits.check())?;
    let count = scores.records();
    Ok(found.map_continue(|()| {
        (count > 0).then(|| ValidationOutcome {
            loss: scores.loss_sum() / count as f64,
            tokens: count as u64,
            datasets: Vec::new(),
            metrics: scores.values(),
            sample: None,
        })
    }))
}

/// The reward of the most probable completion of each prompt. The loss is its negative.
fn evaluate_rewards<B: Backend>(
    validation: &RewardValidation,
    model: &TrainingModel<B>,
    limits: Limits<'_>,
    peers: &dyn Peers<B>,
) -> Result<Validated, TrainError> {
    let Some(decoder) = model.decoder() else {
        return Ok(ControlFlow::Continue(None));
    };
    let found = validation.evaluate(decoder, limits.max_tokens, limits.stop, peers)?;
    Ok(match found {
        Some(found) => ControlFlow::Continue(Some(ValidationOutcome {
            loss: -found.reward,
            tokens: found.prompts as u64,
            datasets: Vec::new(),
            metrics: found.metrics,
            sample: Some(found.sample),
        })),
        None => ControlFlow::Break(()),
    })
}
