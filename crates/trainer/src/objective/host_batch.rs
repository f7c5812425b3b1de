//! A batch in the host's memory.

use burn::tensor::backend::Backend;
use burn::tensor::{Bool, Device, Tensor, TensorData};
use emberlm_data::{Batch, IGNORED};
use emberlm_model::{Tokens, id_tensor};

use super::completions::CompletionBatch;
use crate::objective::model::TokenBatch;

/// Token ids and targets, row-major.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HostBatch {
    /// Input ids, `[batch, seq]`.
    pub(crate) inputs: Vec<u32>,
    /// For each input, the index in its row at which its document begins.
    pub(crate) documents: Option<Vec<u32>>,
    /// The segment of each input.
    pub(crate) segments: Option<Vec<u32>>,
    /// The length of each row without padding, `[batch]`; `None` if there is no padding.
    pub(crate) lengths: Option<Vec<usize>>,
    /// Targets, `[batch, target_seq]`; [`IGNORED`] where there is no loss.
    pub(crate) targets: Vec<u32>,
    pub(crate) batch: usize,
    pub(crate) seq: usize,
    pub(crate) target_seq: usize,
    /// The completions of an objective that learns from preferences or rewards.
    pub(crate) completions: Option<CompletionBatch>,
}

impl From<Batch> for HostBatch {
    fn from(batch: Batch) -> Self {
        Self {
            inputs: batch.inputs,
            documents: batch.documents,
            segments: None,
            lengths: None,
            targets: batch.targets,
            batch: batch.batch,
            seq: batch.seq,
            target_seq: batch.seq,
            completions: None,
        }
    }
}

impl HostBatch {
    /// Copies the batch to a device.
    pub(crate) fn to_tensors<B: Backend>(&self, device: &Device<B>) -> TokenBatch<B> {
        let inputs = [self.batch, self.seq];
        let integers = |ids: &[u32], shape| id_tensor::<B>(ids, shape, device);
        let padding = self.lengths.as_ref().map(|lengths| {
            let row = |&length: &usize| (0..self.seq).map(move |at| at < length);
            let is_text: Vec<bool> = lengths.iter().flat_map(row).collect();
            Tensor::<B, 2, Bool>::from_data(TensorData::new(is_text, inputs), device)
        });
        TokenBatch {
            tokens: Tokens {
                ids: integers(&self.inputs, inputs),
                documents: self.documents.as_deref().map(|ids| integers(ids, inputs)),
            },
            segments: self.segments.as_deref().map(|ids| integers(ids, inputs)),
            padding,
            targets: integers(&self.targets, [self.batch, self.target_seq]),
            learnt: self.learnt(),
            completions: self.completions.clone(),
        }
    }

    /// The number of targets that contribute to the loss, or of pairs or sampled completions.
    pub(crate) fn learnt(&self) -> usize {
        if let Some(completions) = &self.completions {
            return completions.records();
        }
        self.targets.iter().filter(|&&id| id != IGNORED).count()
    }
}
