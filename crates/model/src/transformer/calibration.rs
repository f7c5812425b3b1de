//! Statistics of the inputs of linear layers over a text, for choosing quantized weights.
//!
//! A decoder whose linear layers have recorders ([`Transformer::with_input_recorders`]) computes as before, and each layer
//! reports its inputs. [`InputImportance`] keeps the mean square of each input, and [`InputProducts`] the products of
//! all pairs of inputs. Methods that need other sums implement [`InputRecorder`].

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use burn::tensor::{Int, Tensor, TensorData};

use emberlm_kernels::cpu::matrix::{Matrix, MatrixMut};
use emberlm_kernels::cpu::product::{Output, product};
use emberlm_kernels::{Backend, Precision};

use crate::nn::linear::InputRecorder;
use crate::transformer::model::Transformer;

impl<B: Backend> Transformer<B> {
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
    /// Each sequence must satisfy [`crate::TransformerConfig::check_tokens`].
    pub fn over<B: Backend>(
        decoder: &Transformer<B>,
        sequences: impl IntoIterator<Item = Vec<u32>>,
    ) -> Self {
        let sums = record(decoder, sequences, Squares::new);
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

/// The products of all pairs of inputs of each linear layer, `Xᵀ X` `[in, in]` of the inputs X `[tokens, in]` of a text.
/// Twice this is the Hessian of the squared error of a layer's outputs with respect to a row of its weight.
///
/// All matrices are kept in f32: 4 · in² bytes per layer.
#[derive(Clone, Debug, Default)]
pub struct InputProducts(BTreeMap<String, (Vec<f32>, u64)>);

impl InputProducts {
    /// Computes the products over sequences of tokens, with the weights of the decoder as they are.
    ///
    /// Each sequence must satisfy [`crate::TransformerConfig::check_tokens`].
    pub fn over<B: Backend>(
        decoder: &Transformer<B>,
        sequences: impl IntoIterator<Item = Vec<u32>>,
    ) -> Self {
        let products = record(decoder, sequences, Products::new).into_iter();
        let sums = products.map(|(path, products)| {
            let sums = products.0.lock().unwrap_or_else(PoisonError::into_inner);
            (path, sums.clone())
        });
        Self(sums.filter(|(_, (_, rows))| *rows > 0).collect())
    }

    /// The matrix `[in, in]` of the layer at `path`; `None` if no token reached it.
    pub fn of_layer(&self, path: &str) -> Option<&[f32]> {
        self.0.get(path).map(|(products, _)| products.as_slice())
    }

    /// The importance of the inputs: the diagonals, divided by the number of tokens.
    pub fn importance(&self) -> InputImportance {
        let of_layer = |(products, rows): &(Vec<f32>, u64)| {
            let columns = products.len().isqrt();
            let diagonal = products.iter().step_by(columns + 1);
            diagonal.map(|sum| sum / *rows as f32).collect()
        };
        let layers = self.0.iter();
        InputImportance(
            layers
                .map(|(path, layer)| (path.clone(), of_layer(layer)))
                .collect(),
        )
    }
}

/// Sums of products of inputs, and the number of tokens.
#[derive(Debug)]
struct Products(Mutex<(Vec<f32>, u64)>);

impl Products {
    fn new(columns: usize) -> Self {
        Self(Mutex::new((vec![0.0; columns * columns], 0)))
    }
}

impl InputRecorder for Products {
    fn record(&self, inputs: &[f32], columns: usize) {
        let mut sums = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (sums, count) = &mut *sums;
        let rows = inputs.len() / columns.max(1);
        let inputs = Matrix::row_major(inputs, rows, columns);
        product(
            MatrixMut::row_major(sums, columns, columns),
            inputs.transposed(),
            inputs,
            Output::Accumulate,
            Precision::F32,
        );
        *count += rows as u64;
    }
}

/// Computes the hidden states of sequences of tokens with a recorder in each linear layer. Returns the recorders by path.
fn record<B: Backend, R: InputRecorder + 'static>(
    decoder: &Transformer<B>,
    sequences: impl IntoIterator<Item = Vec<u32>>,
    recorder: impl Fn(usize) -> R,
) -> BTreeMap<String, Arc<R>> {
    let mut recorders = BTreeMap::new();
    let recorded = decoder.with_input_recorders(|path, inputs| {
        let recorder = Arc::new(recorder(inputs));
        recorders.insert(path.to_owned(), Arc::clone(&recorder));
        recorder
    });
    for tokens in sequences {
        let ids: Vec<i32> = tokens.iter().map(|&id| id.cast_signed()).collect();
        let shape = [1, ids.len()];
        let ids = TensorData::new(ids, shape);
        let ids = Tensor::<B, 2, Int>::from_data(ids, &decoder.device());
        // Backends may compute only what is read.
        let _ = recorded.hidden(ids, None).into_data();
    }
    recorders
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
