//! The base operations of every backend.

use burn::tensor::ops::FloatTensor;
use burn::tensor::{Device, FloatDType};

use crate::{Backend, BaseOps, PackedTokens, Precision, RotaryLayout};

impl<B: Backend> BaseOps for B {
    fn matmul(a: FloatTensor<B>, b: FloatTensor<B>) -> FloatTensor<B> {
        <B as Backend>::matmul(a, b)
    }

    fn matmul_to(a: FloatTensor<B>, b: FloatTensor<B>, kind: FloatDType) -> FloatTensor<B> {
        <B as Backend>::matmul_to(a, b, kind)
    }

    fn block_bytes(device: &Device<B>) -> u64 {
        <B as Backend>::block_bytes(device)
    }

    fn multiplies_in(precision: Precision, device: &Device<B>) -> bool {
        <B as Backend>::multiplies_in(precision, device)
    }

    fn rotary(
        layout: RotaryLayout,
        x: FloatTensor<B>,
        cos: FloatTensor<B>,
        sin: FloatTensor<B>,
    ) -> FloatTensor<B> {
        <B as Backend>::rotary(layout, x, cos, sin)
    }

    fn write_tokens(held: FloatTensor<B>, new: FloatTensor<B>, start: usize) -> FloatTensor<B> {
        <B as Backend>::write_tokens(held, new, start)
    }

    fn unpack_tokens(tokens: PackedTokens<B>) -> FloatTensor<B> {
        <B as Backend>::unpack_tokens(tokens)
    }
}
