mod bfloat16;
mod packed;

use emberlm_kernels::Precision;
use emberlm_kernels::cpu::bf16::{self, Threads};
use emberlm_kernels::cpu::inner_products;
use emberlm_kernels::cpu::matrix::{Matrix, MatrixMut};
use emberlm_kernels::cpu::matvec;
use emberlm_kernels::cpu::product::{Output, product, product_here};
use proptest::prelude::*;

use crate::numbers::{assert_close, cases, numbers, same_on_any_threads};

/// A matrix in memory, with its elements and the strides of its rows and columns.
pub struct Stored {
    pub data: Vec<f32>,
    pub sizes: [usize; 2],
    pub strides: [usize; 2],
}

impl Stored {
    /// Creates a matrix in row-major order (0), column-major order (1), or with gaps between rows and columns
    /// (2).
    pub fn new(layout: u8, [rows, columns]: [usize; 2], seed: u64) -> Self {
        let strides = match layout {
            0 => [columns, 1],
            1 => [1, rows],
            _ => [2 * columns + 3, 2],
        };
        Self {
            data: numbers(seed, rows * strides[0] + columns * strides[1]),
            sizes: [rows, columns],
            strides,
        }
    }

    pub fn view(&self) -> Matrix<'_> {
        Matrix::new(&self.data, self.sizes, self.strides)
    }

    /// The elements in row-major order.
    pub fn elements(&self) -> Vec<f32> {
        let [rows, columns] = self.sizes;
        let at = |i, j| self.data[i * self.strides[0] + j * self.strides[1]];
        (0..rows)
            .flat_map(|i| (0..columns).map(move |j| at(i, j)))
            .collect()
    }
}

/// Rounds an operand as a product of that precision does: to the nearest bfloat16, ties to even.
fn seen(x: f32, precision: Precision) -> f64 {
    if precision == Precision::F32 || !bf16::supported() {
        return f64::from(x);
    }
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) & 0xffff_0000;
    f64::from(f32::from_bits(rounded))
}

fn expected(a: &Stored, b: &Stored, precision: Precision) -> Vec<f64> {
    let ([m, k], n) = (a.sizes, b.sizes[1]);
    let see = |x: &Stored| -> Vec<f64> {
        let elements = x.elements();
        elements.iter().map(|x| seen(*x, precision)).collect()
    };
    let (a, b) = (see(a), see(b));
    let mut c = vec![0.0; m * n];
    for i in 0..m {
        for l in 0..k {
            for j in 0..n {
                c[i * n + j] += a[i * k + l] * b[l * n + j];
            }
        }
    }
    c
}

fn check(
    [m, k, n]: [usize; 3],
    layouts: [u8; 3],
    output: Output,
    precision: Precision,
    here: bool,
) {
    let a = Stored::new(layouts[0], [m, k], 1);
    let b = Stored::new(layouts[1], [k, n], 2);
    let mut c = Stored::new(layouts[2], [m, n], 3);
    let before = c.elements();
    if output == Output::Overwrite {
        c.data.fill(f32::NAN);
    }
    let place = MatrixMut::new(&mut c.data, c.sizes, c.strides);
    let make = if here { product_here } else { product };
    make(place, a.view(), b.view(), output, precision);
    let precision = if here || !reads_stored_layout(&mut c, &a, &b, precision) {
        precision
    } else {
        Precision::F32
    };
    let mut expected = expected(&a, &b, precision);
    if output == Output::Accumulate {
        for (c, before) in expected.iter_mut().zip(before) {
            *c += f64::from(before);
        }
    }
    let what = format!("{m}x{k}x{n} {layouts:?} {output:?} {precision:?} here {here}");
    assert_close(&what, &c.elements(), &expected, 1e-6);
}

/// The product in row-major order, in memory that was not a number before.
fn made(a: &Stored, b: &Stored, precision: Precision) -> Vec<f32> {
    let ([m, _], [_, n]) = (a.sizes, b.sizes);
    let mut c = vec![f32::NAN; m * n];
    let place = MatrixMut::row_major(&mut c, m, n);
    product(place, a.view(), b.view(), Output::Overwrite, precision);
    c
}

/// Returns true if `product` reads an operand in its stored layout, and therefore uses f32 at any precision.
fn reads_stored_layout(c: &mut Stored, a: &Stored, b: &Stored, precision: Precision) -> bool {
    let ([m, n], [down, across]) = (c.sizes, c.strides);
    let (c, a, b) = if across <= down {
        let c = MatrixMut::new(&mut c.data, [m, n], [down, across]);
        (c, a.view(), b.view())
    } else {
        let c = MatrixMut::new(&mut c.data, [n, m], [across, down]);
        (c, b.view().transposed(), a.view().transposed())
    };
    matvec::fits(&c, a, b) || inner_products::fits(a, b, precision)
}

fn output() -> impl Strategy<Value = Output> {
    prop_oneof![Just(Output::Overwrite), Just(Output::Accumulate)]
}

fn precision() -> impl Strategy<Value = Precision> {
    prop_oneof![Just(Precision::F32), Just(Precision::Bf16)]
}

proptest! {
    #![proptest_config(cases(400))]

    #[test]
    fn small_products_match_loops(
        sizes in [1usize..71, 1usize..71, 1usize..71],
        layouts in [0u8..3, 0u8..3, 0u8..3],
        output in output(),
        precision in precision(),
        here: bool,
    ) {
        check(sizes, layouts, output, precision, here);
    }
}

proptest! {
    #![proptest_config(cases(100))]

    #[test]
    fn f32_products_packed_once_match_loops(
        [m, k, n] in [1usize..200, 1usize..600, 1usize..100],
        layouts in [0u8..3, 0u8..3],
        output in output(),
    ) {
        let (a, b) = (Stored::new(layouts[0], [m, k], 1), Stored::new(layouts[1], [k, n], 2));
        let mut c = vec![if output == Output::Accumulate { 3.0 } else { f32::NAN }; m * n];
        let mut place = MatrixMut::row_major(&mut c, m, n);
        let precision = Precision::F32;
        if bf16::product(&mut place, a.view(), b.view(), output, precision, Threads::All) {
            let mut wanted = expected(&a, &b, precision);
            if output == Output::Accumulate {
                wanted.iter_mut().for_each(|c| *c += 3.0);
            }
            assert_close("packed once", &c, &wanted, 1e-6);
        }
    }
}

proptest! {
    #![proptest_config(cases(12))]

    #[test]
    fn large_products_match_loops(
        sizes in [1usize..400, 1usize..700, 1usize..500],
        layouts in [0u8..3, 0u8..3, 0u8..3],
        output in output(),
        precision in precision(),
    ) {
        check(sizes, layouts, output, precision, false);
    }
}

#[test]
fn long_products_match_loops() {
    for precision in [Precision::F32, Precision::Bf16] {
        check(
            [7, 4567, 5],
            [0, 1, 0],
            Output::Accumulate,
            precision,
            false,
        );
        for (sizes, layouts) in [
            ([3, 5, 70_001], [0, 0, 0]),
            ([70_001, 5, 3], [1, 0, 0]),
            ([1100, 1050, 37], [1, 0, 0]),
        ] {
            check(sizes, layouts, Output::Overwrite, precision, false);
        }
    }
}

#[test]
fn a_product_with_zero_depth_is_zero() {
    for precision in [Precision::F32, Precision::Bf16] {
        let mut c = [f32::NAN; 6];
        let [a, b] = [Matrix::row_major(&[], 2, 0), Matrix::row_major(&[], 0, 3)];
        let place = MatrixMut::row_major(&mut c, 2, 3);
        product(place, a, b, Output::Overwrite, precision);
        assert_eq!(c, [0.0; 6]);
        let place = MatrixMut::row_major(&mut c, 2, 3);
        product(place, a, b, Output::Accumulate, precision);
        assert_eq!(c, [0.0; 6]);
        product(
            MatrixMut::row_major(&mut [], 0, 3),
            a.block(0..0, 0..0),
            b,
            Output::Overwrite,
            precision,
        );
    }
}

#[test]
fn non_finite_elements_propagate() {
    let [m, k, n] = [40, 65, 50];
    for precision in [Precision::F32, Precision::Bf16] {
        for layout in [0, 1] {
            let mut a = Stored::new(layout, [m, k], 1);
            let b = Stored::new(layout, [k, n], 2);
            let strides = a.strides;
            let mut set = |i, j, x| a.data[i * strides[0] + j * strides[1]] = x;
            set(3, 64, f32::NAN);
            // Truncation instead of rounding would make it infinite.
            set(5, 7, f32::from_bits(0x7f80_0001));
            set(7, 30, f32::INFINITY);
            for (i, row) in made(&a, &b, precision).chunks(n).enumerate() {
                match i {
                    3 | 5 => assert!(row.iter().all(|x| x.is_nan())),
                    7 => assert!(row.iter().all(|x| x.is_infinite())),
                    _ => assert!(row.iter().all(|x| x.is_finite())),
                }
            }
        }
    }
}

#[test]
fn products_are_bit_identical_on_any_threads() {
    for precision in [Precision::F32, Precision::Bf16] {
        let cases = [
            ([0, 0], [300, 1031, 257]),
            ([1, 1], [129, 600, 511]),
            ([0, 1], [23, 600, 5011]),
        ];
        for (layouts, [m, k, n]) in cases {
            let a = Stored::new(layouts[0], [m, k], 1);
            let b = Stored::new(layouts[1], [k, n], 2);
            same_on_any_threads(|| made(&a, &b, precision));
        }
    }
}

#[test]
#[should_panic(expected = "the sizes do not fit")]
fn mismatched_sizes_are_rejected() {
    let x = [0.0; 6];
    product(
        MatrixMut::row_major(&mut [0.0; 4], 2, 2),
        Matrix::row_major(&x, 2, 3),
        Matrix::row_major(&x, 2, 3),
        Output::Overwrite,
        Precision::F32,
    );
}

proptest! {
    #![proptest_config(cases(60))]

    #[test]
    fn products_of_few_rows_match_loops(
        sizes in [1usize..9, 1usize..400, 1usize..2500],
        layouts in [0u8..1, 0u8..2, 0u8..1],
        output in output(),
    ) {
        check(sizes, layouts, output, Precision::F32, false);
    }

    #[test]
    fn products_of_several_rows_with_a_transpose_match_loops(
        sizes in [1usize..110, 1usize..1400, 1usize..300],
        layout in 0u8..3,
        output in output(),
        precision in precision(),
    ) {
        check(sizes, [0, 1, layout], output, precision, false);
    }
}

#[test]
fn products_of_one_row_support_wide_and_deep_weights() {
    for layout in [0, 1] {
        for [k, n] in [[7, 9001], [231, 4097], [3001, 17]] {
            for output in [Output::Overwrite, Output::Accumulate] {
                check([1, k, n], [0, layout, 0], output, Precision::F32, false);
            }
        }
    }
}

#[test]
fn products_of_few_rows_are_bit_identical_on_any_threads() {
    for (layout, [m, k, n]) in [
        (0, [1, 1100, 2100]),
        (1, [1, 1100, 2100]),
        (0, [1, 300, 9001]),
        (0, [3, 1100, 2100]),
        (1, [3, 1100, 2100]),
        (0, [8, 3001, 70]),
    ] {
        let x = Stored::new(0, [m, k], 1);
        let w = Stored::new(layout, [k, n], 2);
        same_on_any_threads(|| made(&x, &w, Precision::F32));
    }
}
