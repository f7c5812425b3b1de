//! The losses of routers, which keep the experts of a mixture in use.
//!
//! Over the rows of all layers with experts together, with `fₑ` the experts' shares of the rows (they add up to `active`) and
//! `Pₑ` their mean probabilities:
//!
//! ```text
//! balance = count · Σ fₑ Pₑ                  Fedus et al. 2021, "Switch Transformers", as `transformers` computes it
//! z       = mean of (log Σ exp logits)²      Zoph et al. 2022, "ST-MoE"
//! ```
//!
//! `fₑ` is a constant to the gradients. Given `fₑ`, both are sums over the layers, so that each layer's part can be
//! differentiated with only that layer.

use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::{Tensor, TensorData};

use emberlm_kernels::Backend;

use crate::nn::mixture::Routing;

/// The tokens that each expert computed, for each layer with experts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExpertLoad {
    /// `layers[l][e]`: the tokens that expert `e` of the `l`th layer with experts computed.
    pub layers: Vec<Vec<usize>>,
}

impl ExpertLoad {
    /// The load of some layers' routings.
    pub fn of<B: BurnBackend>(routings: &[Routing<B>]) -> Self {
        let tokens = routings.iter().map(|routing| routing.tokens.clone());
        Self {
            layers: tokens.collect(),
        }
    }

    /// Adds the tokens of another pass of the same model.
    pub fn add(&mut self, other: &Self) {
        if self.layers.is_empty() {
            self.layers.clone_from(&other.layers);
            return;
        }
        for (own, other) in self.layers.iter_mut().zip(&other.layers) {
            for (own, other) in own.iter_mut().zip(other) {
                *own += other;
            }
        }
    }

    /// The smallest and the largest share of a layer's work that an expert has, in any layer: `1 / count` each if the load
    /// is balanced. `None` if there is no layer with experts.
    pub fn extremes(&self) -> Option<(f64, f64)> {
        let shares = self.layers.iter().flat_map(|layer| {
            let all: usize = layer.iter().sum();
            let share = move |&tokens: &usize| tokens as f64 / all.max(1) as f64;
            layer.iter().map(share)
        });
        shares.fold(None, |found, share| {
            let (least, most) = found.unwrap_or((share, share));
            Some((share.min(least), share.max(most)))
        })
    }

    /// The share of all rows that each expert computed: `fₑ`.
    fn shares(&self, rows: usize) -> Vec<f32> {
        let count = self.layers.first().map_or(0, Vec::len);
        let share = |expert: usize| {
            let tokens: usize = self.layers.iter().map(|layer| layer[expert]).sum();
            (tokens as f64 / rows.max(1) as f64) as f32
        };
        (0..count).map(share).collect()
    }
}

/// The coefficients of the losses.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RouterCoefficients {
    /// Of the balance loss.
    pub balance: f64,
    /// Of the z-loss.
    pub z: f64,
}

impl RouterCoefficients {
    /// The coefficients times a factor.
    pub fn times(self, factor: f64) -> Self {
        Self {
            balance: self.balance * factor,
            z: self.z * factor,
        }
    }

    /// True if no loss has a coefficient.
    pub(crate) fn are_zero(self) -> bool {
        self == Self::default()
    }
}

/// The router losses of one pass, as a sum over the layers with experts.
pub(crate) struct RouterLoss<B: BurnBackend> {
    coefficients: RouterCoefficients,
    /// Rows of all layers.
    rows: usize,
    /// `fₑ`, `[1, count]`.
    shares: Tensor<B, 2>,
}

impl<B: Backend> RouterLoss<B> {
    /// The losses of a pass with this load; `None` if the coefficients are 0 or there is no layer with experts.
    pub(crate) fn of<R: BurnBackend>(
        coefficients: RouterCoefficients,
        load: &ExpertLoad,
        routings: &[Routing<R>],
        device: &burn::tensor::Device<B>,
    ) -> Option<Self> {
        if coefficients.are_zero() || routings.is_empty() {
            return None;
        }
        let rows = routings
            .iter()
            .map(|routing| routing.logits.dims()[0])
            .sum();
        let shares = load.shares(rows);
        let shape = [1, shares.len()];
        Some(Self {
            coefficients,
            rows,
            shares: Tensor::from_data(TensorData::new(shares, shape), device),
        })
    }

    /// A layer's part of the losses, times their coefficients, `[1]`.
    pub(crate) fn part(&self, routing: &Routing<B>) -> Tensor<B, 1> {
        let rows = self.rows.max(1) as f64;
        let count = routing.tokens.len() as f64;
        let shared = routing.probabilities.clone() * self.shares.clone();
        let balance = shared.sum() * (self.coefficients.balance * count / rows);
        if self.coefficients.z == 0.0 {
            return balance;
        }
        let logits = routing.logits.clone(); // [rows, count]
        let most = logits.clone().detach().max_dim(1);
        let sums = (logits - most.clone()).exp().sum_dim(1);
        let logs = sums.log() + most; // [rows, 1]
        balance + (logs.clone() * logs).sum() * (self.coefficients.z / rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With logits `ln 1, ln 3` and `ln 2, ln 2` the normalizers are 4. The share of the first expert, which one of two rows
    /// chose, is a half, and so is that of the second.
    #[test]
    fn losses_and_gradients_by_hand() {
        type Training = burn::backend::Autodiff<burn_flex::Flex>;
        let device = Default::default();
        let logits = [[0.0, 3f32.ln()], [2f32.ln(), 2f32.ln()]];
        let logits = Tensor::<Training, 2>::from_data(logits, &device).require_grad();
        let routing = Routing {
            probabilities: burn::tensor::activation::softmax(logits.clone(), 1),
            logits: logits.clone(),
            tokens: vec![1, 1],
        };
        let routings = [routing];
        let load = ExpertLoad::of(&routings);
        let part = |balance, z| {
            let coefficients = RouterCoefficients { balance, z };
            let loss = RouterLoss::of(coefficients, &load, &routings, &device).unwrap();
            let part = loss.part(&routings[0]);
            let gradient = logits.grad(&part.backward()).unwrap();
            let value: f32 = part.into_scalar();
            (
                value,
                gradient.into_data().iter::<f32>().collect::<Vec<_>>(),
            )
        };
        let close = |found: &[f32], expected: &[f32]| {
            let pairs = found.iter().zip(expected);
            assert!(
                pairs.clone().all(|(a, b)| (a - b).abs() < 1e-6),
                "{found:?} {expected:?}"
            );
        };
        // 2 · (½ · (¼ + ½) / 2 + ½ · (¾ + ½) / 2), whose gradients cancel within a row.
        let (value, gradient) = part(1.0, 0.0);
        close(&[value], &[1.0]);
        close(&gradient, &[0.0; 4]);
        // The mean of (ln 4)²; the gradient 2 · ln 4 · p / 2.
        let (value, gradient) = part(0.0, 1.0);
        let log = 4f32.ln();
        close(&[value], &[log * log]);
        close(&gradient, &[0.25 * log, 0.75 * log, 0.5 * log, 0.5 * log]);
    }

    #[test]
    fn extremes_are_shares_of_a_layer() {
        let mut load = ExpertLoad {
            layers: vec![vec![1, 3], vec![2, 2]],
        };
        assert_eq!(load.extremes(), Some((0.25, 0.75)));
        load.add(&load.clone());
        assert_eq!(load.layers, [vec![2, 6], vec![4, 4]]);
        assert_eq!(ExpertLoad::default().extremes(), None);
    }
}
