//! Which keys queries do not see, of any part of the queries and keys.

use std::ops::Range;

use burn::tensor::backend::Backend;
use burn::tensor::{Bool, Device, Int, Tensor};

use crate::AttentionOptions;

/// True where the query at position `i` of `queries` may not see key `j` of `keys`, `[rows, keys]` with as many rows as there
/// are queries, or with documents, `[batch, queries]`, `[batch · queries, keys]`; none where every query sees every key.
///
/// A query's position is the place of its own key.
pub(super) fn hidden_keys<B: Backend>(
    queries: Range<usize>,
    keys: Range<usize>,
    documents: Option<Tensor<B, 2, Int>>,
    options: AttentionOptions,
    device: &Device<B>,
) -> Option<Tensor<B, 2, Bool>> {
    let (count, width) = (queries.len(), keys.len());
    let reach = |window: usize| window.saturating_add(options.global_tokens);
    let window = options.window.filter(|&window| reach(window) < keys.end);
    let sees_all = count == 1 && keys.end <= queries.end;
    if sees_all && window.is_none() && documents.is_none() {
        return None;
    }
    let places = |of: Range<usize>| Tensor::arange(of.start as i64..of.end as i64, device);
    let queries: Tensor<B, 2, Int> = places(queries).reshape([count, 1]);
    let keys: Tensor<B, 2, Int> = places(keys).reshape([1, width]);
    let rows = documents.as_ref().map_or(1, |of| of.dims()[0]) * count;
    let all = [rows, width];
    let keys = keys.expand(all);
    let queries = queries.repeat_dim(0, rows / count).expand(all);
    let first = documents.map(|of| of.reshape([rows, 1]).expand(all));

    let mut hidden = keys.clone().greater(queries.clone());
    if let Some(first) = &first {
        hidden = hidden.bool_or(keys.clone().lower(first.clone()));
    }
    if let Some(window) = window {
        let tokens = options.global_tokens as i64;
        let global = match first {
            Some(first) => keys.clone().lower(first + tokens),
            None => keys.clone().lower_elem(tokens),
        };
        let left = keys.lower_equal(queries - window as i64);
        hidden = hidden.bool_or(left.bool_and(global.bool_not()));
    }
    Some(hidden)
}

/// [`hidden_keys`] as what is added to the scores, 0 or minus infinity.
pub(super) fn added_mask<B: Backend>(hidden: Tensor<B, 2, Bool>) -> Tensor<B, 2> {
    let zeros = Tensor::<B, 2>::zeros(hidden.dims(), &hidden.device());
    zeros.mask_fill(hidden, f32::NEG_INFINITY)
}
