//! Attention with grouped key-value heads, and its gradients: `O = softmax(cap(Q Kᵀ · scale) + bias + mask) V`.
//!
//! The full matrix of scores is never in memory:
//!
//! - `forward` and `backward` process blocks of queries and chunks of keys; `decode` is for few queries over many
//!   keys.
//! - `heads` has views of vectors in fused buffers, `vectors` the reading of keys and values in f32 or packed, `mask`
//!   the keys visible to a query, and `visibility` the scores of a chunk that can be skipped.
//! - `tile` has the small matrix products in f32, `tiles` those in bfloat16, `transpose` the layout they need, `scores` the soft cap, bias and
//!   padding, `softmax` the online softmax and `dropout` the dropout mask.
//! - `scratch` has the working memory, and `prefetch` the prefetching of vectors.

mod backward;
mod decode;
mod dropout;
mod forward;
mod heads;
mod mask;
mod prefetch;
mod rows;
mod scores;
mod scratch;
mod softmax;
mod tile;
mod tiles;
mod transpose;
mod vectors;
mod visibility;

pub use dropout::Dropout;
pub use heads::{HeadStrides, Heads, HeadsMut};
pub use vectors::{PackedHeads, TokenVectors, pack_heads, unpack_heads};

use crate::cpu::bf16::in_task::Registers;
use crate::cpu::parallel::Shared;
use crate::{AttentionOptions, Precision, Reach};

/// The sizes of an attention operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionShape {
    /// The number of sequences.
    pub batch: usize,
    /// The number of query heads.
    pub heads: usize,
    /// The number of key-value heads, each shared by `heads / kv_heads` query heads.
    pub kv_heads: usize,
    /// The number of queries per sequence. Unless the reach is full, they are at the last positions of the keys.
    pub q_len: usize,
    /// The number of keys per sequence.
    pub k_len: usize,
    /// The number of elements of a vector.
    pub head_dim: usize,
}

impl AttentionShape {
    /// The shape of the queries, `[batch, heads, q_len, head_dim]`.
    pub fn q_dims(&self) -> [usize; 4] {
        [self.batch, self.heads, self.q_len, self.head_dim]
    }

    /// The shape of the keys and values, `[batch, kv_heads, k_len, head_dim]`.
    pub fn k_dims(&self) -> [usize; 4] {
        [self.batch, self.kv_heads, self.k_len, self.head_dim]
    }

    fn is_empty(&self) -> bool {
        self.batch * self.heads * self.q_len * self.head_dim == 0
    }
}

/// Optional restrictions and biases of the scores, in addition to the reach.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mask<'a> {
    /// The first key of each query's document, `[batch, q_len]`. Earlier keys are hidden.
    pub documents: Option<&'a [i32]>,
    /// The padding mask, `[batch, k_len]`: true for visible keys.
    pub padding: Option<&'a [bool]>,
    /// The bias, added to the scores after scale and soft cap, `[heads, q_len, k_len]`.
    pub bias: Option<&'a [f32]>,
    /// The sink of each head, a score without a key, `[heads]`.
    pub sinks: Option<&'a [f32]>,
}

/// The inputs shared by all tasks of an attention operation.
struct Call<'a> {
    shape: &'a AttentionShape,
    options: &'a AttentionOptions,
    mask: Mask<'a>,
    dropout: Option<Dropout>,
    /// True if blocks of queries are multiplied in tile registers, rounded to bfloat16.
    rounds: bool,
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
            mask.sinks.is_none_or(|of| of.len() == heads),
            "not one sink for each head"
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
            rounds: options.precision == Precision::Bf16 && tiles::suit(shape),
        }
    }

    /// Configures the tile registers of this thread if the products are rounded and the CPU has them.
    #[inline(always)]
    fn registers(&self) -> Option<Registers> {
        self.rounds.then(Registers::configured).flatten()
    }

    /// The sink of a head.
    fn sink(&self, head: usize) -> Option<f32> {
        self.mask.sinks.map(|sinks| sinks[head])
    }
}

/// `out = (softmax(scores) ∘ dropout) v`, `[batch, heads, q_len, head_dim]`, with `q` of that shape, and `k` and
/// `v` `[batch, kv_heads, k_len, head_dim]`. The scores are `scale · q kᵀ`, with the soft cap of the options and
/// the bias of the mask. [`AttentionOptions::reach`] and the mask define the visible keys. `log_sum`,
/// `[batch, heads, q_len]`, receives `ln Σ exp(score)` over the visible keys and the sink, which [`attention_backward`] needs.
///
/// For a query without visible keys, the output is 0 and `log_sum` is the sink, or -∞ without one.
///
/// With [`Precision::Bf16`] and AMX, the products of at least 32 queries with more than 64 keys are computed with queries
/// times `scale`, keys, values, weights, and the gradients of output and scores rounded to bfloat16, to nearest. Everything
/// else is f32.
///
/// `dropout` replaces the dropout of the options, which is ignored. It applies after the normalization of the
/// softmax.
///
/// Keys and values are f32 ([`Heads`]) or packed ([`PackedHeads`]). The output over packed ones is bit-identical to
/// that over their unpacked values.
///
/// # Panics
/// Panics if a view does not have the sizes of the shape, `heads` is not a multiple of `kv_heads`, `q_len`
/// exceeds `k_len` although the reach is not full, or a part of the mask or `log_sum` has a different size.
#[allow(clippy::too_many_arguments)]
pub fn attention<K: TokenVectors>(
    shape: &AttentionShape,
    options: &AttentionOptions,
    mask: Mask<'_>,
    dropout: Option<Dropout>,
    q: Heads<'_>,
    k: K,
    v: K,
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
            for (at, log_sum) in log_sum.iter_mut().enumerate() {
                let head = at / shape.q_len % shape.heads;
                *log_sum = call.sink(head).unwrap_or(f32::NEG_INFINITY);
            }
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

/// The gradients of [`attention`] with respect to `q`, `k`, `v` and, if `dbias` is given, the mask's bias. They
/// are computed from its inputs, its outputs `out` and `log_sum`, and the gradient `grad` of `out`. Options, mask
/// and dropout must be those of the forward pass. A sink has no value, so it only acts through `log_sum`; its own gradient
/// is [`crate::reference::sink_gradient`].
///
/// With the weights `P = exp(S - log_sum)` and the dropout factors `M`: `dV = (P ∘ M)ᵀ dO`, `dP = dO Vᵀ ∘ M`,
/// `dS = P ∘ (dP - rowsum(dO ∘ O))`, and `dBias = dS` summed over the batch. With the capped scores `C`,
/// `dX = dS ∘ (1 - (C / cap)²) · scale`, or `dS · scale` without a cap. Finally `dQ = dX K`, `dK = dXᵀ Q`.
///
/// # Panics
/// See [`attention`]. Also panics if `dbias` is not `[heads, q_len, k_len]`.
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
