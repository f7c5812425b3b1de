//! The table of tokens: the embedding, and the head if it is not tied.
//!
//! It is one tensor `[vocab_size, d_model]` where the device takes it in one buffer. Where the device does not, it is the fewest parts
//! of consecutive rows that fit, and what is computed of it is computed part by part: it stays one table to whoever reads or writes
//! weights ([`crate::weights::Parts`]).

use burn::module::{Module, Param};
use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::{Device, Int, Tensor};

use emberlm_kernels::{Backend, HeadLossOptions, PackedFormat, PackedWeight, Precision, ops};

/// A table `[vocab_size, d_model]`. Whether it is whole or in parts follows from its size and the device.
#[derive(Module, Debug)]
pub enum TokenTable<B: BurnBackend> {
    /// One tensor.
    Whole(Param<Tensor<B, 2>>),
    /// Consecutive rows, `[part's rows, d_model]` each, at least two.
    Parts(Vec<Param<Tensor<B, 2>>>),
    /// Packed, part by part, `[part's rows, d_model]` each, at least one. Packed parts are no parameters.
    Packed(Vec<PackedWeight<B>>),
}

/// The rows of each part of a table of `vocab_size` rows where a buffer is at most `largest` bytes: the fewest parts, and all as
/// many rows but for one.
///
/// A row counts as one number longer than `d_model`: a head's bias is one more column of it.
pub(crate) fn rows_of_parts(vocab_size: usize, d_model: usize, largest: Option<u64>) -> Vec<usize> {
    let row = 4 * (d_model as u64 + 1);
    let most = largest.map_or(u64::MAX, |bytes| (bytes / row).max(1));
    // At most `vocab_size`, since `most` is at least 1.
    let parts = (vocab_size as u64).div_ceil(most).max(1) as usize;
    let (rows, longer) = (vocab_size / parts, vocab_size % parts);
    (0..parts)
        .map(|part| rows + usize::from(part < longer))
        .collect()
}

impl<B: BurnBackend> TokenTable<B> {
    /// Of its parts in the order of their rows, at least one.
    pub(crate) fn of(mut parts: Vec<Param<Tensor<B, 2>>>) -> Self {
        match (parts.len(), parts.pop()) {
            (1, Some(whole)) => Self::Whole(whole),
            (_, last) => {
                parts.extend(last);
                Self::Parts(parts)
            }
        }
    }

    /// Its parameters in the order of their rows: one where it is whole, none where it is packed.
    pub fn parts(&self) -> &[Param<Tensor<B, 2>>] {
        match self {
            Self::Whole(whole) => std::slice::from_ref(whole),
            Self::Parts(parts) => parts,
            Self::Packed(_) => &[],
        }
    }

    /// The table with `change` made to each parameter, which keeps its shape.
    pub fn mapped(self, mut change: impl FnMut(Tensor<B, 2>) -> Tensor<B, 2>) -> Self {
        match self {
            Self::Whole(whole) => Self::Whole(whole.map(change)),
            Self::Parts(parts) => {
                let parts = parts.into_iter().map(|part| part.map(&mut change));
                Self::Parts(parts.collect())
            }
            Self::Packed(parts) => Self::Packed(parts),
        }
    }

    /// The device it is on.
    pub(crate) fn device(&self) -> Device<B> {
        match self {
            Self::Whole(whole) => whole.lazy_device(),
            Self::Parts(parts) => parts
                .first()
                .map_or_else(Default::default, Param::lazy_device),
            Self::Packed(parts) => parts
                .first()
                .map_or_else(Default::default, PackedWeight::device),
        }
    }

    /// The format of a packed table.
    pub(crate) fn packed_format(&self) -> Option<PackedFormat> {
        match self {
            Self::Whole(_) | Self::Parts(_) => None,
            Self::Packed(parts) => parts.first().map(PackedWeight::format),
        }
    }
}

impl<B: Backend> TokenTable<B> {
    /// All rows in one tensor, `[vocab_size, d_model]`, which a device may not take.
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

    /// The rows in f32, part by part.
    fn values(&self) -> Vec<Tensor<B, 2>> {
        match self {
            Self::Whole(_) | Self::Parts(_) => self.parts().iter().map(Param::val).collect(),
            Self::Packed(parts) => parts.iter().cloned().map(ops::unpack).collect(),
        }
    }

    /// The table packed, part by part.
    pub(crate) fn packed(&self, format: PackedFormat) -> Self {
        match self {
            Self::Whole(_) | Self::Parts(_) => {
                let pack = |part| ops::pack(part, format);
                Self::Packed(self.values().into_iter().map(pack).collect())
            }
            Self::Packed(_) => self.clone(),
        }
    }

    /// The rows of `ids`, `[batch, seq]` to `[batch, seq, d_model]`. A packed table is unpacked for it.
    pub(crate) fn look_up(&self, ids: Tensor<B, 2, Int>) -> Tensor<B, 3> {
        match self {
            Self::Whole(whole) => ops::embedding(whole.val(), ids),
            Self::Parts(_) | Self::Packed(_) => ops::embedding_parts(self.values(), ids),
        }
    }

    /// `hidden` times its rows, and `bias` `[vocab_size]`: `[tokens, d_model]` to `[tokens, vocab_size]`.
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
                let parts = cut(self.values(), |part| part.dims()[0], bias);
                let logits = parts.into_iter().map(|(weight, bias)| float(weight, bias));
                Tensor::cat(logits.collect(), 1)
            }
            Self::Packed(parts) => match parts.as_slice() {
                [whole] => ops::linear_packed(hidden, whole.clone(), bias, None),
                parts => {
                    let parts = cut(parts.to_vec(), |part| part.shape()[0], bias);
                    let logits = parts.into_iter().map(|(weight, bias)| {
                        ops::linear_packed(hidden.clone(), weight, bias, None)
                    });
                    Tensor::cat(logits.collect(), 1)
                }
            },
        }
    }

    /// [`ops::head_loss`] by its rows, and `bias` `[vocab_size]`: `hidden` `[tokens, d_model]`, `targets` `[tokens]`.
    pub(crate) fn head_loss(
        &self,
        hidden: Tensor<B, 2>,
        bias: Option<Tensor<B, 1>>,
        targets: Tensor<B, 1, Int>,
        options: HeadLossOptions,
        precision: Precision,
    ) -> Tensor<B, 1> {
        // [hidden, 1] · [weight, bias]ᵀ: a bias is one more input, so one operation serves with and without.
        let hidden = match bias {
            Some(_) => {
                let ones = Tensor::ones([hidden.dims()[0], 1], &hidden.device());
                Tensor::cat(vec![hidden, ones], 1)
            }
            None => hidden,
        };
        let parts = cut(self.values(), |part| part.dims()[0], bias).into_iter();
        let weights = parts.map(|(weight, bias)| match bias {
            Some(bias) => Tensor::cat(vec![weight, bias.unsqueeze_dim(1)], 1),
            None => weight,
        });
        ops::head_loss(hidden, weights.collect(), targets, options, precision)
    }
}

/// Parts, of `rows` rows each, with what each has of a bias `[vocab_size]`.
fn cut<B: BurnBackend, T>(
    parts: Vec<T>,
    rows: impl Fn(&T) -> usize,
    bias: Option<Tensor<B, 1>>,
) -> Vec<(T, Option<Tensor<B, 1>>)> {
    let mut start = 0;
    let with_bias = |part: T| {
        let rows = rows(&part);
        let own = bias.clone().map(|bias| bias.narrow(0, start, rows));
        start += rows;
        (part, own)
    };
    parts.into_iter().map(with_bias).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fewest_parts_that_fit_are_as_long_as_each_other() {
        // GPT-2's on a device of WebGPU's least: 43,633 rows of 769 numbers fit.
        assert_eq!(
            rows_of_parts(50_257, 768, Some(128 << 20)),
            [25_129, 25_128]
        );
        assert_eq!(rows_of_parts(50_257, 768, Some(1 << 30)), [50_257]);
        assert_eq!(rows_of_parts(50_257, 768, None), [50_257]);
        // As many rows as fit, and one more.
        assert_eq!(rows_of_parts(10, 1, Some(80)), [10]);
        assert_eq!(rows_of_parts(11, 1, Some(80)), [6, 5]);
        // Never less than a row.
        assert_eq!(rows_of_parts(3, 8, Some(4)), [1, 1, 1]);
        assert_eq!(rows_of_parts(1, 8, Some(0)), [1]);
    }
}
