//! Statistics of the inputs of linear layers over a text, for choosing quantized weights.
//!
//! A decoder whose linear layers have recorders ([`Decoder::with_input_recorders`]) computes as before, and each layer
//! reports its inputs. [`InputImportance`] keeps the mean square of each input. Methods that need more, such as the
//! products of all pairs of inputs, implement [`InputRecorder`] with other sums.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};

use burn::tensor::{Int, Tensor, TensorData};

use emberlm_kernels::Backend;

use crate::decoder::Decoder;

/// Receives the inputs of a linear layer.
pub trait InputRecorder: Debug + Send + Sync {
    /// Called in each pass with the inputs `[rows, columns]`, one row per token.
    fn record(&self, inputs: &[f32], columns: usize);
}

impl<B: Backend> Decoder<B> {
    /// Returns the model with a recorder in each linear layer of its blocks, except the routers of mixtures. `recorder`
    /// is called with the path of the layer, such as `blocks.0.attention.qkv`, and its number of inputs.
    pub fn with_input_recorders(
        &self,
        mut recorder: impl FnMut(&str, usize) -> Arc<dyn InputRecorder>,
    ) -> Self {
        let mut decoder = self.clone();
        for (linear, (path, held)) in decoder.linears_mut().zip(self.linears()) {
            linear.recorder = Some(recorder(&path, held.shape()[0]));
        }
        decoder
    }
}

/// The importance of the inputs of each linear layer: the mean of their squares over a text. A rounding error of a weight
/// changes the layer's output in proportion to the size of its input.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InputImportance(BTreeMap<String, Vec<f32>>);

impl InputImportance {
    /// Computes the importance over sequences of tokens.
    ///
    /// Each sequence must satisfy [`crate::DecoderConfig::check_tokens`].
    pub fn over<B: Backend>(
        decoder: &Decoder<B>,
        sequences: impl IntoIterator<Item = Vec<u32>>,
    ) -> Self {
        let mut sums = BTreeMap::new();
        let recorded = decoder.with_input_recorders(|path, inputs| {
            let squares = Arc::new(Squares::new(inputs));
            sums.insert(path.to_owned(), Arc::clone(&squares));
            squares
        });
        for tokens in sequences {
            let ids: Vec<i32> = tokens.iter().map(|&id| id.cast_signed()).collect();
            let shape = [1, ids.len()];
            let ids = TensorData::new(ids, shape);
            let ids = Tensor::<B, 2, Int>::from_data(ids, &decoder.device());
            // Backends may compute only what is read.
            let _ = recorded.hidden(ids, None).into_data();
        }
        let means = sums.into_iter();
        Self(
            means
                .filter_map(|(path, squares)| Some((path, squares.means()?)))
                .collect(),
        )
    }

    /// The importance of each input of the layer at `path`; `None` if no token reached it.
    pub fn of_layer(&self, path: &str) -> Option<&[f32]> {
        self.0.get(path).map(Vec::as_slice)
    }
}

/// Sums of squared inputs.
#[derive(Debug)]
struct Squares(Mutex<(Vec<f64>, u64)>);

impl Squares {
    fn new(columns: usize) -> Self {
        Self(Mutex::new((vec![0.0; columns], 0)))
    }

    /// The means; `None` if there were no inputs.
    fn means(&self) -> Option<Vec<f32>> {
        let sums = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (sums, rows) = &*sums;
        let mean = |sum: &f64| (sum / *rows as f64) as f32;
        (*rows > 0).then(|| sums.iter().map(mean).collect())
    }
}

impl InputRecorder for Squares {
    fn record(&self, inputs: &[f32], columns: usize) {
        let mut sums = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (sums, rows) = &mut *sums;
        for row in inputs.chunks_exact(columns.max(1)) {
            for (sum, input) in sums.iter_mut().zip(row) {
                *sum += f64::from(*input) * f64::from(*input);
            }
            *rows += 1;
        }
    }
}
