//! Attention masks in the CPU's memory.

use burn::tensor::{Tensor, TensorPrimitive};
use burn_flex::{Flex, FlexTensor};

use super::buffer::{dense, elements, integers};
use crate::AttentionMask;
use crate::cpu::attention::Mask;

/// The tensors of an attention mask.
#[derive(Clone, Debug)]
pub(super) struct MaskTensors {
    documents: Option<FlexTensor>,
    padding: Option<Vec<bool>>,
    /// Dense and f32.
    bias: Option<FlexTensor>,
    /// Dense and f32.
    sinks: Option<FlexTensor>,
}

impl MaskTensors {
    pub(super) fn new(mask: AttentionMask<Flex>) -> Self {
        Self {
            documents: mask.documents.map(Tensor::into_primitive),
            padding: mask.padding.map(|seen| seen.into_data().iter().collect()),
            bias: mask.bias.map(|bias| dense(bias.into_primitive().tensor())),
            sinks: mask
                .sinks
                .map(|sinks| dense(sinks.into_primitive().tensor())),
        }
    }

    /// Calls `f` with the mask's elements.
    pub(super) fn with<R>(&self, f: impl FnOnce(Mask<'_>) -> R) -> R {
        let documents = self.documents.as_ref().map(integers);
        f(Mask {
            documents: documents.as_deref(),
            padding: self.padding.as_deref(),
            bias: self.bias.as_ref().map(elements),
            sinks: self.sinks.as_ref().map(elements),
        })
    }

    /// The sinks `[heads]`.
    pub(super) fn sinks(&self) -> Option<Tensor<Flex, 1>> {
        let sinks = self.sinks.clone()?;
        Some(Tensor::from_primitive(TensorPrimitive::Float(sinks)))
    }
}
