//! The linear layers of a model by the names of published checkpoints.

use std::ops::Range;

use emberlm_kernels::Backend;

use crate::transformer::model::Transformer;
use crate::weights::map::Source;

/// A linear layer of a published checkpoint. A fused layer of the model consists of several.
#[derive(Clone, Debug)]
pub(super) struct AdaptableModule {
    /// Path of the model's layer, such as `blocks.0.attention.qkv`.
    pub(super) path: String,
    /// Published name, such as `model.layers.0.self_attn.q_proj`. It is the path if the family has no published form.
    pub(super) name: String,
    /// The outputs of the model's layer.
    pub(super) outputs: Range<usize>,
    /// The layout of the factor B in a file, under the module's name.
    pub(super) b: Source,
    /// True if the module is a target by default: the queries and values, or the fused layer that contains them.
    pub(super) is_default: bool,
    /// True if the published weight is `[in, out]`.
    pub(super) inputs_first: bool,
    /// True if other layers of the model are in the same published module.
    pub(super) shared: bool,
}

impl<B: Backend> Transformer<B> {
    /// Lists the modules in the order of the model's layers and their outputs.
    pub(super) fn adaptable_modules(&self) -> Vec<AdaptableModule> {
        let mut modules = Vec::new();
        for (path, linear) in self.linears() {
            let [_, out] = linear.shape();
            let weight = format!("{path}.weight");
            let source = self.transformers_source(&weight);
            let source = source.unwrap_or_else(|| Source::transposed(weight));
            let columns = source.split_columns(out);
            let count = columns.len();
            for (number, (b, outputs)) in columns.into_iter().enumerate() {
                let stored = b.names().next().unwrap_or_default();
                modules.push(AdaptableModule {
                    name: stored.strip_suffix(".weight").unwrap_or(stored).to_owned(),
                    outputs,
                    is_default: is_default(&path, number, count),
                    inputs_first: !source.is_outputs_first(),
                    shared: b.is_part(),
                    b,
                    path: path.clone(),
                });
            }
        }
        modules
    }
}

/// True if part `number` of the `count` parts of the layer at `path` has queries or values. The fused layer of
/// self-attention has queries, keys and values, or queries and what keys and values are computed from; that of cross-attention
/// keys and values.
fn is_default(path: &str, number: usize, count: usize) -> bool {
    if path.ends_with(".cross.attention.kv") {
        return count == 1 || number == 1;
    }
    let is_keys = (number, count) == (1, 3);
    let is_fused = path.ends_with(".attention.qkv") && !is_keys;
    is_fused || path.ends_with(".cross.attention.q")
}

/// The last components of the modules' names, without repetition.
pub(super) fn kinds(modules: &[AdaptableModule]) -> Vec<String> {
    let mut kinds: Vec<String> = Vec::new();
    for module in modules {
        let kind = module.name.rsplit('.').next().unwrap_or(&module.name);
        if !kinds.iter().any(|known| known == kind) {
            kinds.push(kind.to_owned());
        }
    }
    kinds
}
