//! Attention with grouped key-value heads, and its gradients: `O = softmax(cap(Q Kᵀ · scale) + bias + mask) V`.
//!
//! No matrix of queries by keys is ever whole in memory. Map: `heads` are views of vectors in fused buffers; `mask`
//! holds the keys a query sees, `cut` what of a piece need not be computed; `forward` and `backward` go by blocks
//! of queries and pieces of keys, with the small products of `tile` and what `transpose` makes for them, the `scores`' soft
//! cap, bias and padding, the `softmax` of pieces, the `dropout` and the memory of `scratch`; `ahead` asks for memory early; `decode` is for few queries over many keys.

mod ahead;
mod backward;
mod cut;
mod decode;
mod dropout;
mod forward;
mod heads;
mod mask;
mod rows;
mod scores;
mod scratch;
mod softmax;
mod tile;
mod transpose;

pub use dropout::Dropout;
pub use heads::{HeadStrides, Heads, HeadsMut};

use crate::cpu::parallel::Shared;
use crate::{AttentionOptions, Reach};

/// The sizes of an attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionShape {
    /// Sequences.
    pub batch: usize,
    /// Heads of the queries.
    pub heads: usize,
    /// Heads of the keys and values, of which each serves `heads / kv_heads` of the queries'.
    pub kv_heads: usize,
    /// Queries of a sequence; unless the reach is full, the last ones of its keys' positions.
    pub q_len: usize,
    /// Keys of a sequence.
    pub k_len: usize,
    /// Elements of a vector.
    pub head_dim: usize,
}

impl AttentionShape {
    /// `[batch, heads, q_len, head_dim]`.
    pub fn q_dims(&self) -> [usize; 4] {
        [self.batch, self.heads, self.q_len, self.head_dim]
    }

    /// `[batch, kv_heads, k_len, head_dim]`.
    pub fn k_dims(&self) -> [usize; 4] {
        [self.batch, self.kv_heads, self.k_len, self.head_dim]
    }

    fn is_empty(&self) -> bool {
        self.batch * self.heads * self.q_len * self.head_dim == 0
    }
}

/// Restrictions and biases of the scores beyond the reach, each optional.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mask<'a> {
    /// The first key of each query's document, `[batch, q_len]`. A query sees no key before it.
    pub documents: Option<&'a [i32]>,
    /// The padding mask, `[batch, k_len]`: true where the key may be seen.
    pub padding: Option<&'a [bool]>,
    /// Added to the scores after scale and soft cap, `[heads, q_len, k_len]`.
    pub bias: Option<&'a [f32]>,
}

/// The state that all tasks of an attention share.
struct Call<'a> {
    shape: &'a AttentionShape,
    options: &'a AttentionOptions,
    mask: Mask<'a>,
    dropout: Option<Dropout>,
}

impl<'a> Call<'a> {
    fn new(
        shape: &'a AttentionShape,
        options: &'a AttentionOptions,
        mask: Mask<'a>,
        dropout: Option<Dropout>,
    ) -> Self {
        let AttentionShape {
            batch,
            heads,
            q_len,
            k_len,
            ..
        } = *shape;
        assert!(
            shape.is_empty() || (shape.kv_heads > 0 && heads.is_multiple_of(shape.kv_heads)),
            "the heads of the keys do not divide those of the queries"
        );
        assert!(
            options.reach == Reach::Full || q_len <= k_len,
            "more queries than keys"
        );
        assert!(
            k_len < i32::MAX as usize && q_len < i32::MAX as usize,
            "too many keys"
        );
        assert!(
            mask.documents.is_none_or(|of| of.len() == batch * q_len),
            "not one document for each query"
        );
        assert!(
            mask.padding.is_none_or(|of| of.len() == batch * k_len),
            "the padding mask is not of the keys"
        );
        assert!(
            mask.bias.is_none_or(|of| of.len() == heads * q_len * k_len),
            "not one bias for each query and key"
        );
        assert!(
            dropout.is_none_or(|dropout| (0.0..1.0).contains(&dropout.probability)),
            "the dropout's probability is not below 1"
        );
        Self {
            shape,
            options,
            mask,
            dropout: dropout.filter(|dropout| dropout.probability > 0.0),
        }
    }
}

/// `out = (softmax(scores) ∘ dropout) v`, `[batch, heads, q_len, head_dim]`, with `q` of that shape, `k` and `v`
/// `[batch, kv_heads, k_len, head_dim]`. The scores are `scale · q kᵀ`, capped and biased as the options and the mask say;
/// [`AttentionOptions::reach`] and the mask say which keys a query sees. `log_sum`, `[batch, heads, q_len]`, becomes
/// `ln Σ exp(score)` over the keys that a query sees, which [`attention_backward`] needs.
///
/// The output of a query that sees no key is 0, and its `log_sum` -∞.
///
/// The dropout is `dropout`'s; that of the options is not looked at. Nothing is dropped before the softmax's sum is taken.
///
/// # Panics
/// Panics if a view is not of the shape's sizes, the key-value heads do not divide the heads, `q_len` is above `k_len` and the
/// reach not full, or a part of the mask or `log_sum` is of another size.
#[allow(clippy::too_many_arguments)]
pub fn attention(
    shape: &AttentionShape,
    options: &AttentionOptions,
    mask: Mask<'_>,
    dropout: Option<Dropout>,
    q: Heads<'_>,
    k: Heads<'_>,
    v: Heads<'_>,
    out: HeadsMut<'_>,
    log_sum: Option<&mut [f32]>,
) {
    let call = Call::new(shape, options, mask, dropout);
    assert!(
        q.dims() == shape.q_dims() && out.dims() == shape.q_dims(),
        "queries of another size"
    );
    assert!(
        k.dims() == shape.k_dims() && v.dims() == shape.k_dims(),
        "keys of another size"
    );
    assert!(
        log_sum
            .as_ref()
            .is_none_or(|of| of.len() == shape.batch * shape.heads * shape.q_len),
        "not one sum for each query"
    );
    if shape.is_empty() {
        return;
    }
    if shape.k_len == 0 {
        out.clear();
        if let Some(log_sum) = log_sum {
            log_sum.fill(f32::NEG_INFINITY);
        }
        return;
    }
    let log_sum = log_sum.map(Shared::new);
    if call.dropout.is_none() && decode::suits(shape) {
        decode::decode(&call, q, k, v, &out, log_sum);
    } else {
        forward::forward(&call, q, k, v, &out, log_sum);
    }
}

/// The gradients of [`attention`] with respect to `q`, `k`, `v` and, where asked for, the mask's bias, from its inputs, its
/// outputs `out` and `log_sum`, and `out`'s gradient `grad`; the options, mask and dropout are the forward's.
///
/// With `P = exp(S - log_sum)` the weights and `M` the dropout's factors: `dV = (P ∘ M)ᵀ dO`, `dP = dO Vᵀ ∘ M`,
/// `dS = P ∘ (dP - rowsum(dO ∘ O))`, `dBias = dS` summed over the batch, `dX = dS ∘ (1 - (C / cap)²) · scale` with the
/// capped scores `C`, or `dS · scale` without a cap, `dQ = dX K`, `dK = dXᵀ Q`.
///
/// # Panics
/// As [`attention`], and where `dbias` is not `[heads, q_len, k_len]`.
#[allow(clippy::too_many_arguments)]
pub fn attention_backward(
    shape: &AttentionShape,
    options: &AttentionOptions,
    mask: Mask<'_>,
    dropout: Option<Dropout>,
    q: Heads<'_>,
    k: Heads<'_>,
    v: Heads<'_>,
    out: Heads<'_>,
    log_sum: &[f32],
    grad: Heads<'_>,
    dq: HeadsMut<'_>,
    dk: HeadsMut<'_>,
    dv: HeadsMut<'_>,
    dbias: Option<&mut [f32]>,
) {
    let call = Call::new(shape, options, mask, dropout);
    let queries = [q.dims(), out.dims(), grad.dims(), dq.dims()];
    assert!(
        queries.iter().all(|dims| *dims == shape.q_dims()),
        "queries of another size"
    );
    let keys = [k.dims(), v.dims(), dk.dims(), dv.dims()];
    assert!(
        keys.iter().all(|dims| *dims == shape.k_dims()),
        "keys of another size"
    );
    assert!(
        log_sum.len() == shape.batch * shape.heads * shape.q_len,
        "not one sum for each query"
    );
    assert!(
        dbias
            .as_ref()
            .is_none_or(|of| of.len() == shape.heads * shape.q_len * shape.k_len),
        "not one gradient for each query and key"
    );
    let dbias = dbias.map(|of| {
        of.fill(0.0);
        Shared::new(of)
    });
    if shape.k_len == 0 {
        dq.clear();
    }
    backward::backward(
        &call,
        &backward::Inputs {
            q,
            k,
            v,
            out,
            log_sum,
            grad,
        },
        &backward::Outputs {
            dq: &dq,
            dk: &dk,
            dv: &dv,
            dbias,
        },
    );
}
