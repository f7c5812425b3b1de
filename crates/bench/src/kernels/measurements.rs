//! Measures two implementations of an operation interleaved in one process, so that changes of the machine's
//! load affect both.

use std::hint::black_box;
use std::time::Instant;

use burn::tensor::ops::{FloatTensor, IntTensor};
use burn::tensor::{Device, Distribution, Int, Shape, Tensor};
use emberlm_kernels::Backend;

use super::workload::Workload;

/// The approximate duration of a measurement in seconds. An operation is repeated to fill it.
const LEAST: f64 = 5e-3;

/// The work of an operation, from which its rate is computed.
#[derive(Clone, Copy, Debug)]
pub enum Work {
    /// Floating-point additions and multiplications.
    Flops(f64),
    /// Bytes read and written at least, counting each tensor once.
    Bytes(f64),
}

impl Work {
    /// The bytes of `count` f32 numbers.
    pub fn numbers(count: usize) -> Self {
        Self::Bytes((count * size_of::<f32>()) as f64)
    }

    /// The unit, and billions of units per second.
    pub fn per_second(self, seconds: f64) -> (&'static str, f64) {
        match self {
            Self::Flops(count) => ("GFLOP/s", count / seconds * 1e-9),
            Self::Bytes(count) => ("GB/s", count / seconds * 1e-9),
        }
    }
}

/// The implementation with which an operation is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Baseline {
    /// The reference implementation of plain tensor operations.
    Composed,
    /// The same operation in f32.
    F32,
}

impl Baseline {
    /// The name in the output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Composed => "composed",
            Self::F32 => "f32",
        }
    }
}

/// The measurement of an operation.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The name of the workload.
    pub workload: &'static str,
    /// The name of the operation.
    pub operation: &'static str,
    /// The work of the operation.
    pub work: Work,
    /// The other implementation.
    pub against: Baseline,
    /// The median time of the operation, in seconds.
    pub ours: f64,
    /// The median time of the other implementation, in seconds.
    pub other: f64,
}

/// Measures operations one after another.
#[derive(Debug)]
pub struct Measurements<'a, B: Backend> {
    workload: &'static str,
    only: &'a str,
    rounds: usize,
    device: Device<B>,
    rows: Vec<Row>,
}

impl<'a, B: Backend> Measurements<'a, B> {
    /// Creates a measurement of the operations of `workload` whose names contain `only`.
    pub fn new(workload: &Workload, only: &'a str, rounds: usize, device: Device<B>) -> Self {
        Self {
            workload: workload.name,
            only,
            rounds,
            device,
            rows: Vec::new(),
        }
    }

    /// The measurements so far.
    pub fn finished(self) -> Vec<Row> {
        self.rows
    }

    /// Measures an operation and its reference implementation, if it is selected.
    pub fn composed<O, C, R, S>(
        &mut self,
        operation: &'static str,
        work: Work,
        make: impl FnOnce(&Random<B>) -> (O, C),
    ) where
        O: FnMut() -> R,
        C: FnMut() -> S,
    {
        self.pair(operation, work, Baseline::Composed, make);
    }

    /// Measures an operation and another one, if it is selected. `make` creates both.
    pub fn pair<O, C, R, S>(
        &mut self,
        operation: &'static str,
        work: Work,
        against: Baseline,
        make: impl FnOnce(&Random<B>) -> (O, C),
    ) where
        O: FnMut() -> R,
        C: FnMut() -> S,
    {
        let name = format!("{}/{operation}", self.workload);
        if !name.contains(self.only) {
            return;
        }
        let (mut ours, mut other) = make(&Random(self.device.clone()));
        let mut repeats = [1; 2];
        // One run to warm up, one to estimate the duration.
        for _ in 0..2 {
            let once = [self.seconds(1, &mut ours), self.seconds(1, &mut other)];
            repeats = once.map(|once| (LEAST / once.max(1e-8)).ceil() as usize);
        }
        let mut seconds = [Vec::new(), Vec::new()];
        for _ in 0..self.rounds {
            seconds[0].push(self.seconds(repeats[0], &mut ours));
            seconds[1].push(self.seconds(repeats[1], &mut other));
        }
        let [ours, other] = seconds.map(median);
        self.rows.push(Row {
            workload: self.workload,
            operation,
            work,
            against,
            ours,
            other,
        });
    }

    /// The seconds of one of `repeats` repetitions, including the wait for all of them.
    fn seconds<R>(&self, repeats: usize, operation: &mut impl FnMut() -> R) -> f64 {
        let started = Instant::now();
        for _ in 0..repeats {
            black_box(operation());
        }
        // A lost device reports an error when results are read. None are read here.
        let _ = B::sync(&self.device);
        started.elapsed().as_secs_f64() / repeats as f64
    }
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_unstable_by(f64::total_cmp);
    let middle = figures.len().saturating_sub(1) / 2;
    figures.get(middle).copied().unwrap_or(f64::NAN)
}

/// Creates random tensors.
#[derive(Debug)]
pub struct Random<B: Backend>(Device<B>);

impl<B: Backend> Random<B> {
    /// Normally distributed numbers.
    pub fn floats<const D: usize>(&self, shape: [usize; D]) -> FloatTensor<B> {
        let range = Distribution::Normal(0.0, 1.0);
        Tensor::<B, D>::random(shape, range, &self.0)
            .into_primitive()
            .tensor()
    }

    /// Uniform numbers in 0..1.
    pub fn positive<const D: usize>(&self, shape: [usize; D]) -> FloatTensor<B> {
        let range = Distribution::Uniform(0.0, 1.0);
        Tensor::<B, D>::random(shape, range, &self.0)
            .into_primitive()
            .tensor()
    }

    /// A tensor `[1]` of `number`.
    pub fn number(&self, number: f32) -> FloatTensor<B> {
        Tensor::<B, 1>::from_data([number], &self.0)
            .into_primitive()
            .tensor()
    }

    /// Ids below `end`, distributed over the whole range.
    pub fn ids<const D: usize>(&self, shape: [usize; D], end: usize) -> IntTensor<B> {
        let count = Shape::new(shape).num_elements();
        let ids: Vec<i32> = (0..count).map(|n| (n * 7919 % end) as i32).collect();
        let ids = Tensor::<B, 1, Int>::from_data(&ids[..], &self.0);
        ids.reshape(shape).into_primitive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_billions_in_a_second() {
        assert_eq!(Work::Flops(4e9).per_second(2.0), ("GFLOP/s", 2.0));
        assert_eq!(Work::numbers(500).per_second(1e-6), ("GB/s", 2.0));
    }

    #[test]
    fn the_median_is_one_of_the_figures() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0]), 1.0);
    }
}
