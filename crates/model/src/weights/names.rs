//! Tables of tensor names: one row per module or parameter of the decoder.
//!
//! A row maps the path of a parameter, or of a module with several (`blocks.*.attention.out` has a `weight` and a
//! `bias`), to a published name. The remaining suffix of a parameter's path (`.weight`, `.bias`, or `.gain`, which
//! checkpoints call `.weight`) is appended to the published name. `*` stands for the block's index, a second one for the
//! expert's.

use super::map::{EqualPart, Source};
use crate::nn::attention::AttentionConfig;
use crate::transformer::checked::TransformerConfig;

/// A row of a table of tensor names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TensorName {
    path: &'static str,
    /// Returns true for the models that the row applies to.
    applies: fn(&TransformerConfig) -> bool,
    /// Names and layout in the files.
    tensors: Tensors,
}

impl TensorName {
    /// Restricts the row to some models.
    pub(crate) const fn only_if(self, applies: fn(&TransformerConfig) -> bool) -> Self {
        Self { applies, ..self }
    }

    /// Returns true if the row applies to a model.
    pub(crate) fn applies_to(&self, config: &TransformerConfig) -> bool {
        (self.applies)(config)
    }
}

fn always(_: &TransformerConfig) -> bool {
    true
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
    /// [`Source::paired_query_key_value`].
    PairedQueryKeyValue([&'static str; 3]),
    /// [`Source::part_of`], where the parts are the layer's experts.
    ExpertOf(&'static str),
    /// [`Source::fused_per_group`].
    FusedPerGroup(&'static str),
    /// [`Source::part_of`].
    PartOf(&'static str, EqualPart),
}

/// A tensor in the decoder's layout: a table, a norm, or a linear layer stored `[in, out]`.
pub(crate) const fn as_is(path: &'static str, name: &'static str) -> TensorName {
    TensorName {
        path,
        applies: always,
        tensors: Tensors::AsIs(name),
    }
}

/// A linear layer stored `[out, in]`, like PyTorch's `Linear`.
pub(crate) const fn linear(path: &'static str, name: &'static str) -> TensorName {
    TensorName {
        path,
        applies: always,
        tensors: Tensors::Transposed(name),
    }
}

/// The fused projection to queries, keys and values, stored as three layers `[out, in]`.
pub(crate) const fn query_key_value(path: &'static str, names: [&'static str; 3]) -> TensorName {
    TensorName {
        path,
        applies: always,
        tensors: Tensors::QueryKeyValue(names),
    }
}

/// The same with the rows of queries and keys ordered by rotated pairs.
pub(crate) const fn paired_query_key_value(
    path: &'static str,
    names: [&'static str; 3],
) -> TensorName {
    TensorName {
        path,
        applies: always,
        tensors: Tensors::PairedQueryKeyValue(names),
    }
}

/// A linear layer of each expert, stored `[experts · out, in]` in one tensor.
pub(crate) const fn expert_of(path: &'static str, name: &'static str) -> TensorName {
    TensorName {
        path,
        applies: always,
        tensors: Tensors::ExpertOf(name),
    }
}

/// The fused projection to queries, keys and values, stored `[out, in]` and ordered by key-value head, each after its
/// queries.
pub(crate) const fn fused_per_group(path: &'static str, name: &'static str) -> TensorName {
    TensorName {
        path,
        applies: always,
        tensors: Tensors::FusedPerGroup(name),
    }
}

/// Linear layer `index` of `count` with equally many outputs, stored `[out, in]` in one tensor.
pub(crate) const fn part_of(
    path: &'static str,
    name: &'static str,
    [index, count]: [usize; 2],
) -> TensorName {
    TensorName {
        path,
        applies: always,
        tensors: Tensors::PartOf(name, EqualPart { index, count }),
    }
}

/// Concatenates two tables.
///
/// # Panics
/// Panics at compile time unless `N` is the number of all rows.
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

/// Finds the source of the parameter at `path` by the first row for it; returns `None` if there is none.
pub(crate) fn source<'a>(
    rows: impl IntoIterator<Item = &'a TensorName>,
    attention: &AttentionConfig,
    path: &str,
) -> Option<Source> {
    source_of_expert(rows, attention, 1, path)
}

/// [`source`] with the number of experts of a layer.
pub(crate) fn source_of_expert<'a>(
    rows: impl IntoIterator<Item = &'a TensorName>,
    attention: &AttentionConfig,
    experts: usize,
    path: &str,
) -> Option<Source> {
    let (numbers, path) = numbered(path);
    rows.into_iter().find_map(|row| {
        let suffix = match path.strip_prefix(row.path)? {
            ".gain" => ".weight",
            suffix @ ("" | ".weight" | ".bias") => suffix,
            _ => return None,
        };
        let named = |name: &str| with_numbers(name, &numbers) + suffix;
        Some(match row.tensors {
            Tensors::AsIs(name) => Source::as_is(named(name)),
            Tensors::Transposed(name) => Source::transposed(named(name)),
            Tensors::QueryKeyValue(names) => Source::query_key_value(attention, names.map(named)),
            Tensors::PairedQueryKeyValue(names) => {
                Source::paired_query_key_value(attention, names.map(named))
            }
            Tensors::ExpertOf(name) => {
                let index = numbers.last()?.parse().ok()?;
                let count = experts;
                Source::part_of(named(name), EqualPart { index, count })
            }
            Tensors::FusedPerGroup(name) => Source::fused_per_group(attention, named(name)),
            Tensors::PartOf(name, part) => Source::part_of(named(name), part),
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
