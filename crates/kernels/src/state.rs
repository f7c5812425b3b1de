//! Inputs and outputs of operations that consist of several tensors.

use std::ops::Range;

use burn::tensor::backend::Backend;
use burn::tensor::ops::{FloatTensor, IntTensor};

use crate::{AdamWStep, HeadLossOptions, Precision, RotaryLayout};

/// The inputs of a linear layer.
#[derive(Clone, Debug)]
pub struct LinearInputs<B: Backend> {
    /// `[…, in]`.
    pub x: FloatTensor<B>,
    /// `[in, out]`.
    pub weight: FloatTensor<B>,
    /// `[out]`.
    pub bias: Option<FloatTensor<B>>,
    /// The residual to add to the output, `[…, out]`.
    pub residual: Option<FloatTensor<B>>,
}

/// An update of consecutive rows of a linear layer's output.
#[derive(Clone, Debug)]
pub struct LowRankUpdate<B: Backend> {
    /// The rows, counted over all leading dimensions.
    pub rows: Range<usize>,
    /// A, `[in, rank]`.
    pub a: FloatTensor<B>,
    /// B, `[rank, out]`.
    pub b: FloatTensor<B>,
}

/// The gradients of a linear layer; `None` where not requested.
#[derive(Clone, Debug)]
pub struct LinearGradients<B: Backend> {
    /// The input's gradient, `[…, in]`.
    pub x: Option<FloatTensor<B>>,
    /// The weight's gradient, `[in, out]`.
    pub weight: Option<FloatTensor<B>>,
    /// The bias's gradient, `[out]`.
    pub bias: Option<FloatTensor<B>>,
}

/// The inputs of [`crate::Backend::normalize_columns`].
#[derive(Clone, Debug)]
pub struct ColumnNormInputs<B: Backend> {
    /// `[…, width]`.
    pub x: FloatTensor<B>,
    /// The gain of each set of groups, `[width of a group]`.
    pub gains: Option<[FloatTensor<B>; 2]>,
    /// The bias of each set of groups, `[width of a group]`.
    pub biases: Option<[FloatTensor<B>; 2]>,
}

/// The gradients of the inputs of [`crate::Backend::normalize_columns`].
#[derive(Clone, Debug)]
pub struct ColumnNormGradients<B: Backend> {
    /// `[…, width]`.
    pub x: FloatTensor<B>,
    /// Those of the gains, if any.
    pub gains: Option<[FloatTensor<B>; 2]>,
    /// Those of the biases, if any.
    pub biases: Option<[FloatTensor<B>; 2]>,
}

/// The gradients of a normalization.
#[derive(Clone, Debug)]
pub struct NormGradients<B: Backend> {
    /// The input's gradient.
    pub x: FloatTensor<B>,
    /// The gain's gradient, if there is a gain.
    pub gain: Option<FloatTensor<B>>,
    /// The bias's gradient, if there is a bias.
    pub bias: Option<FloatTensor<B>>,
}

/// The gradients of weighted rows that were added to others.
#[derive(Clone, Debug)]
pub struct AddRowsGradients<B: Backend> {
    /// Of the rows.
    pub x: FloatTensor<B>,
    /// Of their weights.
    pub weights: FloatTensor<B>,
}

/// The gradients of a gated activation.
#[derive(Clone, Debug)]
pub struct GatedGradients<B: Backend> {
    /// The gradient of the activation's input.
    pub gate: FloatTensor<B>,
    /// The gradient of the factor that the activation is multiplied by.
    pub up: FloatTensor<B>,
}

/// The rotation angles of queries and keys.
#[derive(Clone, Debug)]
pub struct RotaryAngles<B: Backend> {
    /// The pairing of elements.
    pub layout: RotaryLayout,
    /// Cosines, `[seq, pairs]`.
    pub cos: FloatTensor<B>,
    /// Sines, `[seq, pairs]`.
    pub sin: FloatTensor<B>,
}

/// A parameter in an AdamW update.
#[derive(Clone, Debug)]
pub struct AdamWInputs<B: Backend> {
    /// The parameter, of any shape.
    pub parameter: FloatTensor<B>,
    /// Its gradient.
    pub grad: FloatTensor<B>,
    /// The running means of the gradient and its square.
    pub moments: (FloatTensor<B>, FloatTensor<B>),
    /// The hyperparameters.
    pub step: AdamWStep,
}

/// The `(parameter, moment1, moment2)` that [`crate::Backend::adamw`] returns.
pub type AdamWOutputs<B> = (FloatTensor<B>, FloatTensor<B>, FloatTensor<B>);

/// The keys and values of earlier tokens, with room for more.
#[derive(Clone, Debug)]
pub struct KeyValueCache<B: Backend> {
    /// `[batch, kv_heads, capacity, head_dim]`.
    pub keys: FloatTensor<B>,
    /// `[batch, kv_heads, capacity, head_dim]`.
    pub values: FloatTensor<B>,
    /// The number of tokens that are held.
    pub len: usize,
}

/// The inputs of the head with its loss.
#[derive(Clone, Debug)]
pub struct HeadLossInputs<B: Backend> {
    /// The hidden states, `[tokens, d_model]`.
    pub hidden: FloatTensor<B>,
    /// The weight `[vocab_size, d_model]`, in at least one part of consecutive rows.
    pub weights: Vec<FloatTensor<B>>,
    /// The targets, `[tokens]`; negative ones are ignored.
    pub targets: IntTensor<B>,
    /// The terms of the loss.
    pub options: HeadLossOptions,
    /// The precision of the products.
    pub precision: Precision,
}

/// The loss of a language model head with its gradients, computed in a single pass over the vocabulary.
#[derive(Clone, Debug)]
pub struct HeadLossGradients<B: Backend> {
    /// The sum of `-ln softmax(logits)[target]`, and of the terms that [`crate::HeadLossOptions`] adds, over the
    /// tokens that are not ignored, `[1]`.
    pub loss: FloatTensor<B>,
    /// The gradient of the hidden states, `[tokens, d_model]`.
    pub hidden: FloatTensor<B>,
    /// The gradient of each part of the weight, `[rows of the part, d_model]`.
    pub weights: Vec<FloatTensor<B>>,
}
