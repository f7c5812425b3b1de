//! The datasets of a run: a weighted mix of training batches, and the validation splits.

use std::ops::ControlFlow;

use emberlm_data::{
    Batch, ChatTemplateSpec, DataError, Dataset, Floor, Packing, Split, TokenSplit, TrainBatches,
    Windows,
};
use emberlm_kernels::Backend;
use emberlm_model::Decoder;

use crate::config::DataConfig;
use crate::error::TrainError;
use crate::evaluate::{evaluate_until, evaluated_windows};
use crate::events::DatasetLoss;
use crate::identity::DataIdentity;
use crate::stop::StopSignal;

/// The datasets of a run. All share one tokenizer.
pub struct TrainingData {
    sets: Vec<(Dataset, f64)>,
}

impl TrainingData {
    /// Opens every dataset.
    ///
    /// # Errors
    /// A dataset cannot be opened, a weight is invalid, or tokenizers differ.
    pub fn open(config: &DataConfig) -> Result<Self, TrainError> {
        let mut sets: Vec<(Dataset, f64)> = Vec::new();
        for (path, weight) in config.datasets()? {
            let dataset = Dataset::open(path)?;
            if let Some((first, _)) = sets.first() {
                check_tokenizers(first, &dataset)?;
            }
            sets.push((dataset, weight));
        }
        Ok(Self { sets })
    }

    /// The first dataset. Its tokenizer is the one of all.
    pub fn first(&self) -> &Dataset {
        &self.sets[0].0
    }

    /// All datasets.
    pub fn datasets(&self) -> impl Iterator<Item = &Dataset> {
        self.sets.iter().map(|(dataset, _)| dataset)
    }

    /// Training tokens over all datasets.
    pub fn train_tokens(&self) -> u64 {
        let splits = self
            .datasets()
            .map(|dataset| dataset.manifest().split(Split::Train));
        splits.map(|split| split.tokens).sum()
    }

    /// The identity of each dataset.
    pub fn identities(&self) -> Vec<DataIdentity> {
        self.datasets().map(DataIdentity::of).collect()
    }

    /// The chat template of the first dataset that was prepared with one.
    pub(crate) fn chat_template(&self) -> Option<&ChatTemplateSpec> {
        self.datasets()
            .find_map(|dataset| dataset.manifest().chat_template.as_ref())
    }

    /// The lowest validation loss that any model can reach, if known.
    pub(crate) fn floor(&self) -> Option<Floor> {
        let [(dataset, _)] = &self.sets[..] else {
            // The floor of a mix is unknown even if every dataset's is known: datasets may share information.
            return None;
        };
        dataset.manifest().split(Split::Val).floor.clone()
    }

    /// The training batches, and messages about masked and packed data for the log.
    pub(crate) fn batches(
        &self,
        seed: u64,
        seq_len: usize,
        packing: Packing,
    ) -> Result<(TrainBatches, Vec<String>), TrainError> {
        let (mut sets, mut messages) = (Vec::new(), Vec::new());
        for (dataset, weight) in &self.sets {
            let path = dataset.folder();
            let split = dataset.manifest().split(Split::Train);
            let (learnt, tokens) = (split.learnt(), split.tokens);
            if learnt == 0 && tokens > 0 {
                let path = path.to_owned();
                return Err(TrainError::NothingLearnt { path });
            }
            if learnt < tokens {
                let path = path.display();
                messages.push(format!("{path}: {learnt} of {tokens} tokens are learnt"));
            }
            let windows = dataset.windows(Split::Train, seq_len, packing)?;
            if let Some(packed) = windows.packed() {
                messages.push(format!(
                    "{}: documents {}, rows of {seq_len} positions {}, padding {:.1}%",
                    path.display(),
                    packed.documents,
                    packed.rows,
                    100.0 * packed.padding,
                ));
            }
            sets.push((windows, *weight));
        }
        Ok((TrainBatches::mixed(sets, seed)?, messages))
    }

    /// The validation data of the run.
    pub(crate) fn validation(
        &self,
        seq_len: usize,
        packing: Packing,
    ) -> Result<Validation, DataError> {
        let mut sets = Vec::new();
        for (dataset, weight) in &self.sets {
            sets.push(ValidationSet {
                name: dataset.folder().display().to_string(),
                windows: dataset.windows(Split::Val, seq_len, packing)?,
                weight: *weight,
            });
        }
        Ok(Validation { sets })
    }
}

fn check_tokenizers(first: &Dataset, other: &Dataset) -> Result<(), TrainError> {
    let [a, b] = [first, other].map(|dataset| &dataset.manifest().tokenizer);
    if a.hash == b.hash {
        return Ok(());
    }
    let of = |dataset: &Dataset| (dataset.folder().to_owned(), dataset.tokenizer().kind());
    let ((first, first_kind), (other, other_kind)) = (of(first), of(other));
    Err(TrainError::Tokenizers {
        first,
        first_tokenizer: first_kind.to_string(),
        other,
        other_tokenizer: other_kind.to_string(),
    })
}

/// The validation splits of a run's datasets. Every evaluation uses the same tokens.
#[derive(Clone)]
pub(crate) struct Validation {
    sets: Vec<ValidationSet>,
}

#[derive(Clone)]
struct ValidationSet {
    name: String,
    windows: Windows,
    weight: f64,
}

/// The outcome of a validation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ValidationOutcome {
    /// The mean of the datasets' losses in nats per token, with the weights of training.
    pub(crate) loss: f64,
    /// Predicted tokens.
    pub(crate) tokens: u64,
    /// The loss of each dataset; empty for a single one.
    pub(crate) datasets: Vec<DatasetLoss>,
}

impl Validation {
    /// The validation splits.
    pub(crate) fn splits(&self) -> impl Iterator<Item = &TokenSplit> {
        self.sets.iter().map(|set| set.windows.split())
    }

    /// The windows of the first dataset.
    pub(crate) fn first(&self) -> &Windows {
        &self.sets[0].windows
    }

    /// A log line about a validation of at most `max_tokens` of each dataset. `None` if it has no tokens.
    pub(crate) fn announcement(&self, max_tokens: Option<u64>) -> Option<String> {
        let tokens = self.tokens(max_tokens);
        let first = self.first();
        let windows = evaluated_windows(first.seq_len(), first.packing());
        (tokens > 0).then(|| format!("validation: {tokens} tokens {windows}"))
    }

    /// Tokens predicted by a validation of at most `max_tokens` of each dataset.
    pub(crate) fn tokens(&self, max_tokens: Option<u64>) -> u64 {
        let targets = self.splits().map(|split| split.len().saturating_sub(1));
        targets
            .map(|tokens| max_tokens.map_or(tokens, |max| tokens.min(max)))
            .sum()
    }

    /// The mean loss over the validation splits, using at most `max_tokens` of each. `None` if no split has a
    /// token to predict. Breaks if `stop` is requested.
    pub(crate) fn evaluate<B: Backend>(
        &self,
        decoder: &Decoder<B>,
        batch: usize,
        max_tokens: Option<u64>,
        stop: &StopSignal,
    ) -> Result<ControlFlow<(), Option<ValidationOutcome>>, TrainError> {
        let stopped = |_: &Batch| match stop.is_requested() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        };
        let mut datasets = Vec::new();
        let (mut sum, mut weights, mut tokens) = (0.0, 0.0, 0);
        for set in &self.sets {
            // A dataset may have no validation split.
            if set.windows.split().len() < 2 {
                continue;
            }
            let evaluation = evaluate_until(decoder, &set.windows, batch, max_tokens, stopped)?;
            let Some(evaluation) = evaluation else {
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
        if self.sets.len() == 1 {
            datasets.clear();
        }
        let loss = sum / weights;
        Ok(ControlFlow::Continue((tokens > 0).then_some(
            ValidationOutcome {
                loss,
                tokens,
                datasets,
            },
        )))
    }
}
