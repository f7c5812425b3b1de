//! Dropout (Srivastava et al. 2014).

use burn::tensor::{Distribution, Tensor};

use emberlm_kernels::Backend;

/// Zeroes each element with probability `p` and scales the others by `1/(1 - p)`. Without autodiff, returns `x`.
pub(crate) fn dropout<B: Backend, const D: usize>(x: Tensor<B, D>, p: f64) -> Tensor<B, D> {
    if p == 0.0 || !B::ad_enabled(&x.device()) {
        return x;
    }
    let kept = x.random_like(Distribution::Bernoulli(1.0 - p));
    x * kept * (1.0 / (1.0 - p))
}
