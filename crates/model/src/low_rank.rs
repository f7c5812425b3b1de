//! Low-rank adapters (Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models").

use burn::module::{Module, Param};
use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::{Device, Tensor, TensorData};
use emberlm_kernels::{Backend, Precision, ops};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Uniform};

/// Configuration of a low-rank adapter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LowRankConfig {
    /// Rank r of `A B`, at least 1.
    pub rank: usize,
    /// Numerator α of the factor `α / r` on `A B`.
    pub alpha: f64,
}

/// A trainable update of a linear layer's weight: `scale · A B`.
#[derive(Module, Debug)]
pub struct LowRank<B: BurnBackend> {
    /// A, `[in, rank]`.
    pub a: Param<Tensor<B, 2>>,
    /// B, `[rank, out]`.
    pub b: Param<Tensor<B, 2>>,
    #[module(skip)]
    scale: f64,
}

impl LowRankConfig {
    /// Builds an adapter for a weight `[in, out]`. A is drawn from `U(±1/√in)` and B is zero, so the initial update is
    /// zero.
    pub fn init<B: Backend>(
        &self,
        [fan_in, out]: [usize; 2],
        seed: u64,
        device: &Device<B>,
    ) -> LowRank<B> {
        let rank = self.rank.max(1);
        let bound = 1.0 / (fan_in as f32).sqrt();
        let a = match Uniform::new_inclusive(-bound, bound) {
            Ok(uniform) => uniform
                .sample_iter(ChaCha8Rng::seed_from_u64(seed))
                .take(fan_in * rank)
                .collect(),
            // Only an input of width 0 has an infinite bound.
            Err(_) => vec![0.0; fan_in * rank],
        };
        let a = Tensor::from_data(TensorData::new(a, [fan_in, rank]), device);
        LowRank {
            a: Param::from_tensor(a),
            b: Param::from_tensor(Tensor::zeros([rank, out], device)),
            scale: self.alpha / rank as f64,
        }
    }
}

impl<B: Backend> LowRank<B> {
    /// Returns the factor on `A B`.
    pub fn scale(&self) -> f64 {
        self.scale
    }

    /// Computes `scale · x A`: `[batch, seq, in]` to `[batch, seq, rank]`.
    pub(crate) fn down(&self, x: Tensor<B, 3>, precision: Precision) -> Tensor<B, 3> {
        ops::linear(x, self.a.val(), None, None, precision) * self.scale
    }

    /// Computes `y + down B`: `[batch, seq, rank]` to `[batch, seq, out]`.
    pub(crate) fn up(
        &self,
        down: Tensor<B, 3>,
        y: Tensor<B, 3>,
        precision: Precision,
    ) -> Tensor<B, 3> {
        ops::linear(down, self.b.val(), None, Some(y), precision)
    }
}
