//! Tests writing tokens to a cache, in place and into a copy: the new tokens are written and all others are
//! unchanged. Packed tokens are rounded as the rows of packed weights. Attention that appends to a cache is that of the whole
//! sequence.

use burn::tensor::{Int, Tensor, TensorData};
use burn_flex::Flex;
use burn_ndarray::NdArray;
use emberlm_kernels::{
    AttentionMask, AttentionOptions, Backend, PackedFormat, PackedTokens, RotaryAngles,
    RotaryLayout, ops, reference,
};

use crate::compare::{self, assert_close, causal, constant, host, numbers, primitive, typed};

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

/// A sequence whose chunks are appended to a cache one after the other, with heads rotated by some pairs of elements, and
/// padding.
pub fn appended<B: Backend>(
    sizes: [usize; 4],
    pairs: usize,
    layout: RotaryLayout,
    chunks: &[usize],
) {
    let [batch, kv_heads, group, head_dim] = sizes;
    let config = compare::fused(kv_heads * group, kv_heads, head_dim);
    let seq = chunks.iter().sum::<usize>();
    let width = (config.heads + 2 * kv_heads) * head_dim;
    let qkv = numbers(1, [batch, seq, width]);
    let [cos, sin] = [2, 3].map(|seed| numbers(seed, [seq, pairs.max(1)]));
    fn mask<C: Backend>(batch: usize, keys: usize) -> AttentionMask<C> {
        let of_keys = Tensor::<C, 1, Int>::arange(0..keys as i64, &Default::default());
        let visible = of_keys.not_equal_elem(1).reshape([1, keys]);
        AttentionMask {
            padding: Some(visible.repeat_dim(0, batch)),
            ..AttentionMask::default()
        }
    }

    let held = |seed| constant::<B, 4>(&numbers(seed, [batch, kv_heads, seq + 3, head_dim]));
    let before = [held(4), held(5)];
    let mut cache = before.clone();
    let mut outputs = Vec::new();
    let mut len = 0;
    for &chunk in chunks {
        let part = constant::<B, 3>(&qkv).narrow(1, len, chunk);
        let angles = (pairs > 0).then(|| ops::Angles {
            layout,
            cos: constant::<B, 2>(&cos).narrow(0, len, chunk),
            sin: constant::<B, 2>(&sin).narrow(0, len, chunk),
        });
        let mask = mask(batch, len + chunk);
        let (output, appended) = ops::cached_attention(part, angles, cache, len, mask, config);
        outputs.push(output);
        cache = appended;
        len += chunk;
    }
    let actual = host(Tensor::cat(outputs, 1));

    let angles = (pairs > 0).then(|| RotaryAngles {
        layout,
        cos: primitive(constant::<Flex, 2>(&cos)),
        sin: primitive(constant::<Flex, 2>(&sin)),
    });
    let whole = primitive(constant::<Flex, 3>(&qkv));
    let expected = reference::self_attention::<Flex>(whole, angles, mask(batch, seq), config);
    assert_close("in chunks", &actual, &host(typed::<Flex, 3>(expected)));
    for (seed, (before, after)) in (4..).zip(before.into_iter().zip(cache)) {
        assert_eq!(host(before), host(held(seed)), "shared with another");
        let rest = |of: Tensor<B, 4>| host(of.narrow(2, seq, 3));
        assert_eq!(rest(after), rest(held(seed)), "after the last token");
    }
}

#[test]
fn appended_chunks_are_the_whole_sequence() {
    use RotaryLayout::{HalfSplit, Interleaved};
    for (sizes, pairs, layout, chunks) in [
        ([2, 2, 2, 24], 12, HalfSplit, &[5, 1, 1, 9][..]),
        ([1, 1, 3, 16], 4, Interleaved, &[1, 70]),
        ([2, 2, 1, 8], 0, HalfSplit, &[3, 1]),
    ] {
        appended::<Flex>(sizes, pairs, layout, chunks);
        appended::<NdArray>(sizes, pairs, layout, chunks);
    }
}
