//! Attentions that continue the state of a cache.

use burn::tensor::Tensor;

use emberlm_kernels::{Backend, ops};

use crate::nn::delta_net::DeltaNet;
use crate::nn::kv_cache::{LayerCache, RecurrentState};

/// Linear attention that continues the cache's tokens.
pub(super) fn linear_attention<B: Backend>(
    q: Tensor<B, 4>,
    k: Tensor<B, 4>,
    v: Tensor<B, 4>,
    features: Tensor<B, 2>,
    cache: &mut LayerCache<B>,
) -> Tensor<B, 4> {
    let seq = q.dims()[2];
    let past = match cache.take_state() {
        Some(RecurrentState::Sums(sums)) => Some(sums),
        _ => None,
    };
    let (mixed, sums) = ops::linear_attention(q, k, v, features, past);
    cache.put_state(sums.map(RecurrentState::Sums), seq);
    mixed
}

/// The outputs of a delta net's heads, which continue the cache's tokens, if any.
pub(super) fn delta_net<B: Backend>(
    net: &DeltaNet<B>,
    qkv: Tensor<B, 3>,
    rates: Tensor<B, 3>,
    cache: Option<&mut LayerCache<B>>,
) -> Tensor<B, 3> {
    let Some(cache) = cache else {
        return net.mix(qkv, rates, None).0;
    };
    let seq = qkv.dims()[1];
    let past = match cache.take_state() {
        Some(RecurrentState::Delta(state)) => Some(state),
        _ => None,
    };
    let (mixed, state) = net.mix(qkv, rates, past);
    cache.put_state(Some(RecurrentState::Delta(state)), seq);
    mixed
}
