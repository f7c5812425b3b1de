//! The rotation of one side of a matrix for SOAP: a running mean of products of gradients, and its eigenvectors.
//!
//! The host computes the eigenvectors in f64 on one thread, so they do not depend on the number of threads. Products are those of
//! the device in f32.

use burn::tensor::{Int, Shape, Tensor, TensorData};
use emberlm_kernels::cpu::eigenbasis::{eigenvectors, orthonormal};
use emberlm_kernels::ops::linear;
use emberlm_kernels::{Backend, Precision};

use super::Moments;
use super::state::StateKind;
use crate::read::host_read;

/// `a · b` in f32.
pub(super) fn product<B: Backend>(a: Tensor<B, 2>, b: Tensor<B, 2>) -> Tensor<B, 2> {
    linear(a, b, None, None, Precision::F32)
}

/// The rotation of one side of a matrix.
pub(super) struct Eigenbasis<B: Backend> {
    /// The running mean `[n, n]` of `G Gᵀ` or `Gᵀ G`.
    mean: Tensor<B, 2>,
    /// Its approximate eigenvectors, in columns.
    pub(super) vectors: Tensor<B, 2>,
}

impl<B: Backend> Eigenbasis<B> {
    /// The eigenvectors of the mean after the first product.
    pub(super) fn of_first(first: Tensor<B, 2>, beta: f64) -> Self {
        let mean = first * (1.0 - beta);
        let [n, _] = mean.dims();
        let values: Vec<f32> = host_read(mean.clone()).iter::<f32>().collect();
        let vectors = in_columns(&eigenvectors(&values, n), &mean);
        Self { mean, vectors }
    }

    /// Takes the mean and the vectors of a parameter with `n` rows or columns out of its state; `None` if it has none.
    pub(super) fn take<const D: usize>(
        moments: &mut Moments<B>,
        [mean, vectors]: [StateKind; 2],
        n: usize,
    ) -> Option<Self> {
        let mut square = |kind| Some(moments.take::<D>(kind)?.reshape([n, n]));
        Some(Self {
            mean: square(mean)?,
            vectors: square(vectors)?,
        })
    }

    /// Adds the mean and the vectors to the state of a parameter of this shape.
    pub(super) fn put<const D: usize>(
        self,
        moments: Moments<B>,
        [mean, vectors]: [StateKind; 2],
        parameter: &[usize],
    ) -> Moments<B> {
        let whole = |square: Tensor<B, 2>, kind: StateKind| -> Tensor<B, D> {
            square.reshape(Shape::from(kind.shape(parameter)))
        };
        moments
            .with(mean, whole(self.mean, mean))
            .with(vectors, whole(self.vectors, vectors))
    }

    /// The rotation after another product.
    pub(super) fn with(self, next: Tensor<B, 2>, beta: f64) -> Self {
        let mean = self.mean * beta + next * (1.0 - beta);
        Self { mean, ..self }
    }

    /// One step of power iteration and a QR decomposition, from the vectors in order of falling eigenvalue estimates. Also returns
    /// this order.
    pub(super) fn refined(self) -> (Self, Tensor<B, 1, Int>) {
        let Self { mean, vectors } = self;
        let [n, _] = mean.dims();
        let powers = product(mean.clone(), vectors.clone());
        let estimates = (vectors * powers.clone()).sum_dim(0); // [1, n]
        // One read for both.
        let both: Vec<f32> = host_read(Tensor::cat(vec![powers, estimates], 0))
            .iter::<f32>()
            .collect();
        let (powers, estimates) = both.split_at(n * n);
        let mut order: Vec<usize> = (0..n).collect();
        order.sort_by(|&a, &b| estimates[b].total_cmp(&estimates[a]));
        let column = |&of: &usize| -> Vec<f64> {
            let rows = powers.chunks(n);
            rows.map(|row| f64::from(row[of])).collect()
        };
        let columns: Vec<Vec<f64>> = order.iter().map(column).collect();
        let vectors = orthonormal(&columns);
        let vectors = in_columns(&vectors, &mean);
        let order: Vec<i64> = order.into_iter().map(|of| of as i64).collect();
        let order = Tensor::from_data(TensorData::new(order, [n]), &mean.device());
        (Self { mean, vectors }, order)
    }
}

/// A matrix with these columns, on the device of `beside`.
fn in_columns<B: Backend>(vectors: &[Vec<f64>], beside: &Tensor<B, 2>) -> Tensor<B, 2> {
    let n = vectors.len();
    let elements = (0..n * n).map(|at| vectors[at % n][at / n] as f32);
    let data = TensorData::new(elements.collect::<Vec<_>>(), [n, n]);
    Tensor::from_data(data, &beside.device())
}
