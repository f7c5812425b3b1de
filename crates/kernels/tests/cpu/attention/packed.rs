//! Attention over packed keys and values equals, to the bit, that over the values which the rows of a packed matrix unpack
//! to. Those are compared with ggml's in `blocks`.

use emberlm_kernels::PackedFormat;
use emberlm_kernels::cpu::attention::{HeadStrides, PackedHeads, pack_heads, unpack_heads};
use emberlm_kernels::cpu::matrix::Matrix;
use emberlm_kernels::cpu::packed;
use proptest::prelude::*;

use super::case::{Case, any_case};
use crate::numbers::{cases, numbers};

/// Tokens before and after those that attention reads, as in a cache with room for more.
const UNREAD: usize = 3;

/// The bytes of a cache, which holds the vectors after [`UNREAD`] tokens and before as many.
fn cached(case: &Case, format: PackedFormat, vectors: &[f32]) -> Vec<u8> {
    let [batch, heads, tokens, head_dim] = case.shape.k_dims();
    let row = format.row_bytes(head_dim);
    let mut packed = vec![0; batch * heads * tokens * row];
    pack_heads(format, case.keys_view(vectors), &mut packed);
    let mut bytes = Vec::new();
    for head in packed.chunks_exact(tokens * row) {
        bytes.extend([0xff].repeat(UNREAD * row));
        bytes.extend(head);
        bytes.extend([0xff].repeat(UNREAD * row));
    }
    bytes
}

fn view<'a>(case: &Case, format: PackedFormat, bytes: &'a [u8]) -> PackedHeads<'a> {
    let [batch, heads, tokens, head_dim] = case.shape.k_dims();
    let row = format.row_bytes(head_dim);
    let strides = HeadStrides::contiguous([batch, heads, tokens + 2 * UNREAD, row]);
    PackedHeads::new(format, &bytes[UNREAD * row..], strides, case.shape.k_dims())
}

fn rounded(case: &Case, format: PackedFormat, vectors: &[f32]) -> Vec<f32> {
    let head_dim = case.shape.head_dim;
    let rows = Matrix::row_major(vectors, vectors.len() / head_dim, head_dim);
    let mut out = vec![0.0; vectors.len()];
    packed::unpack(packed::pack(format, rows).view(), &mut out);
    out
}

fn check(case: &Case, format: PackedFormat) {
    let q = case.queries(1);
    let [k, v] = [2, 3].map(|seed| case.keys(seed));
    let [k_bytes, v_bytes] = [&k, &v].map(|x| cached(case, format, x));
    let [packed_k, packed_v] = [&k_bytes, &v_bytes].map(|bytes| view(case, format, bytes));
    let found = case.forward_over(&q, packed_k, packed_v);
    let [k, v] = [&k, &v].map(|x| rounded(case, format, x));
    let mut unpacked = vec![0.0; k.len()];
    unpack_heads(packed_k, &mut unpacked);
    assert_eq!(unpacked, k);
    let expected = case.forward(&q, &k, &v);
    let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(&found.0), bits(&expected.0), "{format:?} {case:?}");
    assert_eq!(bits(&found.1), bits(&expected.1), "{format:?} {case:?}");
}

proptest! {
    #![proptest_config(cases(60))]

    #[test]
    fn f16_equals_unpacked_values(case in any_case(300, false)) {
        check(&case, PackedFormat::F16);
    }

    #[test]
    fn q8_equals_unpacked_values(case in any_case(300, false)) {
        let mut case = case;
        case.shape.head_dim = [32, 64, 96, 128][case.shape.head_dim % 4];
        check(&case, PackedFormat::Q8_0);
    }
}

/// More keys than a task of decoding has, and a format that is unpacked row by row.
#[test]
fn long_contexts_equal_unpacked_values() {
    for (q_len, k_len) in [(1, 1500), (2, 700), (90, 1100)] {
        let mut case = super::case::plain(1, 6, 2, k_len, 64);
        case.shape.q_len = q_len;
        for format in [PackedFormat::F16, PackedFormat::Q8_0, PackedFormat::Q4_0] {
            check(&case, format);
        }
    }
}

/// The reference quantizer rounds each element to the nearest of 255 multiples of the block's scale.
#[test]
fn q8_rounds_by_at_most_half_a_scale() {
    let x = numbers(7, 64);
    let case = super::case::plain(1, 1, 1, 1, 64);
    let rounded = rounded(&case, PackedFormat::Q8_0, &x);
    for (x, rounded) in x.chunks(32).zip(rounded.chunks(32)) {
        let largest = x.iter().fold(0.0f32, |largest, x| largest.max(x.abs()));
        // Half a scale, and the rounding of the scale to f16.
        let most = largest / 127.0 * 0.5 + largest / 2048.0;
        assert!(x.iter().zip(rounded).all(|(x, y)| (x - y).abs() <= most));
    }
}
