//! Position encodings: vectors added to the embeddings, and rotations of queries and keys.

pub(crate) mod scaling;

use burn::module::{Module, Param};
use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::{Device, Int, Tensor, TensorData};

use emberlm_kernels::{Backend, RotaryLayout, ops};

use crate::config::RotaryScaling;
use crate::nn::init::Initializer;

/// Configuration of [`AddedPositions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddedPositionsConfig {
    /// No added vectors.
    None,
    /// A learned vector per position.
    Learned {
        /// Number of positions.
        seq_len: usize,
    },
    /// The fixed sines and cosines of Vaswani et al. 2017.
    Sinusoidal {
        /// Number of positions.
        seq_len: usize,
    },
}

impl AddedPositionsConfig {
    /// Number of parameter elements with vectors of `d_model` elements.
    pub(crate) fn parameters(&self, d_model: usize) -> u128 {
        match *self {
            Self::Learned { seq_len } => seq_len as u128 * d_model as u128,
            Self::Sinusoidal { .. } | Self::None => 0,
        }
    }

    pub(crate) fn init_from<B: Backend>(
        &self,
        from: &Initializer<'_, B>,
        path: &str,
        d_model: usize,
    ) -> AddedPositions<B> {
        let (weight, fixed) = match *self {
            Self::Learned { seq_len } => {
                let path = format!("{path}.weight");
                (Some(from.embedding(&path, [seq_len, d_model])), None)
            }
            Self::Sinusoidal { seq_len } => {
                (None, Some(sinusoids([seq_len, d_model], from.device())))
            }
            Self::None => (None, None),
        };
        AddedPositions { weight, fixed }
    }
}

/// Vectors added to the embeddings, one per position.
#[derive(Module, Debug)]
pub struct AddedPositions<B: BurnBackend> {
    /// Learned vectors, `[seq_len, d_model]`.
    pub weight: Option<Param<Tensor<B, 2>>>,
    /// Fixed vectors, `[seq_len, d_model]`.
    fixed: Option<Tensor<B, 2>>,
}

impl<B: Backend> AddedPositions<B> {
    /// Adds the vectors of the positions starting at `offset` to `x` `[batch, seq, d_model]`. `documents` `[batch,
    /// seq]` holds the start of each token's document; with it, token `i` has the position `offset + i -
    /// documents[i]`.
    pub fn add(
        &self,
        x: Tensor<B, 3>,
        offset: usize,
        documents: Option<&Tensor<B, 2, Int>>,
    ) -> Tensor<B, 3> {
        let Some(table) = self.table() else {
            return x;
        };
        let [batch, seq, width] = x.dims();
        let Some(starts) = documents else {
            // As `[batch, seq * width] + [1, seq * width]`, the broadcast repeats one contiguous row, which is fast.
            let rows = table.narrow(0, offset, seq).reshape([1, seq * width]);
            return (x.reshape([batch, seq * width]) + rows).reshape([batch, seq, width]);
        };
        let (start, end) = (offset as i64, (offset + seq) as i64);
        let positions = Tensor::<B, 1, Int>::arange(start..end, &x.device());
        let positions = positions.reshape([1, seq]).expand([batch, seq]) - starts.clone();
        // Invalid starts (after their token) must not cause reads outside the table.
        let positions = positions.clamp(0, table.dims()[0] as i64 - 1);
        x + ops::embedding(table, positions) // [batch, seq, d_model]
    }

    /// Adds the vectors of `positions` `[rows]`, each below `seq_len`, to `x` `[1, rows, d_model]`.
    pub(crate) fn add_at(&self, x: Tensor<B, 3>, positions: &Tensor<B, 1, Int>) -> Tensor<B, 3> {
        match self.table() {
            Some(table) => x + ops::embedding(table, positions.clone().unsqueeze()),
            None => x,
        }
    }

    /// The vectors `[seq_len, d_model]`, if any.
    fn table(&self) -> Option<Tensor<B, 2>> {
        match (&self.weight, &self.fixed) {
            (Some(weight), _) => Some(weight.val()),
            (None, fixed) => fixed.clone(),
        }
    }
}

/// Position vectors with `sin(pos / 10000^(2i/d))` at `2i` and the cosine at `2i + 1` (Vaswani et al. 2017).
fn sinusoids<B: Backend>(shape: [usize; 2], device: &Device<B>) -> Tensor<B, 2> {
    let [seq_len, width] = shape;
    let values = (0..seq_len).flat_map(|position| {
        (0..width).map(move |i| {
            let frequency = 10_000f64.powf(-((i / 2 * 2) as f64) / width as f64);
            let angle = position as f64 * frequency;
            (if i % 2 == 0 { angle.sin() } else { angle.cos() }) as f32
        })
    });
    Tensor::from_data(TensorData::new(values.collect(), shape), device)
}

/// Configuration of rotary positions (Su et al. 2021).
#[derive(Clone, Debug, PartialEq)]
pub struct RotaryConfig {
    /// Number of positions.
    pub seq_len: usize,
    /// Number of rotated elements of a head, rounded up to an even number.
    pub dims: usize,
    /// Base of the frequencies `base^(-2i/dims)`.
    pub base: f64,
    /// Assignment of elements to pairs.
    pub layout: RotaryLayout,
    /// Scaling of the frequencies for longer contexts.
    pub scaling: RotaryScaling,
}

impl RotaryConfig {
    /// Rotation of `dims` elements in half-split layout, with base 10,000 and without scaling.
    pub const fn new(seq_len: usize, dims: usize) -> Self {
        Self {
            seq_len,
            dims,
            base: 10_000.0,
            layout: RotaryLayout::HalfSplit,
            scaling: RotaryScaling::None,
        }
    }

    /// The context length that the scaling states as the original one, if any.
    pub(crate) fn original_seq_len(&self) -> Option<usize> {
        match self.scaling {
            RotaryScaling::Llama3 {
                original_seq_len, ..
            }
            | RotaryScaling::Yarn {
                original_seq_len, ..
            }
            | RotaryScaling::LongRope {
                original_seq_len, ..
            } => Some(original_seq_len),
            RotaryScaling::None | RotaryScaling::Linear { .. } | RotaryScaling::Dynamic { .. } => {
                None
            }
        }
    }

    /// Computes the cosines and sines of all positions.
    pub fn init<B: Backend>(&self, device: &Device<B>) -> RotaryTable<B> {
        let (seq_len, dims) = (self.seq_len, self.dims);
        let pairs = dims.div_ceil(2);
        let frequencies = scaling::frequencies(self.base, dims, seq_len, &self.scaling);
        let factor = scaling::factor(seq_len, &self.scaling);
        let table = |f: fn(f64) -> f64| {
            // The long tables of long contexts are allocated once: a collected vector would grow to their double.
            let mut values = Vec::with_capacity(seq_len * pairs);
            for position in 0..seq_len {
                let angles = frequencies.iter().map(|of| position as f64 * of);
                values.extend(angles.map(|angle| (factor * f(angle)) as f32));
            }
            Tensor::from_data(TensorData::new(values, [seq_len, pairs]), device)
        };
        RotaryTable {
            cos: table(f64::cos),
            sin: table(f64::sin),
            layout: self.layout,
        }
    }
}

/// Cosines and sines of the angles that rotate queries and keys.
#[derive(Module, Debug)]
pub struct RotaryTable<B: BurnBackend> {
    /// `[seq_len, pairs]`.
    cos: Tensor<B, 2>,
    /// `[seq_len, pairs]`.
    sin: Tensor<B, 2>,
    #[module(skip)]
    layout: RotaryLayout,
}

impl<B: Backend> RotaryTable<B> {
    /// The rotations of `seq` positions starting at `offset`.
    ///
    /// Positions need not restart at isolated documents: the product of a query rotated by `θ i` and a key rotated by
    /// `θ j` depends only on `θ (i - j)`, and the start of the document cancels out. This holds for every scaling,
    /// because scalings change only the frequencies `θ`. Results differ only by the rounding of the cosines and
    /// sines, which is equally small at every position because angles are computed in f64. Random features depend on
    /// the angles themselves, so [`crate::TransformerConfig::check_documents`] rejects linear attention.
    pub(crate) fn angles(&self, offset: usize, seq: usize) -> ops::Angles<B> {
        ops::Angles {
            layout: self.layout,
            cos: self.cos.clone().narrow(0, offset, seq), // [seq, pairs]
            sin: self.sin.clone().narrow(0, offset, seq),
        }
    }

    /// The rotations of `positions` `[rows]`, each below `seq_len`.
    pub(crate) fn angles_at(&self, positions: &Tensor<B, 1, Int>) -> ops::Angles<B> {
        ops::Angles {
            layout: self.layout,
            cos: self.cos.clone().select(0, positions.clone()), // [rows, pairs]
            sin: self.sin.clone().select(0, positions.clone()),
        }
    }
}
