//! Products with packed weights.

use emberlm_kernels::cpu::bf16;
use emberlm_kernels::cpu::matrix::{Matrix, MatrixMut};
use emberlm_kernels::cpu::packed::{self, PackedMatrix};
use emberlm_kernels::cpu::product::Output;
use emberlm_kernels::{PackedFormat, Precision};
use proptest::prelude::*;

use super::{Stored, expected, output};
use crate::numbers::{assert_close, cases, same_on_any_threads};

proptest! {
    #![proptest_config(cases(60))]

    #[test]
    fn int8_products_match_the_unpacked_weights(
        [m, n, k] in [1usize..40, 1usize..150, 1usize..300],
        layout in 0u8..3,
        output in output(),
    ) {
        let w = Stored::new(layout, [n, k], 1);
        let x = Stored::new(0, [m, k], 2);
        let q = packed::pack(PackedFormat::Int8, w.view());
        assert_half_a_scale(&q, &w.elements());
        let rounded = unpacked(&q);
        let mut wanted = expected(&x, &rounded, Precision::F32);
        let actual = same_on_any_threads(|| {
            let mut y = vec![if output == Output::Accumulate { 3.0 } else { f32::NAN }; m * n];
            let place = MatrixMut::row_major(&mut y, m, n);
            packed::product(place, x.view(), q.view(), output, Precision::F32);
            y
        });
        if output == Output::Accumulate {
            wanted.iter_mut().for_each(|y| *y += 3.0);
        }
        assert_close("int8", &actual, &wanted, 1e-6);
    }
}

/// The transpose of a weight in f32.
fn unpacked(q: &PackedMatrix) -> Stored {
    let [n, k] = q.shape();
    let mut data = vec![f32::NAN; n * k];
    packed::unpack(q.view(), &mut data);
    Stored {
        data,
        sizes: [k, n],
        strides: [1, k],
    }
}

/// Rounds each 32 elements to 8 bits, as products with blocks of integers do.
fn rounded_to_8_bits(x: &Stored) -> Stored {
    let mut data = x.data.clone();
    for block in data.chunks_mut(32) {
        let largest = block.iter().fold(0.0f32, |largest, x| largest.max(x.abs()));
        let scale = largest / 127.0;
        for x in block {
            *x = (*x * (127.0 / largest)).round_ties_even() * scale;
        }
    }
    Stored { data, ..*x }
}

#[test]
fn products_with_blocks_match_the_unpacked_weights() {
    // One row, an odd number of rows, and more rows than integers are for; rows of an odd number of steps.
    for (m, n, k) in [(1, 70, 768), (3, 33, 256), (4, 5, 1024), (6, 100, 512)] {
        for format in PackedFormat::ALL {
            let is_short = k % 512 == 0 && format.block_len() == 32;
            let k = if is_short { k + 32 } else { k };
            let w = Stored::new(0, [n, k], 1);
            let x = Stored::new(0, [m, k], 2);
            let q = packed::pack(format, w.view());
            let unpacked = unpacked(&q);
            let wanted = match format.block_len() > 1 {
                true => expected(&rounded_to_8_bits(&x), &unpacked, Precision::F32),
                false => expected(&x, &unpacked, Precision::F32),
            };
            for output in [Output::Overwrite, Output::Accumulate] {
                let start = match output {
                    Output::Overwrite => f32::NAN,
                    Output::Accumulate => 3.0,
                };
                let actual = same_on_any_threads(|| {
                    let mut y = vec![start; m * n];
                    let place = MatrixMut::row_major(&mut y, m, n);
                    packed::product(place, x.view(), q.view(), output, Precision::F32);
                    y
                });
                let added = if start.is_nan() {
                    0.0
                } else {
                    f64::from(start)
                };
                let wanted: Vec<_> = wanted.iter().map(|y| y + added).collect();
                assert_close(format.name(), &actual, &wanted, 2e-6);
            }
        }
    }
}

/// A step of packing has 16 rows of W and 16 or 32 k: sizes around them have partial vectors.
#[test]
fn products_with_16_bits_round_their_factors_to_the_precision() {
    for (m, n, k) in [(2, 40, 70), (3, 33, 31), (17, 70, 129), (40, 5, 600)] {
        for format in [PackedFormat::F16, PackedFormat::Bf16] {
            let w = Stored::new(0, [n, k], 1);
            let x = Stored::new(0, [m, k], 2);
            let q = packed::pack(format, w.view());
            let unpacked = unpacked(&q);
            for precision in [Precision::F32, Precision::Bf16] {
                // Two rows are limited by reading W.
                let used = if m > 2 { precision } else { Precision::F32 };
                let wanted = expected(&x, &unpacked, bf16::usable(used));
                let actual = same_on_any_threads(|| {
                    let mut y = vec![f32::NAN; m * n];
                    let place = MatrixMut::row_major(&mut y, m, n);
                    packed::product(place, x.view(), q.view(), Output::Overwrite, precision);
                    y
                });
                assert_close(format.name(), &actual, &wanted, 2e-6);
            }
        }
    }
}

#[test]
fn products_with_blocks_keep_what_is_not_finite() {
    let k = 256;
    let w = Stored::new(0, [3, k], 1);
    for format in PackedFormat::ALL {
        let q = packed::pack(format, w.view());
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut x = Stored::new(0, [2, k], 2);
            x.data[k + 40] = bad;
            let mut y = vec![0.0; 6];
            let place = MatrixMut::row_major(&mut y, 2, 3);
            packed::product(place, x.view(), q.view(), Output::Overwrite, Precision::F32);
            let (good, bad) = y.split_at(3);
            assert!(good.iter().all(|y| y.is_finite()), "{}", format.name());
            assert!(bad.iter().all(|y| !y.is_finite()), "{}", format.name());
        }
    }
}

fn assert_half_a_scale(q: &PackedMatrix, w: &[f32]) {
    for (row, w) in w.chunks(q.shape()[1]).enumerate() {
        let (scale, values) = packed::split_int8(q.view().row(row));
        for (q, w) in values.iter().zip(w) {
            assert!((f32::from(q.cast_signed()) * scale - w).abs() <= scale * 0.5001);
        }
    }
}

#[test]
fn zero_weights_stay_zero_in_int8() {
    let w = Matrix::row_major(&[0.0; 6], 2, 3);
    let q = packed::pack(PackedFormat::Int8, w);
    assert_eq!(q.bytes(), [0; 2 * (4 + 3)]);
}
