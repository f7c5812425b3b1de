//! Inputs and outputs of the operations that are not single tensors.

use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;

use crate::RotaryLayout;

/// The inputs of a linear layer.
#[derive(Clone, Debug)]
pub struct LinearInputs<B: Backend> {
    /// `[…, in]`.
    pub x: FloatTensor<B>,
    /// `[in, out]`.
    pub weight: FloatTensor<B>,
    /// `[out]`.
    pub bias: Option<FloatTensor<B>>,
    /// The residual that the output is added to, `[…, out]`.
    pub residual: Option<FloatTensor<B>>,
}

/// The gradients of a linear map, those that were asked for.
#[derive(Clone, Debug)]
pub struct LinearGradients<B: Backend> {
    /// Of its input, `[…, in]`.
    pub x: Option<FloatTensor<B>>,
    /// Of its weight, `[in, out]`.
    pub weight: Option<FloatTensor<B>>,
    /// Of its bias, `[out]`.
    pub bias: Option<FloatTensor<B>>,
}

/// The gradients of a normalisation.
#[derive(Clone, Debug)]
pub struct NormGradients<B: Backend> {
    /// Of its input.
    pub x: FloatTensor<B>,
    /// Of its gain, where there is one.
    pub gain: Option<FloatTensor<B>>,
    /// Of its bias, where there is one.
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
    /// Of what goes through the activation.
    pub gate: FloatTensor<B>,
    /// Of what it is multiplied with.
    pub up: FloatTensor<B>,
}

/// By what queries and keys are turned.
#[derive(Clone, Debug)]
pub struct RotaryAngles<B: Backend> {
    /// Which elements are paired.
    pub layout: RotaryLayout,
    /// `[seq, pairs]`.
    pub cos: FloatTensor<B>,
    /// `[seq, pairs]`.
    pub sin: FloatTensor<B>,
}

/// The loss of a language-model head with its gradients, made in the same pass over the vocabulary.
#[derive(Clone, Debug)]
pub struct HeadLossGradients<B: Backend> {
    /// Sum over the tokens whose target is not ignored, `[1]`: `-ln softmax(logits)[target]` and what
    /// [`crate::HeadLossOptions`] adds.
    pub loss: FloatTensor<B>,
    /// Of the loss with respect to the hidden states, `[tokens, d_model]`.
    pub hidden: FloatTensor<B>,
    /// Of the loss with respect to each part of the weight, `[part's rows, d_model]`.
    pub weights: Vec<FloatTensor<B>>,
}
