//! Attention scores for ranges of queries and keys: scaled, capped, biased and masked.

use std::ops::Range;

use burn::tensor::backend::Backend;
use burn::tensor::{BasicOps, Bool, Device, Int, Tensor, TensorKind};

use crate::{AttentionMask, AttentionOptions, Reach};

/// Added to the scores of padding instead of -∞. It is low enough to give padding a weight of 0 next to any
/// visible key, and finite, so that the softmax of a query without visible keys is finite and can be multiplied
/// by 0.
const PADDING: f32 = -1e30;

/// Ranges of sequences, queries and keys.
#[derive(Clone, Debug)]
pub(super) struct ScoreRange {
    pub sequences: Range<usize>,
    pub queries: Range<usize>,
    pub keys: Range<usize>,
}

/// The scores of a [`ScoreRange`], ready for the softmax.
pub(super) struct Scores<B: Backend> {
    /// `[sequences, heads, queries, keys]`.
    pub values: Tensor<B, 4>,
    /// `tanh(scale · q kᵀ / cap)`, of the same shape; `None` without a soft cap.
    pub bounded: Option<Tensor<B, 4>>,
    /// 0 for queries without a visible key and 1 for others, `[sequences, 1, queries or 1, 1]`; `None` if every
    /// query has one.
    pub any_key: Option<Tensor<B, 4>>,
}

impl<B: Backend> Scores<B> {
    /// Computes the scores from the products `q kᵀ`, `[sequences, heads, queries, keys]`, for `[q_len, k_len]`
    /// queries and keys in total.
    pub fn new(
        products: Tensor<B, 4>,
        range: &ScoreRange,
        lengths: [usize; 2],
        mask: &AttentionMask<B>,
        options: AttentionOptions,
    ) -> Self {
        let scores = products * options.scale;
        let (scores, bounded) = match options.soft_cap {
            Some(cap) => {
                let bounded = (scores * (1.0 / cap)).tanh();
                (bounded.clone() * cap, Some(bounded))
            }
            None => (scores, None),
        };
        let scores = match &mask.bias {
            Some(bias) => {
                let bias = narrowed(&narrowed(bias, 1, &range.queries), 2, &range.keys);
                scores + bias.unsqueeze()
            }
            None => scores,
        };
        let Some(hidden) = hidden_keys(range, lengths, mask, options.reach, &scores.device())
        else {
            return Self {
                values: scores,
                bounded,
                any_key: None,
            };
        };
        // Reach and documents never hide a query's own key; only padding can hide all keys of a query.
        let padded = mask.padding.is_some();
        let any_key = padded.then(|| hidden.clone().bool_not().float().max_dim(3));
        let low = if padded { PADDING } else { f32::NEG_INFINITY };
        Self {
            values: add_mask(scores, hidden, low),
            bounded,
            any_key,
        }
    }
}

/// Sets the weights of queries without a visible key to 0; see [`Scores::any_key`].
pub(super) fn where_any_key<B: Backend>(
    weights: Tensor<B, 4>,
    any_key: Option<Tensor<B, 4>>,
) -> Tensor<B, 4> {
    match any_key {
        Some(any_key) => weights * any_key,
        None => weights,
    }
}

/// The gradient of `scale · q kᵀ` from that of the capped scores, both without the factor `scale`:
/// `grad ∘ (1 - bounded²)` with [`Scores::bounded`].
pub(super) fn uncapped<B: Backend>(
    grad: Tensor<B, 4>,
    bounded: Option<Tensor<B, 4>>,
) -> Tensor<B, 4> {
    match bounded {
        Some(bounded) => grad * (bounded.clone() * bounded).neg().add_scalar(1.0),
        None => grad,
    }
}

/// Adds `low` to the hidden scores in `[sequences, heads, queries, keys]`.
fn add_mask<B: Backend>(
    scores: Tensor<B, 4>,
    hidden: Tensor<B, 4, Bool>,
    low: f32,
) -> Tensor<B, 4> {
    let shape = scores.dims();
    let zeros = Tensor::<B, 4>::zeros(hidden.dims(), &hidden.device());
    let mask = zeros.mask_fill(hidden, low);
    match mask.dims() {
        // Adds the mask as one row to the scores of each head. `mask_fill` needs a mask of the full shape of the
        // scores, and creating that takes longer than the softmax.
        [1, 1, queries, keys] if queries == shape[2] => {
            let rows = scores.reshape([shape[0] * shape[1], queries * keys]);
            (rows + mask.reshape([1, queries * keys])).reshape(shape)
        }
        _ => scores + mask,
    }
}

/// Returns a mask that is true for hidden keys, `[1 or sequences, 1, queries or 1, keys]`, or `None` if all are
/// visible.
fn hidden_keys<B: Backend>(
    range: &ScoreRange,
    lengths: [usize; 2],
    mask: &AttentionMask<B>,
    reach: Reach,
    device: &Device<B>,
) -> Option<Tensor<B, 4, Bool>> {
    let [sequences, queries, keys] =
        [&range.sequences, &range.queries, &range.keys].map(Range::len);
    let documents = mask.documents.as_ref();
    let documents =
        documents.map(|first| narrowed(&narrowed(first, 0, &range.sequences), 1, &range.queries));
    let unreached = unreached_keys::<B>(range, lengths, documents, reach, device);
    let unreached = unreached.map(|hidden| {
        let masks = hidden.dims()[0] / queries; // one of each sequence, or of all
        hidden.reshape([masks, 1, queries, keys])
    });
    let padding = mask.padding.as_ref().map(|seen| {
        let seen = narrowed(&narrowed(seen, 0, &range.sequences), 1, &range.keys);
        seen.bool_not().reshape([sequences, 1, 1, keys])
    });
    match (unreached, padding) {
        (Some(unreached), Some(padding)) => {
            let all = [sequences, 1, queries, keys];
            Some(unreached.expand(all).bool_or(padding.expand(all)))
        }
        (unreached, padding) => unreached.or(padding),
    }
}

/// Returns a mask that is true for keys hidden by the reach or the documents: `[queries, keys]`, or with
/// documents, `[sequences, queries]`, `[sequences · queries, keys]`. Returns `None` if they hide no key.
fn unreached_keys<B: Backend>(
    range: &ScoreRange,
    [q_len, k_len]: [usize; 2],
    documents: Option<Tensor<B, 2, Int>>,
    reach: Reach,
    device: &Device<B>,
) -> Option<Tensor<B, 2, Bool>> {
    let (count, width) = (range.queries.len(), range.keys.len());
    let past = k_len.saturating_sub(q_len);
    let window = match reach {
        Reach::Window {
            tokens,
            global_tokens,
        } if tokens.saturating_add(global_tokens) < range.keys.end => Some([tokens, global_tokens]),
        Reach::Local { distance } if distance.saturating_add(1) < range.keys.end => {
            Some([distance + 1, 0])
        }
        Reach::Window { .. } | Reach::Local { .. } | Reach::Causal | Reach::Full => None,
    };
    // The number of keys after its own that a query sees, unless it sees all keys of the range.
    let ahead = match reach {
        Reach::Full => None,
        Reach::Causal | Reach::Window { .. } => Some(0),
        Reach::Local { distance } => Some(distance),
    };
    let first_position = past + range.queries.start;
    let ahead = ahead.filter(|&ahead| first_position.saturating_add(ahead) + 1 < range.keys.end);
    if ahead.is_none() && window.is_none() && documents.is_none() {
        return None;
    }
    let positions = |of: Range<usize>| Tensor::arange(of.start as i64..of.end as i64, device);
    let queries: Tensor<B, 2, Int> =
        positions(past + range.queries.start..past + range.queries.end).reshape([count, 1]);
    let keys: Tensor<B, 2, Int> = positions(range.keys.clone()).reshape([1, width]);
    let rows = documents.as_ref().map_or(1, |of| of.dims()[0]) * count;
    let all = [rows, width];
    let keys = keys.expand(all);
    let queries = queries.repeat_dim(0, rows / count).expand(all);
    let first = documents.map(|of| of.reshape([rows, 1]).expand(all));

    let later = ahead.map(|ahead| keys.clone().greater(queries.clone() + ahead as i64));
    let before = first
        .as_ref()
        .map(|first| keys.clone().lower(first.clone()));
    let hidden = or_masks(later, before);
    let distant = window.map(|[tokens, global_tokens]| {
        let global_tokens = global_tokens as i64;
        let global = match first {
            Some(first) => keys.clone().lower(first + global_tokens),
            None => keys.clone().lower_elem(global_tokens),
        };
        let left = keys.lower_equal(queries - tokens as i64);
        left.bool_and(global.bool_not())
    });
    or_masks(hidden, distant)
}

fn or_masks<B: Backend>(
    a: Option<Tensor<B, 2, Bool>>,
    b: Option<Tensor<B, 2, Bool>>,
) -> Option<Tensor<B, 2, Bool>> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.bool_or(b)),
        (a, b) => a.or(b),
    }
}

/// Narrows a dimension to a range.
pub(super) fn narrowed<B: Backend, const D: usize, K: TensorKind<B> + BasicOps<B>>(
    x: &Tensor<B, D, K>,
    dim: usize,
    range: &Range<usize>,
) -> Tensor<B, D, K> {
    let x = x.clone();
    match range.len() == x.dims()[dim] {
        true => x,
        false => x.narrow(dim, range.start, range.len()),
    }
}
