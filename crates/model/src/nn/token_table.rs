//! Table with one row per token: the embedding, and an untied head.
//!
//! The table is one tensor `[vocab_size, d_model]` if the device can hold it in one buffer. Otherwise it is split
//! into the fewest parts of consecutive rows that fit, and operations run part by part. Weight files still contain
//! one tensor ([`crate::weights::Parts`]).

use burn::module::{Module, Param};
use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::{Device, Int, Tensor};

use emberlm_kernels::{Backend, HeadLossOptions, PackedFormat, Precision, ops};

use crate::nn::packed_rows::PackedRows;
use crate::params::changed;

/// A table `[vocab_size, d_model]`. Its size and the device determine if it is split.
#[derive(Module, Debug)]
pub enum TokenTable<B: BurnBackend> {
    /// One tensor.
    Whole(Param<Tensor<B, 2>>),
    /// At least two parts of consecutive rows, `[rows, d_model]` each.
    Parts(Vec<Param<Tensor<B, 2>>>),
    /// Packed rows, which are not parameters.
    Packed(PackedRows<B>),
}

/// Splits `vocab_size` rows into the fewest parts that fit into buffers of `largest` bytes. The sizes of the parts
/// differ by at most one row.
///
/// A row counts as `d_model + 1` elements, because [`TokenTable::head_loss`] appends the bias as a column.
pub(crate) fn rows_of_parts(vocab_size: usize, d_model: usize, largest: Option<u64>) -> Vec<usize> {
    let row = 4 * (d_model as u64 + 1);
    let max_rows = largest.map_or(u64::MAX, |bytes| (bytes / row).max(1));
    // At most `vocab_size`, because `max_rows` is at least 1.
    let parts = (vocab_size as u64).div_ceil(max_rows).max(1) as usize;
    let (rows, longer) = (vocab_size / parts, vocab_size % parts);
    (0..parts)
        .map(|part| rows + usize::from(part < longer))
        .collect()
}

impl<B: BurnBackend> TokenTable<B> {
    /// Builds a table from at least one part, in row order.
    pub(crate) fn of(mut parts: Vec<Param<Tensor<B, 2>>>) -> Self {
        match (parts.len(), parts.pop()) {
            (1, Some(whole)) => Self::Whole(whole),
            (_, last) => {
                parts.extend(last);
                Self::Parts(parts)
            }
        }
    }

    /// The parameters in row order: one if the table is not split, none if it is packed.
    pub fn parts(&self) -> &[Param<Tensor<B, 2>>] {
        match self {
            Self::Whole(whole) => std::slice::from_ref(whole),
            Self::Parts(parts) => parts,
            Self::Packed(_) => &[],
        }
    }

    /// Applies `change`, which must keep the shape, to each parameter.
    pub fn mapped(self, mut change: impl FnMut(Tensor<B, 2>) -> Tensor<B, 2>) -> Self {
        match self {
            Self::Whole(whole) => Self::Whole(whole.map(|whole| changed(whole, change))),
            Self::Parts(parts) => {
                let parts = parts.into_iter();
                let parts = parts.map(|part| part.map(|part| changed(part, &mut change)));
                Self::Parts(parts.collect())
            }
            Self::Packed(rows) => Self::Packed(rows),
        }
    }

    /// The device that holds the table.
    pub(crate) fn device(&self) -> Device<B> {
        match self {
            Self::Whole(whole) => whole.lazy_device(),
            Self::Parts(parts) => parts
                .first()
                .map_or_else(Default::default, Param::lazy_device),
            Self::Packed(rows) => rows.device(),
        }
    }

    /// The format of a packed table; `None` if the table is in f32.
    pub(crate) fn packed_format(&self) -> Option<PackedFormat> {
        match self {
            Self::Whole(_) | Self::Parts(_) => None,
            Self::Packed(rows) => rows.format(),
        }
    }
}

impl<B: Backend> TokenTable<B> {
    /// Concatenates all rows to one tensor `[vocab_size, d_model]`, which may exceed the device's largest buffer.
    pub fn joined(&self) -> Tensor<B, 2> {
        let mut parts = self.values();
        match (parts.len(), parts.pop()) {
            (1, Some(whole)) => whole,
            (_, last) => {
                parts.extend(last);
                Tensor::cat(parts, 0)
            }
        }
    }

    /// The rows of each part in f32.
    fn values(&self) -> Vec<Tensor<B, 2>> {
        match self {
            Self::Whole(_) | Self::Parts(_) => self.parts().iter().map(Param::val).collect(),
            Self::Packed(rows) => rows.values(),
        }
    }

    /// Packs each part. A packed table stays unchanged.
    pub(crate) fn packed(&self, format: PackedFormat) -> Self {
        match self {
            Self::Whole(_) | Self::Parts(_) => {
                let pack = |part| ops::pack(part, format);
                let parts = self.values().into_iter().map(pack).collect();
                Self::Packed(PackedRows::of(parts))
            }
            Self::Packed(_) => self.clone(),
        }
    }

    /// Looks up the rows of `ids`: `[batch, seq]` to `[batch, seq, d_model]`.
    pub(crate) fn look_up(&self, ids: Tensor<B, 2, Int>) -> Tensor<B, 3> {
        match self {
            Self::Whole(whole) => ops::embedding(whole.val(), ids),
            Self::Parts(_) => ops::embedding_parts(self.values(), ids),
            Self::Packed(rows) => rows.look_up(ids),
        }
    }

    /// [`TokenTable::look_up`] whose gradients are complete when that of `x` is.
    pub(crate) fn look_up_after(&self, x: &Tensor<B, 3>, ids: Tensor<B, 2, Int>) -> Tensor<B, 3> {
        match self {
            Self::Whole(whole) => ops::embedding(ops::depending_on(whole.val(), x), ids),
            Self::Parts(_) => {
                let values = self.values().into_iter();
                let values = values.map(|part| ops::depending_on(part, x));
                ops::embedding_parts(values.collect(), ids)
            }
            Self::Packed(rows) => rows.look_up(ids),
        }
    }

    /// Computes `hidden · Wᵀ + bias`: `[tokens, d_model]` to `[tokens, vocab_size]`. `bias` is `[vocab_size]`.
    pub(crate) fn logits(
        &self,
        hidden: Tensor<B, 2>,
        bias: Option<Tensor<B, 1>>,
        precision: Precision,
    ) -> Tensor<B, 2> {
        let float = |weight: Tensor<B, 2>, bias| {
            ops::linear(hidden.clone(), weight.transpose(), bias, None, precision)
        };
        match self {
            Self::Whole(whole) => float(whole.val(), bias),
            Self::Parts(_) => {
                let parts = with_bias(self.values(), bias);
                let logits = parts.into_iter().map(|(weight, bias)| float(weight, bias));
                Tensor::cat(logits.collect(), 1)
            }
            Self::Packed(rows) => rows.forward(hidden, bias, None, precision),
        }
    }

    /// [`ops::head_loss`] with this table as the weight: `hidden` is `[tokens, d_model]`, `bias` `[vocab_size]` and
    /// `targets` `[tokens]`.
    pub(crate) fn head_loss(
        &self,
        hidden: Tensor<B, 2>,
        bias: Option<Tensor<B, 1>>,
        targets: Tensor<B, 1, Int>,
        options: HeadLossOptions,
        precision: Precision,
    ) -> Tensor<B, 1> {
        let (hidden, weights) = self.head(hidden, bias);
        ops::head_loss(hidden, weights, targets, options, precision)
    }

    /// [`ops::head_losses`] with this table as the weight, as [`TokenTable::head_loss`].
    pub(crate) fn head_losses(
        &self,
        hidden: Tensor<B, 2>,
        bias: Option<Tensor<B, 1>>,
        targets: Tensor<B, 1, Int>,
        options: HeadLossOptions,
        precision: Precision,
    ) -> Tensor<B, 1> {
        let (hidden, weights) = self.head(hidden, bias);
        ops::head_losses(hidden, weights, targets, options, precision)
    }

    /// `[hidden, 1]` and the parts of `[weight, bias]`: the bias becomes an additional input, so the kernel needs no bias
    /// argument.
    fn head(
        &self,
        hidden: Tensor<B, 2>,
        bias: Option<Tensor<B, 1>>,
    ) -> (Tensor<B, 2>, Vec<Tensor<B, 2>>) {
        // The gradients of weight and bias are then complete when that of `hidden` is.
        let bias = bias.map(|bias| ops::depending_on(bias, &hidden));
        let hidden = match bias {
            Some(_) => {
                let ones = Tensor::ones([hidden.dims()[0], 1], &hidden.device());
                Tensor::cat(vec![hidden, ones], 1)
            }
            None => hidden,
        };
        let parts = with_bias(self.values(), bias).into_iter();
        let weights = parts.map(|(weight, bias)| match bias {
            Some(bias) => Tensor::cat(vec![weight, bias.unsqueeze_dim(1)], 1),
            None => weight,
        });
        (hidden, weights.collect())
    }
}

/// Pairs each part with its slice of a bias `[vocab_size]`.
fn with_bias<B: BurnBackend>(
    parts: Vec<Tensor<B, 2>>,
    bias: Option<Tensor<B, 1>>,
) -> Vec<(Tensor<B, 2>, Option<Tensor<B, 1>>)> {
    let mut start = 0;
    let pair = |part: Tensor<B, 2>| {
        let rows = part.dims()[0];
        let bias = bias.clone().map(|bias| bias.narrow(0, start, rows));
        start += rows;
        (part, bias)
    };
    parts.into_iter().map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_split_into_fewest_parts_of_equal_size() {
        // GPT-2's table with WebGPU's minimum buffer limit: 43,633 rows of 769 elements fit.
        assert_eq!(
            rows_of_parts(50_257, 768, Some(128 << 20)),
            [25_129, 25_128]
        );
        assert_eq!(rows_of_parts(50_257, 768, Some(1 << 30)), [50_257]);
        assert_eq!(rows_of_parts(50_257, 768, None), [50_257]);
        // Exactly as many rows as fit, and one more.
        assert_eq!(rows_of_parts(10, 1, Some(80)), [10]);
        assert_eq!(rows_of_parts(11, 1, Some(80)), [6, 5]);
        // A part has at least one row.
        assert_eq!(rows_of_parts(3, 8, Some(4)), [1, 1, 1]);
        assert_eq!(rows_of_parts(1, 8, Some(0)), [1]);
    }
}
