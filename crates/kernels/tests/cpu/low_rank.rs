//! Tests low-rank updates of rows with different factors.

use std::ops::Range;

use emberlm_kernels::Precision;
use emberlm_kernels::cpu::low_rank::{RowsUpdate, add};
use emberlm_kernels::cpu::matrix::Matrix;
use proptest::prelude::*;

use crate::numbers::{assert_close, cases, numbers, same_on_any_threads};
use crate::product::Stored;

/// The rows of an update, its rank, and the layouts of its factors.
type Factors = (Range<usize>, usize, [u8; 2]);

/// Compares updates of some rows of `[rows, in]` with loops in f64.
fn check([rows, fan_in, out]: [usize; 3], factors: &[Factors]) {
    let (x, y) = (numbers(1, rows * fan_in), numbers(2, rows * out));
    let stored = factors.iter().zip(3..).map(|((_, rank, [a, b]), seed)| {
        [
            Stored::new(*a, [fan_in, *rank], seed),
            Stored::new(*b, [*rank, out], seed + 100),
        ]
    });
    let stored: Vec<_> = stored.collect();
    let updates = factors.iter().zip(&stored);
    let updates = updates.map(|((rows, _, _), [a, b])| RowsUpdate {
        rows: rows.clone(),
        a: a.view(),
        b: b.view(),
    });
    let updates: Vec<_> = updates.collect();
    let mut expected: Vec<f64> = y.iter().map(|&y| f64::from(y)).collect();
    for ((rows, rank, _), factors) in factors.iter().zip(&stored) {
        let [a, b] = factors.each_ref().map(Stored::elements);
        for row in rows.clone() {
            let x = &x[row * fan_in..(row + 1) * fan_in];
            for r in 0..*rank {
                let products = x.iter().enumerate();
                let products = products.map(|(l, &x)| f64::from(x) * f64::from(a[l * rank + r]));
                let down: f64 = products.sum();
                for j in 0..out {
                    expected[row * out + j] += down * f64::from(b[r * out + j]);
                }
            }
        }
    }
    let found = same_on_any_threads(|| {
        let mut y = y.clone();
        let x = Matrix::row_major(&x, rows, fan_in);
        add(&mut y, x, &updates, Precision::F32);
        y
    });
    assert_close("updates", &found, &expected, 1e-5);
}

proptest! {
    #![proptest_config(cases(60))]

    #[test]
    fn updates_equal_loops(
        sizes in [1_usize..40, 1..60],
        groups in prop::collection::vec((0_usize..3, 0_usize..4, 1_usize..20, [0_u8..2, 0..2]), 0..6),
    ) {
        let mut end = 0;
        let factors: Vec<Factors> = groups
            .into_iter()
            .map(|(gap, rows, rank, layouts)| {
                let first = end + gap;
                end = first + rows;
                (first..end, rank, layouts)
            })
            .collect();
        check([end + 1, sizes[0], sizes[1]], &factors);
    }
}

#[test]
fn large_updates_equal_loops() {
    // Decoding with several adapters, and a long prompt with one of them.
    let prompt = (4..52, 8, [0, 0]);
    let decoding = (0..4).map(|row| (row..row + 1, 16, [(row % 2) as u8, 0]));
    let factors: Vec<Factors> = decoding.chain([prompt]).collect();
    check([60, 576, 960], &factors);
}

#[test]
#[should_panic(expected = "not in ascending order")]
fn overlapping_rows_are_rejected() {
    check([4, 3, 2], &[(0..2, 1, [0, 0]), (1..3, 1, [0, 0])]);
}
