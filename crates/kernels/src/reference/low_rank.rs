//! Low-rank updates of rows with different factors.

use burn::tensor::Tensor;
use burn::tensor::ops::FloatTensor;

use super::product::product;
use super::{primitive, rows, typed};
use crate::{BaseOps, LowRankUpdate, Precision};

/// See [`crate::Backend::add_low_rank`].
pub fn add_low_rank<B: BaseOps>(
    y: FloatTensor<B>,
    x: FloatTensor<B>,
    updates: Vec<LowRankUpdate<B>>,
    precision: Precision,
) -> FloatTensor<B> {
    let (y, shape) = rows::<B>(y); // [rows, out]
    let (x, _) = rows::<B>(x); // [rows, in]
    let all = y.dims()[0];
    let (mut parts, mut next) = (Vec::new(), 0);
    for LowRankUpdate { rows, a, b } in updates {
        if rows.is_empty() {
            continue;
        }
        if rows.start > next {
            parts.push(y.clone().narrow(0, next, rows.start - next));
        }
        let of = |tensor: &Tensor<B, 2>| tensor.clone().narrow(0, rows.start, rows.len());
        let down = product(of(&x), typed(a), precision); // [rows, rank]
        parts.push(of(&y) + product(down, typed(b), precision));
        next = rows.end;
    }
    if next < all {
        parts.push(y.narrow(0, next, all - next));
    }
    B::float_reshape(primitive(Tensor::cat(parts, 0)), shape)
}
