//! Tests products with a bias and an activation.

use emberlm_kernels::cpu::activation::activation;
use emberlm_kernels::cpu::matrix::{Matrix, MatrixMut};
use emberlm_kernels::cpu::product::{Around, Output, affine, product};
use emberlm_kernels::{Activation, Precision};

use crate::numbers::{numbers, same_on_any_threads};
use crate::product::Stored;

/// Shapes that are computed row by row and on one thread.
#[test]
fn bias_and_activation_equal_separate_passes() {
    check(&[
        ([0, 0], [1, 64, 96]),
        ([0, 0], [20, 33, 50]),
        ([0, 0], [0, 5, 7]),
    ]);
}

/// Shapes that are computed by inner products and in tiles.
#[test]
fn large_products_with_bias_and_activation_equal_separate_passes() {
    check(&[
        ([0, 1], [23, 600, 5011]),
        ([0, 0], [300, 257, 391]),
        ([0, 1], [129, 300, 511]),
    ]);
}

/// Compares products of matrices in some layouts and sizes `[m, k, n]` with separate passes.
fn check(cases: &[([u8; 2], [usize; 3])]) {
    for &(layouts, [m, k, n]) in cases {
        let a = Stored::new(layouts[0], [m, k], 1);
        let b = Stored::new(layouts[1], [k, n], 2);
        let (row, before) = (numbers(3, n), numbers(4, m * n));
        for precision in [Precision::F32, Precision::Bf16] {
            for output in [Output::Overwrite, Output::Accumulate] {
                for bias in [None, Some(&row[..])] {
                    let mut sums = before.clone();
                    let view = MatrixMut::row_major(&mut sums, m, n);
                    product(view, a.view(), b.view(), output, precision);
                    for (i, sum) in sums.iter_mut().enumerate() {
                        *sum += bias.map_or(0.0, |bias| bias[i % n]);
                    }
                    for kind in Activation::ALL.into_iter().map(Some).chain([None]) {
                        let mut expected = sums.clone();
                        if let Some(kind) = kind {
                            activation(kind, &sums, &mut expected);
                        }
                        let around = Around {
                            bias,
                            activation: kind,
                        };
                        let actual = same_on_any_threads(|| {
                            let mut c = match output {
                                Output::Overwrite => vec![f32::NAN; m * n],
                                Output::Accumulate => before.clone(),
                            };
                            affine(&mut c, a.view(), b.view(), output, around, precision);
                            c
                        });
                        assert_eq!(actual, expected, "{kind:?} of {m} x {k} x {n}");
                    }
                }
            }
        }
    }
}

#[test]
#[should_panic(expected = "the bias is not as long as a row")]
fn a_bias_of_another_length_is_rejected() {
    let x = [0.0; 6];
    let around = Around {
        bias: Some(&x[..2]),
        activation: None,
    };
    affine(
        &mut [0.0; 4],
        Matrix::row_major(&x, 2, 3),
        Matrix::row_major(&x, 3, 2).block(0..3, 0..1),
        Output::Overwrite,
        around,
        Precision::F32,
    );
}
