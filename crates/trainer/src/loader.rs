//! Batches as tensors, as Burn's learner takes them.

use std::sync::{Arc, Mutex, PoisonError};

use burn::data::dataloader::{DataLoader, DataLoaderIterator, Progress};
use burn::tensor::backend::Backend;
use burn::tensor::{Device, Int, Tensor, TensorData};
use emberlm_data::{Batch, DataError, TokenSplit, TrainBatches, eval_batches};

use crate::trainee::TokenBatch;

/// The batch on a device.
pub fn to_tensors<B: Backend>(batch: &Batch, device: &Device<B>) -> TokenBatch<B> {
    let shape = [batch.batch, batch.seq];
    let tensor = |ids: &[u32]| {
        let ids: Vec<i32> = ids.iter().map(|&id| id as i32).collect();
        Tensor::<B, 2, Int>::from_data(TensorData::new(ids, shape), device)
    };
    TokenBatch {
        tokens: tensor(&batch.inputs),
        targets: tensor(&batch.targets),
    }
}

/// The first error of a loader: Burn's loaders cannot give one, so they end and leave it here.
#[derive(Clone, Default)]
pub struct Failure(Arc<Mutex<Option<DataError>>>);

impl Failure {
    fn set(&self, error: DataError) {
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        slot.get_or_insert(error);
    }

    /// Takes the error, if there was one.
    pub fn take(&self) -> Option<DataError> {
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        slot.take()
    }
}

/// Micro-batches without end, from a given window of the run on.
#[derive(Clone)]
pub struct TrainLoader<B: Backend> {
    pub batches: TrainBatches,
    pub first_window: u64,
    pub micro_batch: usize,
    /// Windows in the whole run.
    pub windows: u64,
    pub device: Device<B>,
    pub failure: Failure,
}

struct TrainIterator<'a, B: Backend> {
    loader: &'a TrainLoader<B>,
    window: u64,
}

impl<B: Backend> Iterator for TrainIterator<'_, B> {
    type Item = TokenBatch<B>;

    fn next(&mut self) -> Option<TokenBatch<B>> {
        let loader = self.loader;
        match loader.batches.batch(self.window, loader.micro_batch) {
            Ok(batch) => {
                self.window += loader.micro_batch as u64;
                Some(to_tensors(&batch, &loader.device))
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
        Box::new(TrainIterator {
            loader: self,
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

/// Every batch of an evaluation, in the text's order.
#[derive(Clone)]
pub struct EvalLoader<B: Backend> {
    pub split: TokenSplit,
    pub seq_len: usize,
    pub batch: usize,
    pub max_tokens: Option<u64>,
    pub device: Device<B>,
    pub failure: Failure,
}

struct EvalIterator<B: Backend> {
    batches: Option<emberlm_data::EvalBatches>,
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
        let batches = eval_batches(&self.split, self.seq_len, self.batch, self.max_tokens);
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
        let tokens = self.split.len().saturating_sub(1);
        self.max_tokens.map_or(tokens, |max| max.min(tokens)) as usize
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
