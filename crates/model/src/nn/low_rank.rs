//! Low-rank adapters of linear layers: LoRA (Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models") and
//! DoRA (Liu et al. 2024, "DoRA: Weight-Decomposed Low-Rank Adaptation").
//!
//! The weight W of a fused layer consists of several published layers side by side. An adapter has a part for each of
//! those that it adapts. The parts are computed together, in two products of the joined factors:
//!
//! ```text
//! x W + x [A₁ A₂] ⎡ s₁ B₁   0   ⎤
//!                 ⎣  0    s₂ B₂ ⎦
//! ```

use std::ops::Range;

use burn::module::{Module, Param};
use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::{Device, Tensor, TensorData};
use emberlm_kernels::{Backend, Precision, ops};
use emberlm_system::random::split_mix;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Uniform};

use crate::nn::dropout::dropout;
use crate::nn::linear::LinearWeight;

/// A trainable update of consecutive outputs of a linear layer: `scale · A B`, and with DoRA their norms.
#[derive(Module, Debug)]
pub struct LowRank<B: BurnBackend> {
    /// A, `[in, rank]`.
    pub a: Param<Tensor<B, 2>>,
    /// B, `[rank, outputs]`.
    pub b: Param<Tensor<B, 2>>,
    /// DoRA's magnitude m, the norm of each output's weights, `[outputs]`.
    pub magnitude: Option<Param<Tensor<B, 1>>>,
    #[module(skip)]
    first_output: usize,
    #[module(skip)]
    scale: f64,
    /// True if the magnitudes have been divided by the norms of the adapted weights.
    #[module(skip)]
    is_normalized: bool,
}

/// The adapter of a linear layer: updates of disjoint ranges of its outputs, in their order.
///
/// ```
/// use burn::tensor::Tensor;
/// use burn_flex::Flex;
/// use emberlm_model::nn::LinearConfig;
/// use emberlm_model::{Adapter, LowRankConfig};
///
/// let device = Default::default();
/// let linear = LinearConfig::new(16, 8).init::<Flex>(&device);
/// let config = LowRankConfig { outputs: 0..8, rank: 2, scale: 2.0, magnitude: false };
/// let update = config.init(&linear.weight, 7, &device);
/// let linear = linear.with_adapter(Adapter::new(vec![update], 0.0));
/// assert_eq!(linear.forward(Tensor::zeros([2, 3, 16], &device), None).dims(), [2, 3, 8]);
/// ```
#[derive(Module, Debug)]
pub struct Adapter<B: BurnBackend> {
    /// The updates.
    pub parts: Vec<LowRank<B>>,
    /// Probability of zeroing an element of the updates' input in training.
    #[module(skip)]
    dropout: f64,
}

/// Configuration of a [`LowRank`].
#[derive(Clone, Debug, PartialEq)]
pub struct LowRankConfig {
    /// The outputs of the layer that are updated.
    pub outputs: Range<usize>,
    /// Rank r of `A B`, at least 1.
    pub rank: usize,
    /// Factor on `A B`: `α / r`, or `α / √r` with rank-stabilized scaling.
    pub scale: f64,
    /// True to train the norms of the weights as well (DoRA).
    pub magnitude: bool,
}

impl LowRankConfig {
    /// Builds an update of a layer's `weight`. A is drawn from `U(±1/√in)` and B is zero, so the layer is unchanged.
    pub fn init<B: Backend>(
        &self,
        weight: &LinearWeight<B>,
        seed: u64,
        device: &Device<B>,
    ) -> LowRank<B> {
        let [fan_in, _] = weight.shape();
        let (rank, outputs) = (self.rank.max(1), self.outputs.len());
        let bound = 1.0 / (fan_in as f32).sqrt();
        let a = match Uniform::new_inclusive(-bound, bound) {
            Ok(uniform) => uniform
                .sample_iter(ChaCha8Rng::seed_from_u64(split_mix(seed)))
                .take(fan_in * rank)
                .collect(),
            // Only an input of width 0 has an infinite bound.
            Err(_) => vec![0.0; fan_in * rank],
        };
        let a = Tensor::from_data(TensorData::new(a, [fan_in, rank]), device);
        let magnitude = self.magnitude.then(|| {
            let weight = weight.val().narrow(1, self.outputs.start, outputs);
            Param::from_tensor(squared_norms(weight).sqrt().detach())
        });
        LowRank {
            a: Param::from_tensor(a),
            b: Param::from_tensor(Tensor::zeros([rank, outputs], device)),
            magnitude,
            first_output: self.outputs.start,
            scale: self.scale,
            is_normalized: false,
        }
    }
}

/// The squared norm of each column, `[columns]`.
fn squared_norms<B: Backend>(matrix: Tensor<B, 2>) -> Tensor<B, 1> {
    matrix.square().sum_dim(0).squeeze_dim(0)
}

impl<B: BurnBackend> LowRank<B> {
    /// Factor on `A B`.
    pub fn scale(&self) -> f64 {
        self.scale
    }

    /// The outputs of the layer that are updated.
    pub fn outputs(&self) -> Range<usize> {
        self.first_output..self.first_output + self.b.lazy_shape()[1]
    }
}

impl<B: Backend> LowRank<B> {
    /// `scale · B` between zeros for the layer's other outputs, `[rank, out]`.
    fn padded(&self, out: usize) -> Tensor<B, 2> {
        let b = match self.scale {
            1.0 => self.b.val(),
            scale => self.b.val() * scale,
        };
        let [rank, outputs] = b.dims();
        let device = b.device();
        let zeros = |count| Tensor::zeros([rank, count], &device);
        let after = out - self.first_output - outputs;
        let mut columns = vec![b];
        if self.first_output > 0 {
            columns.insert(0, zeros(self.first_output));
        }
        if after > 0 {
            columns.push(zeros(after));
        }
        joined(columns, 1)
    }

    /// DoRA's gains of the outputs, `m / ‖W + scale · A B‖` for each output, `[outputs]`. `None` without magnitudes.
    /// As in the paper (section 4.3), the norm is a constant in the backward pass.
    fn gains(&self, weight: &LinearWeight<B>) -> Option<Tensor<B, 1>> {
        let magnitude = self.magnitude.as_ref()?.val();
        if self.is_normalized {
            return Some(magnitude);
        }
        let outputs = self.outputs();
        let weight = weight.val().narrow(1, outputs.start, outputs.len());
        let norms = squared_norms((weight + self.product()).detach()).sqrt();
        Some(magnitude / norms)
    }

    /// `scale · A B`, `[in, outputs]`.
    fn product(&self) -> Tensor<B, 2> {
        self.a.val().matmul(self.b.val() * self.scale)
    }
}

/// Concatenates tensors; one is returned as it is.
fn joined<B: Backend>(mut tensors: Vec<Tensor<B, 2>>, dimension: usize) -> Tensor<B, 2> {
    match tensors.len() {
        1 => tensors.remove(0),
        _ => Tensor::cat(tensors, dimension),
    }
}

impl<B: Backend> Adapter<B> {
    /// Joins updates of disjoint outputs, in their order. `dropout` is the probability of zeroing an element of their
    /// input in training.
    pub fn new(parts: Vec<LowRank<B>>, dropout: f64) -> Self {
        Self { parts, dropout }
    }

    /// True if training draws dropout masks.
    pub(crate) fn uses_dropout(&self) -> bool {
        self.dropout > 0.0
    }

    /// The adapter for inference: one update of all outputs. The factors are joined, and DoRA's gains computed, once instead
    /// of in every pass.
    pub(crate) fn fused(&self, weight: &LinearWeight<B>) -> Self {
        let (a, b) = self.factors(weight);
        let update = LowRank {
            a: Param::from_tensor(a),
            b: Param::from_tensor(b),
            magnitude: self.gains(weight).map(Param::from_tensor),
            first_output: 0,
            scale: 1.0,
            is_normalized: true,
        };
        Self::new(vec![update], self.dropout)
    }

    /// The factors of all updates side by side: `[in, Σ ranks]` and `[Σ ranks, out]`.
    fn factors(&self, weight: &LinearWeight<B>) -> (Tensor<B, 2>, Tensor<B, 2>) {
        let [_, out] = weight.shape();
        let a = self.parts.iter().map(|part| part.a.val()).collect();
        let b = self.parts.iter().map(|part| part.padded(out)).collect();
        (joined(a, 1), joined(b, 0))
    }

    /// `gain · (y + x A B)`; x is `[batch, seq, in]` and y, the layer's output without the adapter, `[batch, seq, out]`.
    fn update(
        &self,
        x: Tensor<B, 3>,
        y: Tensor<B, 3>,
        weight: &LinearWeight<B>,
        precision: Precision,
    ) -> Tensor<B, 3> {
        let (a, b) = self.factors(weight);
        let down = ops::linear(dropout(x, self.dropout), a, None, None, precision);
        let updated = ops::linear(down, b, None, Some(y), precision);
        match self.gains(weight) {
            Some(gains) => updated * gains.unsqueeze(),
            None => updated,
        }
    }

    /// True if an update has magnitudes, which scale the layer's output before bias and residual are added.
    fn has_magnitudes(&self) -> bool {
        self.parts.iter().any(|part| part.magnitude.is_some())
    }

    /// DoRA's gains of all outputs of the layer, `[out]`: 1 for outputs without magnitudes. `None` if there are none.
    fn gains(&self, weight: &LinearWeight<B>) -> Option<Tensor<B, 1>> {
        let [_, out] = weight.shape();
        let device = self.parts.first()?.a.device();
        self.has_magnitudes().then(|| {
            let mut columns = Vec::new();
            let mut next = 0;
            let ones = |count| Tensor::ones([count], &device);
            for part in &self.parts {
                let outputs = part.outputs();
                if outputs.start > next {
                    columns.push(ones(outputs.start - next));
                }
                columns.push(part.gains(weight).unwrap_or_else(|| ones(outputs.len())));
                next = outputs.end;
            }
            if next < out {
                columns.push(ones(out - next));
            }
            Tensor::cat(columns, 0)
        })
    }

    /// The weight of the adapted layer, `gain · (W + scale · A B)`, `[in, out]`.
    pub(crate) fn merged(&self, weight: &LinearWeight<B>) -> Tensor<B, 2> {
        let (a, b) = self.factors(weight);
        let sum = weight.val() + a.matmul(b);
        match self.gains(weight) {
            Some(gains) => sum * gains.unsqueeze(),
            None => sum,
        }
    }
}

/// Consecutive rows of a layer's input, and their adapter, if any.
#[derive(Debug)]
pub(crate) struct AdaptedRows<'a, B: BurnBackend> {
    pub adapter: Option<&'a Adapter<B>>,
    pub rows: usize,
}

/// Computes `gain · (base + x A B) + b + residual` with the factors and gains of each row's adapter: x is
/// `[batch, seq, in]` and `base`, the layer's output without adapters for the same input, is computed in one pass for
/// all rows as `base(x, b, residual)`, `[batch, seq, out]`. A single group has all rows; the rows of several are those
/// of `seq`, with a batch of 1.
pub(crate) fn adapted<B: Backend>(
    groups: &[AdaptedRows<'_, B>],
    x: Tensor<B, 3>,
    weight: &LinearWeight<B>,
    bias: Option<Tensor<B, 1>>,
    residual: Option<Tensor<B, 3>>,
    precision: Precision,
    base: impl FnOnce(Tensor<B, 3>, Option<Tensor<B, 1>>, Option<Tensor<B, 3>>) -> Tensor<B, 3>,
) -> Tensor<B, 3> {
    let mut adapters = groups.iter().filter_map(|group| group.adapter);
    let scales = adapters.any(Adapter::has_magnitudes);
    let (y, bias, residual) = match scales {
        true => (base(x.clone(), None, None), bias, residual),
        false => (base(x.clone(), bias, residual), None, None),
    };
    let updated = updated(groups, x, y, weight, precision);
    let biased = match bias {
        Some(bias) => updated + bias.unsqueeze(),
        None => updated,
    };
    match residual {
        Some(residual) => residual + biased,
        None => biased,
    }
}

/// The output y of a layer, `[batch, seq, out]`, with the updates of each group's adapter. Several groups have no dropout:
/// they occur in inference only.
fn updated<B: Backend>(
    groups: &[AdaptedRows<'_, B>],
    x: Tensor<B, 3>,
    y: Tensor<B, 3>,
    weight: &LinearWeight<B>,
    precision: Precision,
) -> Tensor<B, 3> {
    if let [AdaptedRows { adapter, .. }] = groups {
        return match adapter {
            Some(adapter) => adapter.update(x, y, weight, precision),
            None => y,
        };
    }
    let (mut updates, mut gains, mut first) = (Vec::new(), Vec::new(), 0);
    for &AdaptedRows { adapter, rows } in groups {
        if let Some(adapter) = adapter {
            let (a, b) = adapter.factors(weight);
            updates.push((first..first + rows, a, b));
        }
        gains.push(adapter.and_then(|adapter| adapter.gains(weight)));
        first += rows;
    }
    let updated = ops::add_low_rank(y, x, updates, precision);
    if gains.iter().all(Option::is_none) {
        return updated;
    }
    let mut first = 0;
    let scaled = groups.iter().zip(gains).map(|(group, gains)| {
        let y = updated.clone().narrow(1, first, group.rows);
        first += group.rows;
        match gains {
            Some(gains) => y * gains.unsqueeze(),
            None => y,
        }
    });
    Tensor::cat(scaled.collect(), 1)
}
