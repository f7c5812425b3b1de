//! Causal attention with grouped key-value heads, and its gradients: `O = softmax(Q Kᵀ · scale + mask) V`.
//!
//! No matrix of queries by keys is ever whole in memory. Map: `heads` are views of vectors in fused buffers; `mask`
//! tells which keys a query sees, `cut` what of a piece need not be computed; `forward` and `backward` go by blocks
//! of queries and pieces of keys, with the small products of `tile` and what `transpose` makes for them, the `softmax` of
//! pieces, the `dropout` and the memory of `scratch`; `ahead` asks for memory early; `decode` is for few queries over many keys.

mod ahead;
mod backward;
mod cut;
mod decode;
mod dropout;
mod forward;
mod heads;
mod mask;
mod scratch;
mod softmax;
mod tile;
mod transpose;

pub use dropout::Dropout;
pub use heads::{HeadStrides, Heads, HeadsMut};

use crate::AttentionOptions;
use crate::cpu::parallel::Shared;

/// The sizes of an attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionShape {
    /// Sequences.
    pub batch: usize,
    /// Heads of the queries.
    pub heads: usize,
    /// Heads of the keys and values, of which each serves `heads / kv_heads` of the queries'.
    pub kv_heads: usize,
    /// Queries of a sequence: the last ones of its keys' positions.
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

/// What every task of an attention knows.
struct Call<'a> {
    shape: &'a AttentionShape,
    options: &'a AttentionOptions,
    documents: Option<&'a [i32]>,
    dropout: Option<Dropout>,
}

impl<'a> Call<'a> {
    fn new(
        shape: &'a AttentionShape,
        options: &'a AttentionOptions,
        documents: Option<&'a [i32]>,
        dropout: Option<Dropout>,
    ) -> Self {
        assert!(
            shape.is_empty() || (shape.kv_heads > 0 && shape.heads.is_multiple_of(shape.kv_heads)),
            "the heads of the keys do not divide those of the queries"
        );
        assert!(
            shape.q_len <= shape.k_len && shape.k_len < i32::MAX as usize,
            "more queries than keys"
        );
        assert!(
            documents.is_none_or(|of| of.len() == shape.batch * shape.q_len),
            "not one document for each query"
        );
        assert!(
            dropout.is_none_or(|dropout| (0.0..1.0).contains(&dropout.probability)),
            "the dropout's probability is not below 1"
        );
        Self {
            shape,
            options,
            documents,
            dropout: dropout.filter(|dropout| dropout.probability > 0.0),
        }
    }
}

/// `out = (softmax(q kᵀ · scale + mask) ∘ dropout) v`, `[batch, heads, q_len, head_dim]`, with `q` of that shape, `k` and
/// `v` `[batch, kv_heads, k_len, head_dim]`. [`AttentionOptions`] tells which keys a query sees. `documents`
/// `[batch, q_len]` is the first key of each query's document. `log_sum`, `[batch, heads, q_len]`, becomes
/// `ln Σ exp(score)` over the keys that a query sees, which [`attention_backward`] needs.
///
/// The dropout is `dropout`'s; that of the options is not looked at. Nothing is dropped before the softmax's sum is taken.
///
/// # Panics
/// Where a view is not of the shape's sizes, the key-value heads do not divide the heads, `q_len` is above `k_len`, or
/// `documents` or `log_sum` is of another size.
#[allow(clippy::too_many_arguments)]
pub fn attention(
    shape: &AttentionShape,
    options: &AttentionOptions,
    documents: Option<&[i32]>,
    dropout: Option<Dropout>,
    q: Heads<'_>,
    k: Heads<'_>,
    v: Heads<'_>,
    out: HeadsMut<'_>,
    log_sum: Option<&mut [f32]>,
) {
    let call = Call::new(shape, options, documents, dropout);
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
    let log_sum = log_sum.map(Shared::new);
    if call.dropout.is_none() && decode::suits(shape) {
        decode::decode(&call, q, k, v, &out, log_sum);
    } else {
        forward::forward(&call, q, k, v, &out, log_sum);
    }
}

/// The gradients of [`attention`] with respect to `q`, `k` and `v`, from its inputs, its outputs `out` and `log_sum`, and
/// `out`'s gradient `grad`; the options, documents and dropout are the forward's.
///
/// With `P = exp(S - log_sum)` the weights and `M` the dropout's factors: `dV = (P ∘ M)ᵀ dO`, `dP = dO Vᵀ ∘ M`,
/// `dS = P ∘ (dP - rowsum(dO ∘ O)) · scale`, `dQ = dS K`, `dK = dSᵀ Q`.
///
/// # Panics
/// As [`attention`].
#[allow(clippy::too_many_arguments)]
pub fn attention_backward(
    shape: &AttentionShape,
    options: &AttentionOptions,
    documents: Option<&[i32]>,
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
) {
    let call = Call::new(shape, options, documents, dropout);
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
        },
    );
}
