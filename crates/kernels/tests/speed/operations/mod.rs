//! Operations of a backend with the implementations that they are compared with. The tests of this folder bound their
//! ratios on one thread, and `emberlm-bench kernels`, which includes this module, measures them at the sizes of models.

mod elementwise;
mod products;

pub use elementwise::*;
pub use products::*;

use std::hint::black_box;
use std::time::Duration;

use burn::tensor::ops::{FloatTensor, IntTensor};
use burn::tensor::{Device, Distribution, Int, Shape, Tensor};
use emberlm_kernels::Backend;
use emberlm_system::measure::{Stopwatch, Unit};

/// The work of a run, from which its rate is computed.
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

    /// The rate of a run, with its unit.
    pub fn per_second(self, seconds: f64) -> (Unit, f64) {
        match self {
            Self::Flops(count) => (Unit::Flops, count / seconds),
            Self::Bytes(count) => (Unit::BytesPerSecond, count / seconds),
        }
    }
}

/// One run of an operation.
type Run = Box<dyn FnMut() + Send>;

/// Makes the inputs of both implementations, and their runs.
type Make<B> = dyn FnOnce(&Random<B>) -> [Run; 2] + Send;

/// An operation with another implementation.
pub struct Operation<B: Backend> {
    /// The name of the operation.
    pub name: &'static str,
    /// The work of a run.
    pub work: Work,
    /// The name of the other implementation.
    pub against: &'static str,
    make: Box<Make<B>>,
}

impl<B: Backend> Operation<B> {
    /// An operation and its reference implementation. The inputs are shared.
    pub fn new<T: Clone + Send + 'static, R, S>(
        name: &'static str,
        work: Work,
        inputs: impl FnOnce(&Random<B>) -> T + Send + 'static,
        mut ours: impl FnMut(T) -> R + Send + 'static,
        mut other: impl FnMut(T) -> S + Send + 'static,
    ) -> Self {
        let make = move |random: &Random<B>| -> [Run; 2] {
            let inputs = inputs(random);
            let again = inputs.clone();
            [
                Box::new(move || drop(black_box(ours(inputs.clone())))),
                Box::new(move || drop(black_box(other(again.clone())))),
            ]
        };
        Self {
            name,
            work,
            against: "reference",
            make: Box::new(make),
        }
    }

    /// An operation that replaces a tensor or several by its result. As in training, they have one owner, so that they can
    /// be updated in place.
    pub fn in_place<T: Send + 'static, I: Clone + Send + 'static>(
        name: &'static str,
        work: Work,
        inputs: impl FnOnce(&Random<B>) -> ([T; 2], I) + Send + 'static,
        mut ours: impl FnMut(T, I) -> T + Send + 'static,
        mut other: impl FnMut(T, I) -> T + Send + 'static,
    ) -> Self {
        let make = move |random: &Random<B>| -> [Run; 2] {
            let ([first, second], inputs) = inputs(random);
            let (mut first, mut second) = (Some(first), Some(second));
            let again = inputs.clone();
            [
                Box::new(move || first = first.take().map(|held| ours(held, inputs.clone()))),
                Box::new(move || second = second.take().map(|held| other(held, again.clone()))),
            ]
        };
        Self {
            name,
            work,
            against: "reference",
            make: Box::new(make),
        }
    }

    /// Names the other implementation.
    pub fn against(self, name: &'static str) -> Self {
        Self {
            against: name,
            ..self
        }
    }

    /// Stopwatches of both implementations, whose measurements take at least `at_least`.
    pub fn stopwatches(self, at_least: Duration, device: &Device<B>) -> [Stopwatch<'static>; 2] {
        let runs = (self.make)(&Random(device.clone()));
        runs.map(|mut run| {
            let device = device.clone();
            Stopwatch::new(at_least, move |repeats| {
                (0..repeats).for_each(|_| run());
                // A lost device reports an error when results are read. None are read here.
                let _ = B::sync(&device);
            })
        })
    }
}

/// Creates random tensors.
#[derive(Debug)]
pub struct Random<B: Backend>(Device<B>);

impl<B: Backend> Random<B> {
    /// Normally distributed numbers.
    pub fn floats<const D: usize>(&self, shape: [usize; D]) -> FloatTensor<B> {
        self.drawn(shape, Distribution::Normal(0.0, 1.0))
    }

    /// Uniform numbers in 0..1.
    pub fn positive<const D: usize>(&self, shape: [usize; D]) -> FloatTensor<B> {
        self.drawn(shape, Distribution::Uniform(0.0, 1.0))
    }

    fn drawn<const D: usize>(&self, shape: [usize; D], from: Distribution) -> FloatTensor<B> {
        let drawn = Tensor::<B, D>::random(shape, from, &self.0);
        drawn.into_primitive().tensor()
    }

    /// A tensor `[1]` of `number`.
    pub fn number(&self, number: f32) -> FloatTensor<B> {
        let tensor = Tensor::<B, 1>::from_data([number], &self.0);
        tensor.into_primitive().tensor()
    }

    /// Ids below `end`, distributed over the whole range.
    pub fn ids<const D: usize>(&self, shape: [usize; D], end: usize) -> IntTensor<B> {
        let count = Shape::new(shape).num_elements();
        let ids: Vec<i32> = (0..count).map(|n| (n * 7919 % end) as i32).collect();
        let ids = Tensor::<B, 1, Int>::from_data(&ids[..], &self.0);
        ids.reshape(shape).into_primitive()
    }
}
