//! The initial weights of T5.

use burn::module::ParamId;
use burn::tensor::Tensor;
use emberlm_kernels::Backend;

use crate::nn::block::Block;
use crate::params::{ParamMapper, changed, map_params};
use crate::transformer::model::Transformer;

/// Makes the weights of [`Init::LeCun`](crate::config::Init::LeCun) those of the T5 paper's code: queries are divided by
/// `√head_dim`, because the scores have no factor, and all matrices multiplied by `factor`.
pub(crate) fn scaled<B: Backend>(
    mut model: Transformer<B>,
    head_dim: usize,
    factor: f64,
) -> Transformer<B> {
    let of_queries = 1.0 / (head_dim as f64).sqrt();
    for stack in model.stacks_mut() {
        for block in &mut stack.blocks {
            scale_queries(block, of_queries);
        }
    }
    match factor {
        1.0 => model,
        factor => map_params(model, &mut Scale { factor }),
    }
}

/// Multiplies the weights that compute a block's queries.
fn scale_queries<B: Backend>(block: &mut Block<B>, factor: f64) {
    let widths = block.attention.qkv_widths();
    let queries = widths[0];
    let others: usize = widths[1..].iter().sum();
    let weight = &mut block.attention.qkv.weight;
    *weight = weight.clone().mapped(|weight| {
        let rest = weight.clone().narrow(1, queries, others);
        Tensor::cat(vec![weight.narrow(1, 0, queries) * factor, rest], 1)
    });
    if let Some(cross) = &mut block.cross {
        let weight = &mut cross.attention.q.weight;
        *weight = weight.clone().mapped(|weight| weight * factor);
    }
}

/// Multiplies every matrix.
struct Scale {
    factor: f64,
}

impl<B: Backend> ParamMapper<B> for Scale {
    fn map<const D: usize>(
        &mut self,
        _path: &str,
        _id: ParamId,
        value: Tensor<B, D>,
    ) -> Tensor<B, D> {
        match D {
            2 => changed(value, |value| value * self.factor),
            _ => value,
        }
    }
}
