//! Data loaders for Burn's learner: batches as tensors.

use std::sync::{Arc, Mutex, PoisonError};

use burn::data::dataloader::{DataLoader, DataLoaderIterator, Progress};
use burn::tensor::backend::Backend;
use burn::tensor::{Device, Int, Tensor, TensorData};
use emberlm_data::{Batch, DataError, EvalBatches, TrainBatches, Windows};
use emberlm_model::Tokens;

use crate::peers::Rank;
use crate::training_model::TokenBatch;

/// Copies a batch to a device.
pub fn to_tensors<B: Backend>(batch: &Batch, device: &Device<B>) -> TokenBatch<B> {
    let shape = [batch.batch, batch.seq];
    let tensor = |ids: &[u32]| {
        let number = |&id| match id {
            emberlm_data::IGNORED => emberlm_model::IGNORED,
            id => id as i32,
        };
        let ids: Vec<i32> = ids.iter().map(number).collect();
        Tensor::<B, 2, Int>::from_data(TensorData::new(ids, shape), device)
    };
    TokenBatch {
        tokens: Tokens {
            ids: tensor(&batch.inputs),
            documents: batch.documents.as_deref().map(tensor),
        },
        targets: tensor(&batch.targets),
        learnt: batch.learnt(),
    }
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

/// An endless loader of one rank's micro-batches, starting at a given window of the run. Worker threads
/// prepare batches ahead of use.
#[derive(Clone)]
pub struct TrainLoader<B: Backend> {
    pub batches: TrainBatches,
    /// The first window, counted over all ranks.
    pub first_window: u64,
    pub micro_batch: usize,
    /// The rank that the micro-batches are for.
    pub rank: Rank,
    /// Worker threads.
    pub workers: usize,
    /// Windows of the whole run.
    pub windows: u64,
    pub device: Device<B>,
    pub failure: Failure,
}

struct TrainIterator<'a, B: Backend, M> {
    loader: &'a TrainLoader<B>,
    made: M,
    /// Windows consumed by all ranks.
    window: u64,
}

impl<B, M> Iterator for TrainIterator<'_, B, M>
where
    B: Backend,
    M: Iterator<Item = Result<Batch, DataError>>,
{
    type Item = TokenBatch<B>;

    fn next(&mut self) -> Option<TokenBatch<B>> {
        let loader = self.loader;
        match self.made.next()? {
            Ok(batch) => {
                self.window += loader.micro_batch as u64 * loader.rank.world_size() as u64;
                Some(to_tensors(&batch, &loader.device))
            }
            Err(error) => {
                loader.failure.set(error);
                None
            }
        }
    }
}

impl<B, M> DataLoaderIterator<TokenBatch<B>> for TrainIterator<'_, B, M>
where
    B: Backend,
    M: Iterator<Item = Result<Batch, DataError>>,
{
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
            made: self.batches.ahead(own, count, stride, self.workers),
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

/// A loader of all batches of an evaluation, in text order.
#[derive(Clone)]
pub struct EvalLoader<B: Backend> {
    pub windows: Windows,
    pub batch: usize,
    pub max_tokens: Option<u64>,
    pub device: Device<B>,
    pub failure: Failure,
}

struct EvalIterator<B: Backend> {
    batches: Option<EvalBatches>,
    done: usize,
    total: usize,
    device: Device<B>,
    failure: Failure,
}

impl<B: Backend> Iterator for EvalIterator<B> {
    type Item = TokenBatch<B>;

    fn next(&mut self) -> Option<TokenBatch<B>> {
        match self.batches.as_mut()?.next()? {
            Ok(batch) => {
                self.done += batch.inputs.len();
                Some(to_tensors(&batch, &self.device))
            }
            Err(error) => {
                self.failure.set(error);
                None
            }
        }
    }
}

impl<B: Backend> DataLoaderIterator<TokenBatch<B>> for EvalIterator<B> {
    fn progress(&self) -> Progress {
        Progress::new(self.done, self.total)
    }
}

impl<B: Backend> DataLoader<B, TokenBatch<B>> for EvalLoader<B> {
    fn iter<'a>(&'a self) -> Box<dyn DataLoaderIterator<TokenBatch<B>> + 'a> {
        let batches = EvalBatches::new(&self.windows, self.batch, self.max_tokens);
        let batches = batches.map_err(|error| self.failure.set(error)).ok();
        Box::new(EvalIterator {
            batches,
            done: 0,
            total: self.num_items(),
            device: self.device.clone(),
            failure: self.failure.clone(),
        })
    }

    fn num_items(&self) -> usize {
        let batches = EvalBatches::new(&self.windows, self.batch, self.max_tokens);
        batches.map_or(0, |batches| batches.positions()) as usize
    }

    fn to_device(&self, device: &Device<B>) -> Arc<dyn DataLoader<B, TokenBatch<B>>> {
        let mut loader = self.clone();
        loader.device = device.clone();
        Arc::new(loader)
    }

    fn slice(&self, _start: usize, end: usize) -> Arc<dyn DataLoader<B, TokenBatch<B>>> {
        let mut loader = self.clone();
        loader.max_tokens = Some(end as u64);
        Arc::new(loader)
    }
}
