//! Two implementations of the same operation, interleaved in one process, so that a change in the machine's load meets both.

use std::hint::black_box;
use std::time::Instant;

use burn::tensor::ops::{FloatTensor, IntTensor};
use burn::tensor::{Device, Distribution, Int, Shape, Tensor};
use emberlm_kernels::Backend;

use super::workload::Workload;

/// A measurement repeats an operation for about so many seconds.
const LEAST: f64 = 5e-3;

/// The work of an operation, from which rates are computed.
#[derive(Clone, Copy, Debug)]
pub enum Work {
    /// So many additions and multiplications.
    Flops(f64),
    /// So many bytes read and written at the least, each tensor once.
    Bytes(f64),
}

impl Work {
    /// The bytes of f32.
    pub fn numbers(count: usize) -> Self {
        Self::Bytes((count * size_of::<f32>()) as f64)
    }

    /// The unit, and how many billions of it there are in a second.
    pub fn per_second(self, seconds: f64) -> (&'static str, f64) {
        match self {
            Self::Flops(count) => ("GFLOP/s", count / seconds * 1e-9),
            Self::Bytes(count) => ("GB/s", count / seconds * 1e-9),
        }
    }
}

/// The peer of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Against {
    /// Its body of plain tensor operations.
    Composed,
    /// The same operation in f32.
    F32,
}

impl Against {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Composed => "composed",
            Self::F32 => "f32",
        }
    }
}

/// The measurements of an operation.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Its workload's name.
    pub workload: &'static str,
    /// Its name.
    pub operation: &'static str,
    /// Its work.
    pub work: Work,
    /// Its peer.
    pub against: Against,
    /// Its seconds, the median.
    pub ours: f64,
    /// The other's.
    pub other: f64,
}

/// Measures operations one after another.
#[derive(Debug)]
pub struct Turns<'a, B: Backend> {
    workload: &'static str,
    only: &'a str,
    rounds: usize,
    device: Device<B>,
    rows: Vec<Row>,
}

impl<'a, B: Backend> Turns<'a, B> {
    /// For the operations of a workload that have `only` in their names.
    pub fn new(workload: &Workload, only: &'a str, rounds: usize, device: Device<B>) -> Self {
        Self {
            workload: workload.name,
            only,
            rounds,
            device,
            rows: Vec::new(),
        }
    }

    /// The measurements.
    pub fn finished(self) -> Vec<Row> {
        self.rows
    }

    /// Measures an operation next to its reference implementation, if it is selected.
    pub fn composed<O, C, R, S>(
        &mut self,
        operation: &'static str,
        work: Work,
        make: impl FnOnce(&Random<B>) -> (O, C),
    ) where
        O: FnMut() -> R,
        C: FnMut() -> S,
    {
        self.pair(operation, work, Against::Composed, make);
    }

    /// Measures an operation beside another, if it is asked for: `make` makes both.
    pub fn pair<O, C, R, S>(
        &mut self,
        operation: &'static str,
        work: Work,
        against: Against,
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
        // Once to be warm, once to know how long it takes.
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

    /// Of one of so many repetitions, until all of them are computed.
    fn seconds<R>(&self, repeats: usize, operation: &mut impl FnMut() -> R) -> f64 {
        let started = Instant::now();
        for _ in 0..repeats {
            black_box(operation());
        }
        // A lost device reports an error when its results are read; there are none here.
        let _ = B::sync(&self.device);
        started.elapsed().as_secs_f64() / repeats as f64
    }
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_unstable_by(f64::total_cmp);
    let middle = figures.len().saturating_sub(1) / 2;
    figures.get(middle).copied().unwrap_or(f64::NAN)
}

/// Makes tensors.
#[derive(Debug)]
pub struct Random<B: Backend>(Device<B>);

impl<B: Backend> Random<B> {
    /// Normal.
    pub fn floats<const D: usize>(&self, shape: [usize; D]) -> FloatTensor<B> {
        let range = Distribution::Normal(0.0, 1.0);
        Tensor::<B, D>::random(shape, range, &self.0)
            .into_primitive()
            .tensor()
    }

    /// In 0..1.
    pub fn positive<const D: usize>(&self, shape: [usize; D]) -> FloatTensor<B> {
        let range = Distribution::Uniform(0.0, 1.0);
        Tensor::<B, D>::random(shape, range, &self.0)
            .into_primitive()
            .tensor()
    }

    /// This one, `[1]`.
    pub fn number(&self, number: f32) -> FloatTensor<B> {
        Tensor::<B, 1>::from_data([number], &self.0)
            .into_primitive()
            .tensor()
    }

    /// Below `end`, all over it.
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
