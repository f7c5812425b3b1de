//! A family's tensor names as a table: a row for each of the decoder's modules or parameters, a column for each file format.
//!
//! A row's left side is a path, or the beginning of one: `blocks.*.attention.out` stands for that layer's `weight` and `bias`.
//! What follows it, `.weight`, `.bias` or `.gain` (which checkpoints call `.weight`), is appended to the name on the right. A `*`
//! is the number of the block, a second one that of the expert.

use super::map::Source;
use crate::checked::DecoderConfig;

/// A row of a family's table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TensorName {
    path: &'static str,
    /// The column of published safetensors checkpoints; a further format has a further column.
    safetensors: Tensors,
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
    /// [`Source::fused_per_head`].
    FusedPerHead(&'static str),
}

/// A tensor in the decoder's own layout: a table, a norm's vectors, or a linear layer stored `[in, out]`.
pub(crate) const fn as_is(path: &'static str, name: &'static str) -> TensorName {
    TensorName {
        path,
        safetensors: Tensors::AsIs(name),
    }
}

/// A linear layer stored `[out, in]`, as PyTorch's `Linear` is.
pub(crate) const fn linear(path: &'static str, name: &'static str) -> TensorName {
    TensorName {
        path,
        safetensors: Tensors::Transposed(name),
    }
}

/// The fused layer of queries, keys and values, stored as three layers `[out, in]`.
pub(crate) const fn query_key_value(path: &'static str, names: [&'static str; 3]) -> TensorName {
    TensorName {
        path,
        safetensors: Tensors::QueryKeyValue(names),
    }
}

/// The fused layer of queries, keys and values, stored `[out, in]` head by head.
pub(crate) const fn fused_per_head(path: &'static str, name: &'static str) -> TensorName {
    TensorName {
        path,
        safetensors: Tensors::FusedPerHead(name),
    }
}

/// A family's rows after those of another.
///
/// # Panics
/// Panics when it is compiled, if `N` is not the number of all rows.
pub(crate) const fn joined<const N: usize>(
    first: &[TensorName],
    then: &[TensorName],
) -> [TensorName; N] {
    assert!(first.len() + then.len() == N);
    let mut all = [first[0]; N];
    let mut at = 0;
    while at < N {
        all[at] = if at < first.len() {
            first[at]
        } else {
            then[at - first.len()]
        };
        at += 1;
    }
    all
}

/// The source of the parameter of a path by a family's table; none where the table has no row for it.
pub(crate) fn source(table: &[TensorName], config: &DecoderConfig, path: &str) -> Option<Source> {
    let (numbers, path) = numbered(path);
    table.iter().find_map(|row| {
        let end = match path.strip_prefix(row.path)? {
            ".gain" => ".weight",
            end @ ("" | ".weight" | ".bias") => end,
            _ => return None,
        };
        let named = |name: &str| with_numbers(name, &numbers) + end;
        Some(match row.safetensors {
            Tensors::AsIs(name) => Source::as_is(named(name)),
            Tensors::Transposed(name) => Source::transposed(named(name)),
            Tensors::QueryKeyValue(names) => Source::query_key_value(config, names.map(named)),
            Tensors::FusedPerHead(name) => Source::fused_per_head(config, named(name)),
        })
    })
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
