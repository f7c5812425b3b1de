//! The datasets of a run: a weighted mix of training batches. [`identity`] compares them with those of a checkpoint,
//! [`file_check`] verifies files during training, and `divided` divides batches among ranks.

use emberlm_data::{ChatTemplateSpec, Dataset, Floor, Packing, Split, TrainBatches};

use crate::config::DataConfig;
use crate::error::TrainError;

pub(crate) mod divided;
pub mod file_check;
pub mod identity;

use identity::DataIdentity;

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

    /// Each dataset with its weight.
    pub(crate) fn weighted(&self) -> impl Iterator<Item = (&Dataset, f64)> {
        self.sets.iter().map(|(dataset, weight)| (dataset, *weight))
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
