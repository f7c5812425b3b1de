//! Tests writing tokens to a cache, in place and into a copy: the new tokens are written and all others are
//! unchanged. Packed tokens are rounded as the rows of packed weights.

use burn::tensor::{Int, Tensor, TensorData};
use burn_flex::Flex;
use burn_ndarray::NdArray;
use emberlm_kernels::{AttentionMask, AttentionOptions, Backend, PackedFormat, PackedTokens, ops};

use crate::compare::{assert_close, causal, constant, host, numbers};

fn check<B: Backend>([batch, heads, capacity, head_dim]: [usize; 4], start: usize, seq: usize) {
    let (before, new) = (
        numbers(1, [batch, heads, capacity, head_dim]),
        numbers(2, [batch, seq, heads, head_dim]),
    );
    // Stored token by token, as the output of a fused projection.
    let turned = || constant::<B, 4>(&new).swap_dims(1, 2);
    let held = constant::<B, 4>(&before);
    let shared = held.clone();
    let copied = ops::write_tokens(held, turned(), start);
    let in_place = ops::write_tokens(constant(&before), turned(), start);

    let kept = host(constant::<B, 4>(&before));
    assert_eq!(host(shared), kept);
    let written = host(turned());
    let mut expected = kept;
    for head in 0..batch * heads {
        for at in 0..seq * head_dim {
            let to = (head * capacity + start) * head_dim + at;
            expected[to] = written[head * seq * head_dim + at];
        }
    }
    assert_eq!(host(copied), expected);
    assert_eq!(host(in_place), expected);
}

#[test]
fn only_the_new_tokens_are_written() {
    for (sizes, start, seq) in [
        ([1, 1, 1, 1], 0, 1),
        ([2, 3, 7, 5], 0, 7),
        ([2, 3, 7, 5], 6, 1),
        ([1, 4, 9, 8], 3, 4),
    ] {
        check::<Flex>(sizes, start, seq);
        check::<NdArray>(sizes, start, seq);
    }
}

/// The format's rounding of `[rows, head_dim]`, by the packed weights that `packed` tests.
fn rounded(data: &TensorData, format: PackedFormat) -> Vec<f32> {
    let rows = constant::<Flex, 4>(data);
    let [batch, heads, tokens, head_dim] = rows.dims();
    let rows = rows.reshape([batch * heads * tokens, head_dim]);
    host(ops::unpack(ops::pack(rows, format)))
}

fn check_packed<B: Backend>(format: PackedFormat) {
    let (batch, heads, seq, head_dim) = (2, 3, 4, 64);
    let data = numbers(3, [batch, heads, seq, head_dim]);
    let expected = rounded(&data, format);
    let packed = ops::pack_tokens(constant::<B, 4>(&data), format);
    assert_eq!(packed.dims(), [batch, heads, seq, head_dim]);
    let whole = host(ops::unpack_tokens(packed.clone()));
    assert_eq!(whole, expected);

    // Written after one token of a cache for nine, which is shared.
    let empty = ops::empty_tokens::<B>([batch, heads, 9, head_dim], format, &Default::default());
    let held = ops::write_packed_tokens(empty.clone(), packed.clone(), 1);
    let floats = constant::<B, 4>(&data).zeros_like();
    let read = |x: &PackedTokens<B>| host(ops::unpack_tokens(x.clone()));
    assert_eq!(read(&held.clone().narrow(1, seq)), expected);
    assert_eq!(read(&held.clone().narrow(5, 4)), host(floats));
    assert!(read(&empty).iter().all(|&x| x == 0.0));
    let joined = held.clone().narrow(0, 1).followed_by(packed.clone());
    assert_eq!(read(&joined), read(&held.narrow(0, 1 + seq)));

    let rows = Tensor::from_data([1, 0, 1], &Default::default());
    let of = |b: usize| &expected[b * heads * seq * head_dim..][..heads * seq * head_dim];
    assert_eq!(read(&packed.select(&rows)), [of(1), of(0), of(1)].concat());
}

#[test]
fn packed_tokens_are_the_values_of_packed_rows() {
    for format in [PackedFormat::F16, PackedFormat::Q8_0] {
        check_packed::<Flex>(format);
        check_packed::<NdArray>(format);
    }
}

/// Returns the output of attention over the end of a packed cache, with a padding mask.
fn packed_attention<B: Backend>(format: PackedFormat, q_len: usize) -> Vec<f32> {
    let device = Default::default();
    let q = constant::<B, 4>(&numbers(4, [1, q_len, 6, 64])).swap_dims(1, 2);
    let [k, v] = [5, 6].map(|seed| {
        let new = constant::<B, 4>(&numbers(seed, [1, 2, 70, 64]));
        let held = ops::empty_tokens([1, 2, 100, 64], format, &device);
        ops::write_packed_tokens(held, ops::pack_tokens(new, format), 0).narrow(0, 70)
    });
    let keys = Tensor::<B, 1, Int>::arange(0..70, &device).reshape([1, 70]);
    let mask = AttentionMask {
        padding: Some(keys.not_equal_elem(9)),
        ..AttentionMask::default()
    };
    let options = AttentionOptions {
        soft_cap: Some(5.0),
        ..causal(0.3)
    };
    host(ops::attention_packed(q, k, v, mask, options))
}

#[test]
fn packed_attention_equals_reference_implementation() {
    for format in [PackedFormat::F16, PackedFormat::Q8_0] {
        for q_len in [1, 3, 70] {
            let [found, expected] = [
                packed_attention::<Flex>(format, q_len),
                packed_attention::<NdArray>(format, q_len),
            ];
            assert_close("attention", &found, &expected);
        }
    }
}

#[test]
fn only_flex_holds_packed_tokens_in_fewer_bytes() {
    let (format, device) = (PackedFormat::Q8_0, Default::default());
    let bytes = ops::empty_tokens::<Flex>([1, 2, 10, 64], format, &device).bytes();
    // A scale of two bytes for each block of 32 elements.
    assert_eq!(bytes, 2 * 10 * (64 + 2 * 2));
    assert!(Flex::packs_tokens() && !NdArray::<f32>::packs_tokens());
}
