//! Positions of tokens: vectors added to the embedding, and rotations of queries and keys.

mod scaling;

use burn::module::{Module, Param};
use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::{Device, Int, Tensor, TensorData};

use emberlm_kernels::{Backend, RotaryLayout, ops};

use crate::config::RotaryScaling;
use crate::init::Initializer;

/// The configuration of [`AddedPositions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddedPositionsConfig {
    /// Nothing is added.
    None,
    /// A learned vector per position.
    Learned {
        /// The number of positions.
        seq_len: usize,
    },
    /// The fixed sines and cosines of Vaswani et al. 2017.
    Sinusoidal {
        /// The number of positions.
        seq_len: usize,
    },
}

impl AddedPositionsConfig {
    /// Elements of its parameters, for vectors of `d_model`.
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
    /// `[seq_len, d_model]`, trained.
    pub weight: Option<Param<Tensor<B, 2>>>,
    /// `[seq_len, d_model]`, fixed.
    fixed: Option<Tensor<B, 2>>,
}

impl<B: Backend> AddedPositions<B> {
    /// Adds the vectors of the positions from `offset` on to `x` `[batch, seq, d_model]`. With `documents` `[batch, seq]`,
    /// where each token's begins, token `i` takes the vector `offset + i - documents[i]`.
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
        let Some(first) = documents else {
            // Every sequence takes the same numbers: as one row of them, repeating it is an addition at full speed.
            let rows = table.narrow(0, offset, seq).reshape([1, seq * width]);
            return (x.reshape([batch, seq * width]) + rows).reshape([batch, seq, width]);
        };
        let (start, end) = (offset as i64, (offset + seq) as i64);
        let places = Tensor::<B, 1, Int>::arange(start..end, &x.device());
        let places = places.reshape([1, seq]).expand([batch, seq]) - first.clone();
        // A document that begins after its token has no position, and must not be read from outside of the table.
        let places = places.clamp(0, table.dims()[0] as i64 - 1);
        x + ops::embedding(table, places) // [batch, seq, d_model]
    }

    /// Adds the vectors of the positions `places` `[rows]`, each below `seq_len`, to `x` `[1, rows, d_model]`.
    pub(crate) fn add_at(&self, x: Tensor<B, 3>, places: &Tensor<B, 1, Int>) -> Tensor<B, 3> {
        match self.table() {
            Some(table) => x + ops::embedding(table, places.clone().unsqueeze()),
            None => x,
        }
    }

    /// `[seq_len, d_model]`, where there is one.
    fn table(&self) -> Option<Tensor<B, 2>> {
        match (&self.weight, &self.fixed) {
            (Some(weight), _) => Some(weight.val()),
            (None, fixed) => fixed.clone(),
        }
    }
}

/// `sin(pos / 10000^(2i/d))` at `2i`, the cosine at `2i + 1` (Vaswani et al. 2017).
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

/// The configuration of rotary positions (Su et al. 2021).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RotaryConfig {
    /// The number of positions.
    pub seq_len: usize,
    /// The number of elements of a head that are rotated, rounded up to whole pairs.
    pub dims: usize,
    /// The base of the frequencies `base^(-2i/dims)`.
    pub base: f64,
    /// Which elements form a pair.
    pub layout: RotaryLayout,
    /// A change of the frequencies for longer contexts.
    pub scaling: RotaryScaling,
}

impl RotaryConfig {
    /// `dims` elements rotated with the base 10,000, the halves of a head in pairs.
    pub const fn new(seq_len: usize, dims: usize) -> Self {
        Self {
            seq_len,
            dims,
            base: 10_000.0,
            layout: RotaryLayout::HalfSplit,
            scaling: RotaryScaling::None,
        }
    }

    /// The table of the positions' cosines and sines.
    pub fn init<B: Backend>(&self, device: &Device<B>) -> RotaryTable<B> {
        let Self {
            seq_len,
            dims,
            base,
            scaling,
            ..
        } = *self;
        let pairs = dims.div_ceil(2);
        let frequencies = scaling::frequencies(base, dims, seq_len, scaling);
        let factor = scaling::factor(scaling);
        let table = |f: fn(f64) -> f64| {
            let values = (0..seq_len).flat_map(|position| {
                let angle = move |frequency: &f64| position as f64 * frequency;
                frequencies
                    .iter()
                    .map(move |of| (factor * f(angle(of))) as f32)
            });
            let data = TensorData::new(values.collect(), [seq_len, pairs]);
            Tensor::from_data(data, device)
        };
        RotaryTable {
            cos: table(f64::cos),
            sin: table(f64::sin),
            layout: self.layout,
        }
    }
}

/// The cosines and sines by which queries and keys are rotated.
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
    /// Those of `seq` positions from `offset` on, by which queries and keys are turned.
    ///
    /// Where documents are isolated, positions need not restart: a query turned by `θ i` and a key turned by `θ j` have the
    /// product that `θ (i - j)` gives, and a document's start falls out of `i - j`. A scaling changes the frequencies
    /// `θ` and nothing by position, so that it holds for each. What stays is the rounding of cosines and sines, as
    /// large at every position, since the angles are taken in f64. Random features would see the angles themselves:
    /// [`crate::DecoderConfig::check_documents`] rejects linear attention.
    pub(crate) fn angles(&self, offset: usize, seq: usize) -> ops::Angles<B> {
        ops::Angles {
            layout: self.layout,
            cos: self.cos.clone().narrow(0, offset, seq), // [seq, pairs]
            sin: self.sin.clone().narrow(0, offset, seq),
        }
    }

    /// Those of the positions `places` `[rows]`, each below `seq_len`.
    pub(crate) fn angles_at(&self, places: &Tensor<B, 1, Int>) -> ops::Angles<B> {
        ops::Angles {
            layout: self.layout,
            cos: self.cos.clone().select(0, places.clone()), // [rows, pairs]
            sin: self.sin.clone().select(0, places.clone()),
        }
    }
}
