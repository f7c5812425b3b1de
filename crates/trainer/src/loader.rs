//! Data loaders for Burn's learner: batches as tensors.

use std::sync::{Arc, Mutex, PoisonError};

use burn::data::dataloader::{DataLoader, DataLoaderIterator, Progress};
use burn::tensor::Device;
use burn::tensor::backend::Backend;
use emberlm_data::{Batch, DataError};

use crate::objective::{HostBatch, HostBatches, TrainSource};
use crate::peers::Rank;
use crate::training_model::TokenBatch;

/// Copies a batch to a device.
pub fn to_tensors<B: Backend>(batch: &Batch, device: &Device<B>) -> TokenBatch<B> {
    HostBatch::from(batch.clone()).to_tensors(device)
}

/// The first error of a loader. Burn's loaders cannot return errors, so they end early and store the error
/// here.
#[derive(Clone, Default)]
pub struct Failure(Arc<Mutex<Option<DataError>>>);

impl Failure {
    fn set(&self, error: DataError) {
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        slot.get_or_insert(error);
    }

    /// Takes the error, if one occurred.
    pub fn take(&self) -> Option<DataError> {
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        slot.take()
    }
}

/// An endless loader of one rank's micro-batches, starting at a given sequence of the run. Worker threads
/// read windows ahead of use.
#[derive(Clone)]
pub(crate) struct TrainLoader<B: Backend> {
    pub(crate) source: TrainSource,
    /// The first sequence, counted over all ranks.
    pub(crate) first_window: u64,
    pub(crate) micro_batch: usize,
    /// The rank that the micro-batches are for.
    pub(crate) rank: Rank,
    /// Worker threads.
    pub(crate) workers: usize,
    /// Sequences of the whole run.
    pub(crate) windows: u64,
    pub(crate) device: Device<B>,
    pub(crate) failure: Failure,
}

struct TrainIterator<'a, B: Backend> {
    loader: &'a TrainLoader<B>,
    made: HostBatches<'a>,
    /// Sequences consumed by all ranks.
    window: u64,
}

impl<B: Backend> Iterator for TrainIterator<'_, B> {
    type Item = TokenBatch<B>;

    fn next(&mut self) -> Option<TokenBatch<B>> {
        let loader = self.loader;
        match self.made.next()? {
            Ok(batch) => {
                self.window += loader.micro_batch as u64 * loader.rank.world_size() as u64;
                Some(batch.to_tensors(&loader.device))
            }
            Err(error) => {
                loader.failure.set(error);
                None
            }
        }
    }
}

impl<B: Backend> DataLoaderIterator<TokenBatch<B>> for TrainIterator<'_, B> {
    fn progress(&self) -> Progress {
        Progress::new(self.window as usize, self.loader.windows as usize)
    }
}

impl<B: Backend> DataLoader<B, TokenBatch<B>> for TrainLoader<B> {
    fn iter<'a>(&'a self) -> Box<dyn DataLoaderIterator<TokenBatch<B>> + 'a> {
        let (rank, count) = (self.rank, self.micro_batch);
        let own = self.first_window + rank.micro_batch(0) * count as u64;
        let stride = count * rank.world_size();
        Box::new(TrainIterator {
            loader: self,
            made: self.source.batches(own, count, stride, self.workers),
            window: self.first_window,
        })
    }

    fn num_items(&self) -> usize {
        self.windows as usize
    }

    fn to_device(&self, device: &Device<B>) -> Arc<dyn DataLoader<B, TokenBatch<B>>> {
        let mut loader = self.clone();
        loader.device = device.clone();
        Arc::new(loader)
    }

    fn slice(&self, start: usize, end: usize) -> Arc<dyn DataLoader<B, TokenBatch<B>>> {
        let mut loader = self.clone();
        loader.first_window += start as u64;
        loader.windows = (end - start) as u64;
        Arc::new(loader)
    }
}

/// A loader without batches. Burn's learner wants one of validation batches, which the driver evaluates on itself.
#[derive(Clone, Copy)]
pub(crate) struct NoBatches;

impl<B: Backend> Iterator for NoBatchesOf<B> {
    type Item = TokenBatch<B>;

    fn next(&mut self) -> Option<TokenBatch<B>> {
        None
    }
}

/// The iterator of [`NoBatches`].
struct NoBatchesOf<B: Backend>(std::marker::PhantomData<B>);

impl<B: Backend> DataLoaderIterator<TokenBatch<B>> for NoBatchesOf<B> {
    fn progress(&self) -> Progress {
        Progress::new(0, 0)
    }
}

impl<B: Backend> DataLoader<B, TokenBatch<B>> for NoBatches {
    fn iter<'a>(&'a self) -> Box<dyn DataLoaderIterator<TokenBatch<B>> + 'a> {
        Box::new(NoBatchesOf(std::marker::PhantomData))
    }

    fn num_items(&self) -> usize {
        0
    }

    fn to_device(&self, _device: &Device<B>) -> Arc<dyn DataLoader<B, TokenBatch<B>>> {
        Arc::new(*self)
    }

    fn slice(&self, _start: usize, _end: usize) -> Arc<dyn DataLoader<B, TokenBatch<B>>> {
        Arc::new(*self)
    }
}
