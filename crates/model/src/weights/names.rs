//! Tables of tensor names: one row per module or parameter.
//!
//! A row maps the path of a parameter, or of a module with several (`attention.out` has a `weight` and a `bias`), to a
//! published name. The remaining suffix of a parameter's path (`.weight`, `.bias`, or `.gain`, which checkpoints call
//! `.weight`) is appended to the published name. `*` stands for an index. The tables of decoders have the paths within a
//! block ([`Names`]); others have whole paths, whose first index is that of the block.

use std::slice;

use super::map::Source;
use super::pieces::{EqualPart, Pieces};
use crate::nn::attention::AttentionConfig;
use crate::transformer::checked::TransformerConfig;

/// A row of a table of tensor names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TensorName {
    path: &'static str,
    /// Returns true for the models that the row applies to.
    applies: fn(&TransformerConfig) -> bool,
    /// True for the blocks with a delta net, false for other blocks; `None` for both.
    in_delta_net: Option<bool>,
    /// Names and layout in the files.
    tensors: Tensors,
    /// The order of the outputs of each tensor if it is another one, or if other parameters have some of them.
    outputs: Option<Order>,
    /// The order of the inputs if it is another one.
    inputs: Option<Order>,
}

/// The order of outputs or inputs by the sizes of the attention.
type Order = fn(&AttentionConfig) -> Pieces;

impl TensorName {
    const fn of(path: &'static str, tensors: Tensors) -> Self {
        Self {
            path,
            applies: |_| true,
            in_delta_net: None,
            tensors,
            outputs: None,
            inputs: None,
        }
    }

    /// Reorders the outputs of each tensor.
    pub(crate) const fn with_outputs(self, order: Order) -> Self {
        Self {
            outputs: Some(order),
            ..self
        }
    }

    /// Reorders the inputs.
    pub(crate) const fn with_inputs(self, order: Order) -> Self {
        Self {
            inputs: Some(order),
            ..self
        }
    }

    /// Restricts the row to some models.
    pub(crate) const fn only_if(self, applies: fn(&TransformerConfig) -> bool) -> Self {
        Self { applies, ..self }
    }

    /// Restricts the row to the blocks with a delta net, or to the others.
    pub(crate) const fn in_delta_nets(self, in_them: bool) -> Self {
        Self {
            in_delta_net: Some(in_them),
            ..self
        }
    }

    /// True if the row is one of a block with this attention.
    fn is_of(&self, attention: &AttentionConfig) -> bool {
        let is_delta = attention.delta().is_some();
        self.in_delta_net.is_none_or(|in_them| in_them == is_delta)
    }
}

/// Names and layout of the tensors of a row.
#[derive(Clone, Copy, Debug)]
enum Tensors {
    /// [`Source::as_is`].
    AsIs(&'static str),
    /// [`Source::transposed`].
    Transposed(&'static str),
    /// [`Source::query_key_value`].
    QueryKeyValue([&'static str; 3]),
    /// [`Source::side_by_side`] with the parts of latent attention's projection.
    Latents([&'static str; 2]),
    /// [`Source::paired_query_key_value`].
    PairedQueryKeyValue([&'static str; 3]),
    /// [`Source::part_of`], where the parts are the layer's experts.
    ExpertOf(&'static str),
    /// [`Source::fused_per_group`].
    FusedPerGroup(&'static str),
    /// [`Source::query_key_value_beside_gate`].
    QueryKeyValueBesideGate([&'static str; 3]),
    /// [`Source::columns`] with an output for each head.
    PerHead([&'static str; 2]),
    /// [`Source::channels`].
    Channels(&'static str),
    /// [`Source::part_of`].
    PartOf(&'static str, EqualPart),
    /// [`Source::stacked`], where the experts are the layer's.
    Stacked(&'static str, EqualPart),
}

/// A tensor in the decoder's layout: a table, a norm, or a linear layer stored `[in, out]`.
pub(crate) const fn as_is(path: &'static str, name: &'static str) -> TensorName {
    TensorName::of(path, Tensors::AsIs(name))
}

/// A linear layer stored `[out, in]`, like PyTorch's `Linear`.
pub(crate) const fn linear(path: &'static str, name: &'static str) -> TensorName {
    TensorName::of(path, Tensors::Transposed(name))
}

/// The fused projection to queries, keys and values, stored as three layers `[out, in]`.
pub(crate) const fn query_key_value(path: &'static str, names: [&'static str; 3]) -> TensorName {
    TensorName::of(path, Tensors::QueryKeyValue(names))
}

/// The projection to latents, stored as two layers `[out, in]`: queries or their latents, and what keys and values are computed
/// from.
pub(crate) const fn latents(path: &'static str, names: [&'static str; 2]) -> TensorName {
    TensorName::of(path, Tensors::Latents(names))
}

/// The fused projection to queries, keys and values with the rows of queries and keys ordered by rotated pairs.
pub(crate) const fn paired_query_key_value(
    path: &'static str,
    names: [&'static str; 3],
) -> TensorName {
    TensorName::of(path, Tensors::PairedQueryKeyValue(names))
}

/// A linear layer of each expert, stored `[experts · out, in]` in one tensor.
pub(crate) const fn expert_of(path: &'static str, name: &'static str) -> TensorName {
    TensorName::of(path, Tensors::ExpertOf(name))
}

/// The fused projection to queries, keys and values, stored `[out, in]` and ordered by key-value head, each after its
/// queries.
pub(crate) const fn fused_per_group(path: &'static str, name: &'static str) -> TensorName {
    TensorName::of(path, Tensors::FusedPerGroup(name))
}

/// The fused projection to queries, keys and values, stored as three layers `[out, in]`. Each head of the queries is followed by
/// that of the gate, which [`gate_beside_queries`] reads.
pub(crate) const fn query_key_value_beside_gate(
    path: &'static str,
    names: [&'static str; 3],
) -> TensorName {
    TensorName::of(path, Tensors::QueryKeyValueBesideGate(names))
}

/// The gate of [`query_key_value_beside_gate`], in the tensor of the queries.
pub(crate) const fn gate_beside_queries(path: &'static str, name: &'static str) -> TensorName {
    linear(path, name).with_outputs(|attention| Pieces {
        own: 1..2,
        ..Pieces::in_groups(attention.heads, vec![attention.head_dim; 2])
    })
}

/// A linear layer with two outputs for each head, stored `[out, in]`: the first ones and the second ones of the heads that share a
/// key, for one key after another.
pub(crate) const fn per_head_of_key(path: &'static str, name: &'static str) -> TensorName {
    linear(path, name).with_outputs(|attention| {
        let each = attention.heads / attention.kv_heads;
        Pieces::in_groups(attention.kv_heads, vec![each; 2])
    })
}

/// A linear layer stored as two layers `[heads, in]`.
pub(crate) const fn per_head(path: &'static str, names: [&'static str; 2]) -> TensorName {
    TensorName::of(path, Tensors::PerHead(names))
}

/// Convolutions of separate channels, stored `[channels, 1, taps]`.
pub(crate) const fn channels(path: &'static str, name: &'static str) -> TensorName {
    TensorName::of(path, Tensors::Channels(name))
}

/// Linear layer `index` of `count` with equally many outputs, stored `[out, in]` in one tensor.
pub(crate) const fn part_of(
    path: &'static str,
    name: &'static str,
    [index, count]: [usize; 2],
) -> TensorName {
    TensorName::of(path, Tensors::PartOf(name, EqualPart { index, count }))
}

/// A linear layer of each expert, stored `[experts, in, count · out]` in one tensor, in which it has the outputs `index`,
/// `index + count`, …. The names of the biases end in `_bias`.
pub(crate) const fn stacked(
    path: &'static str,
    name: &'static str,
    [index, count]: [usize; 2],
) -> TensorName {
    TensorName::of(path, Tensors::Stacked(name, EqualPart { index, count }))
}

/// The tensor names of a family's checkpoints, or of GGUF files. Of several rows for a path, the first one counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Names<'a> {
    /// Tensors outside of the blocks.
    pub(crate) model: &'a [TensorName],
    /// The name of a block, with `*` for its index. The names of its tensors begin with it.
    pub(crate) block: &'a str,
    /// Tables of the tensors of a block. Paths and names are relative to the block.
    pub(crate) blocks: &'a [&'a [TensorName]],
}

impl Names<'_> {
    /// Finds the source of the parameter at the path `whole` in a decoder; returns `None` if there is none.
    pub(crate) fn source(&self, config: &TransformerConfig, whole: &str) -> Option<Source> {
        let (prefix, path, tables) = match in_block(whole) {
            Some((index, path)) => (self.block.replace('*', index) + ".", path, self.blocks),
            None => (String::new(), whole, slice::from_ref(&self.model)),
        };
        let rows = tables.iter().copied().flatten();
        let rows = rows.filter(|row| (row.applies)(config));
        let experts = config.experts().map_or(1, |experts| experts.count);
        let stack = config.stack();
        let layer = in_block(whole).and_then(|(index, _)| index.parse().ok());
        let attention = layer.map_or(stack.block.attention, |layer| stack.attention(layer));
        find(rows, &attention, experts, &prefix, path)
    }
}

/// Finds the source of the parameter at `path` by the first row for it; returns `None` if there is none.
pub(crate) fn source<'a>(
    rows: impl IntoIterator<Item = &'a TensorName>,
    attention: &AttentionConfig,
    path: &str,
) -> Option<Source> {
    find(rows, attention, 1, "", path)
}

/// [`source`] with the number of experts of a layer, and a beginning of all names.
fn find<'a>(
    rows: impl IntoIterator<Item = &'a TensorName>,
    attention: &AttentionConfig,
    experts: usize,
    prefix: &str,
    path: &str,
) -> Option<Source> {
    let (numbers, path) = numbered(path);
    rows.into_iter().find_map(|row| {
        let suffix = match path
            .strip_prefix(row.path)
            .filter(|_| row.is_of(attention))?
        {
            ".gain" => ".weight",
            suffix @ ("" | ".weight" | ".bias") => suffix,
            _ => return None,
        };
        let named = |name: &str| format!("{prefix}{}{suffix}", with_numbers(name, &numbers));
        let source = match row.tensors {
            Tensors::AsIs(name) => Source::as_is(named(name)),
            Tensors::Transposed(name) => Source::transposed(named(name)),
            Tensors::QueryKeyValue(names) => Source::query_key_value(attention, names.map(named)),
            Tensors::Latents(names) => {
                let widths = attention.latent?.widths(attention.head_sizes());
                Source::side_by_side(names.map(named).into_iter().zip(widths))
            }
            Tensors::PairedQueryKeyValue(names) => {
                Source::paired_query_key_value(attention, names.map(named))
            }
            Tensors::ExpertOf(name) => {
                let index = numbers.last()?.parse().ok()?;
                let count = experts;
                Source::part_of(named(name), EqualPart { index, count })
            }
            Tensors::FusedPerGroup(name) => Source::fused_per_group(attention, named(name)),
            Tensors::QueryKeyValueBesideGate(names) => {
                Source::query_key_value_beside_gate(attention, names.map(named))
            }
            Tensors::PerHead(names) => Source::columns(names.map(named), attention.heads),
            Tensors::Channels(name) => Source::channels(named(name)),
            Tensors::PartOf(name, part) => Source::part_of(named(name), part),
            Tensors::Stacked(name, every) => {
                let index = numbers.last()?.parse().ok()?;
                let expert = EqualPart {
                    index,
                    count: experts,
                };
                let end = if suffix == ".bias" { "_bias" } else { "" };
                Source::stacked(format!("{prefix}{name}{end}"), expert, every)
            }
        };
        let order = |order: Option<Order>| order.map(|of| of(attention));
        Some(source.ordered(order(row.outputs), order(row.inputs)))
    })
}

/// Splits a path `blocks.N.rest` into the block's index and the rest.
pub(crate) fn block_path(path: &str) -> Option<(usize, &str)> {
    let (index, rest) = in_block(path)?;
    Some((index.parse().ok()?, rest))
}

/// The index of the block that a path is in, and the path within the block.
fn in_block(path: &str) -> Option<(&str, &str)> {
    path.strip_prefix("blocks.")?.split_once('.')
}

/// The numbers in a path, and the path with a `*` in place of each.
fn numbered(path: &str) -> (Vec<&str>, String) {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let parts = || path.split('.');
    let pattern = parts().map(|part| if is_number(part) { "*" } else { part });
    let numbers = parts().filter(|part| is_number(part)).collect();
    (numbers, pattern.collect::<Vec<_>>().join("."))
}

/// A name with the numbers in place of its `*`, in order.
fn with_numbers(name: &str, numbers: &[&str]) -> String {
    let mut numbers = numbers.iter();
    let parts = name.split('*').enumerate().map(|(at, part)| {
        let number = if at == 0 { None } else { numbers.next() };
        number.map_or_else(String::new, |number| (*number).to_owned()) + part
    });
    parts.collect()
}
