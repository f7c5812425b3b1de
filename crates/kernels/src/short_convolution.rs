//! The inputs and gradients of a causal convolution.

use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;

/// The inputs of [`crate::Recurrences::short_convolution`].
#[derive(Clone, Debug)]
pub struct ConvolutionInputs<B: Backend> {
    /// `[batch, seq, channels]`.
    pub x: FloatTensor<B>,
    /// The factors of the last tokens, the newest one last: `[taps, channels]` with at least two taps.
    pub weight: FloatTensor<B>,
    /// The inputs of the tokens before, `[batch, taps - 1, channels]`. Without them, they are 0. They have no gradient.
    pub past: Option<FloatTensor<B>>,
}

/// The gradients of [`crate::Recurrences::short_convolution`].
#[derive(Clone, Debug)]
pub struct ConvolutionGradients<B: Backend> {
    /// `[batch, seq, channels]`.
    pub x: FloatTensor<B>,
    /// `[taps, channels]`.
    pub weight: FloatTensor<B>,
}
