//! The integers of an attention in one tensor, since kernels may have few tensors: the first keys of documents
//! `[batch, q_len]`, the padding mask `[batch, k_len]`, and the draws of the dropout, of queries and then of keys.

use burn::tensor::ops::IntTensor;
use burn::tensor::{Bool, Int, Tensor};

use super::task::Task;
use crate::BaseOps;
use crate::reference::DropoutDraws;

/// Returns the integers that there are; `None` if there are none.
pub(super) fn words<B: BaseOps<BoolTensorPrimitive = IntTensor<B>>>(
    documents: Option<Tensor<B, 2, Int>>,
    padding: Option<Tensor<B, 2, Bool>>,
    draws: Option<DropoutDraws<B>>,
) -> Option<IntTensor<B>> {
    match (documents, padding, draws) {
        // A single tensor is not copied.
        (Some(documents), None, None) => Some(documents.into_primitive()),
        (None, Some(padding), None) => Some(padding.into_primitive()),
        (documents, padding, draws) => {
            let of_draws = draws.into_iter().flat_map(|of| [of.queries, of.keys]);
            let of_draws = of_draws.map(|x| Tensor::<B, 4, Int>::from_primitive(x).flatten(0, 3));
            let documents = documents.into_iter().map(|x| x.flatten(0, 1));
            let padding = padding.into_iter().map(|x| x.int().flatten(0, 1));
            let all: Vec<Tensor<B, 1, Int>> = documents.chain(padding).chain(of_draws).collect();
            (!all.is_empty()).then(|| Tensor::cat(all, 0).into_primitive())
        }
    }
}

/// Returns the draws in the words of a task with dropout.
pub(super) fn draws<B: BaseOps>(task: &Task, words: IntTensor<B>) -> DropoutDraws<B> {
    let [documents, padding, of_queries] = task.word_counts();
    let words = Tensor::<B, 1, Int>::from_primitive(words);
    let first = documents + padding;
    let queries = words.clone().narrow(0, first, of_queries);
    let keys = words.narrow(0, first + of_queries, 2 * task.k_len);
    DropoutDraws {
        queries: queries
            .reshape([task.batch, task.heads, task.q_len, 3])
            .into_primitive(),
        keys: keys.reshape([1, 1, 2, task.k_len]).into_primitive(),
    }
}
