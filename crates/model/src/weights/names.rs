//! A family's tensor names as a table: a row for each of the decoder's modules or parameters, a column for each file format.
//!
//! A row's left side is a path, or the beginning of one: `blocks.*.attention.out` stands for that layer's `weight` and `bias`.
//! What follows it, `.weight`, `.bias` or `.gain` (which checkpoints call `.weight`), is appended to the name on the right. A `*`
//! is the block's number.

use super::map::{EqualPart, Source, block_path};
use crate::checked::DecoderConfig;

/// A row of a family's table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TensorName {
    path: &'static str,
    /// The models that the row is for; the first row for a path and a model counts.
    applies: fn(&DecoderConfig) -> bool,
    /// The column of published safetensors checkpoints; a further format has a further column.
    safetensors: Tensors,
}

impl TensorName {
    /// The row for only some models.
    pub(crate) const fn only_if(self, applies: fn(&DecoderConfig) -> bool) -> Self {
        Self { applies, ..self }
    }
}

fn always(_: &DecoderConfig) -> bool {
    true
}

/// The tensors of a row, and their layout.
#[derive(Clone, Copy, Debug)]
enum Tensors {
    /// [`Source::as_is`].
    AsIs(&'static str),
    /// [`Source::transposed`].
    Transposed(&'static str),
    /// [`Source::query_key_value`].
    QueryKeyValue([&'static str; 3]),
    /// [`Source::fused_per_group`].
    FusedPerGroup(&'static str),
    /// [`Source::part_of`].
    PartOf(&'static str, EqualPart),
}

/// A tensor in the decoder's own layout: a table, a norm's vectors, or a linear layer stored `[in, out]`.
pub(crate) const fn as_is(path: &'static str, name: &'static str) -> TensorName {
    TensorName {
        path,
        applies: always,
        safetensors: Tensors::AsIs(name),
    }
}

/// A linear layer stored `[out, in]`, as PyTorch's `Linear` is.
pub(crate) const fn linear(path: &'static str, name: &'static str) -> TensorName {
    TensorName {
        path,
        applies: always,
        safetensors: Tensors::Transposed(name),
    }
}

/// The fused layer of queries, keys and values, stored as three layers `[out, in]`.
pub(crate) const fn query_key_value(path: &'static str, names: [&'static str; 3]) -> TensorName {
    TensorName {
        path,
        applies: always,
        safetensors: Tensors::QueryKeyValue(names),
    }
}

/// The fused layer of queries, keys and values, stored `[out, in]` key-value head by key-value head, each after its
/// queries.
pub(crate) const fn fused_per_group(path: &'static str, name: &'static str) -> TensorName {
    TensorName {
        path,
        applies: always,
        safetensors: Tensors::FusedPerGroup(name),
    }
}

/// A linear layer `index` of `count` with as many outputs each, stored `[out, in]` in one tensor.
pub(crate) const fn part_of(
    path: &'static str,
    name: &'static str,
    [index, count]: [usize; 2],
) -> TensorName {
    TensorName {
        path,
        applies: always,
        safetensors: Tensors::PartOf(name, EqualPart { index, count }),
    }
}

/// The source of the parameter of a path by a family's table; none where the table has no row for it.
pub(crate) fn source(table: &[TensorName], config: &DecoderConfig, path: &str) -> Option<Source> {
    let (layer, path) = match block_path(path) {
        Some((layer, rest)) => (layer.to_string(), format!("blocks.*.{rest}")),
        None => (String::new(), path.to_owned()),
    };
    let mut rows = table.iter().filter(|row| (row.applies)(config));
    rows.find_map(|row| {
        let end = match path.strip_prefix(row.path)? {
            ".gain" => ".weight",
            end @ ("" | ".weight" | ".bias") => end,
            _ => return None,
        };
        let named = |name: &str| name.replace('*', &layer) + end;
        Some(match row.safetensors {
            Tensors::AsIs(name) => Source::as_is(named(name)),
            Tensors::Transposed(name) => Source::transposed(named(name)),
            Tensors::QueryKeyValue(names) => Source::query_key_value(config, names.map(named)),
            Tensors::FusedPerGroup(name) => Source::fused_per_group(config, named(name)),
            Tensors::PartOf(name, part) => Source::part_of(named(name), part),
        })
    })
}
