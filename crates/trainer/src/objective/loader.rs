//! The batches of a run in the form that Burn's learner expects: a loader of tensors.

use std::sync::Arc;

use burn::data::dataloader::{DataLoader, DataLoaderIterator, Progress};
use burn::tensor::Device;
use burn::tensor::backend::Backend;
use emberlm_data::{Batch, DataError};

use crate::objective::model::TokenBatch;
use crate::objective::repeated::repeated;
use crate::objective::{HostBatch, HostBatches, TrainSource};
use crate::peers::Rank;

/// Copies a batch to a device.
pub fn to_tensors<B: Backend>(batch: &Batch, device: &Device<B>) -> TokenBatch<B> {
    HostBatch::from(batch.clone()).to_tensors(device)
}

/// An endless loader of one rank's micro-batches, starting at a given sequence of the run. Worker threads
/// read windows ahead of use. `D` is the device.
#[derive(Clone)]
pub(crate) struct TrainLoader<D> {
    pub(crate) source: TrainSource,
    /// The first sequence, counted over all ranks.
    pub(crate) first_window: u64,
    pub(crate) micro_batch: usize,
    /// The number of this rank's first micro-batches that are repeated; `None` to read on through the data.
    pub(crate) repeated: Option<usize>,
    /// The rank that the micro-batches are for.
    pub(crate) rank: Rank,
    /// Worker threads.
    pub(crate) workers: usize,
    /// Sequences of the whole run.
    pub(crate) windows: u64,
    pub(crate) device: D,
}

struct TrainIterator<'a, B: Backend> {
    made: HostBatches<'a>,
    device: &'a Device<B>,
    /// Sequences consumed by all ranks, those of each of their micro-batches, and those of the whole run.
    window: u64,
    stride: u64,
    windows: u64,
}

impl<B: Backend> Iterator for TrainIterator<'_, B> {
    type Item = Result<TokenBatch<B>, DataError>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = self.made.next()?;
        self.window += self.stride;
        Some(batch.map(|batch| batch.to_tensors(self.device)))
    }
}

impl<B: Backend> DataLoaderIterator<Result<TokenBatch<B>, DataError>> for TrainIterator<'_, B> {
    fn progress(&self) -> Progress {
        Progress::new(self.window as usize, self.windows as usize)
    }
}

impl<B: Backend> DataLoader<B, Result<TokenBatch<B>, DataError>> for TrainLoader<Device<B>> {
    fn iter<'a>(&'a self) -> Box<dyn DataLoaderIterator<Result<TokenBatch<B>, DataError>> + 'a> {
        let (rank, count) = (self.rank, self.micro_batch);
        let own = self.first_window + rank.micro_batch(0) * count as u64;
        let stride = count * rank.world_size();
        // Repeated batches are read once.
        let workers = self.repeated.map_or(self.workers, |_| 0);
        let made = self.source.batches(own, count, stride, workers);
        Box::new(TrainIterator::<B> {
            made: match self.repeated {
                Some(count) => repeated(made, count),
                None => made,
            },
            device: &self.device,
            window: self.first_window,
            stride: stride as u64,
            windows: self.windows,
        })
    }

    fn num_items(&self) -> usize {
        self.windows as usize
    }

    fn to_device(
        &self,
        device: &Device<B>,
    ) -> Arc<dyn DataLoader<B, Result<TokenBatch<B>, DataError>>> {
        Arc::new(Self {
            device: device.clone(),
            ..self.clone()
        })
    }

    fn slice(
        &self,
        start: usize,
        end: usize,
    ) -> Arc<dyn DataLoader<B, Result<TokenBatch<B>, DataError>>> {
        Arc::new(Self {
            first_window: self.first_window + start as u64,
            windows: (end - start) as u64,
            ..self.clone()
        })
    }
}
