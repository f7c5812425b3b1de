//! Products in bfloat16, compared bit for bit with portable code for the arithmetic of their instructions.

use emberlm_kernels::Precision;
use emberlm_kernels::cpu::bf16::{self, Instructions, Threads};
use emberlm_kernels::cpu::matrix::{Matrix, MatrixMut};
use emberlm_kernels::cpu::product::{Output, product};
use emberlm_system::random::SplitMix64;
use proptest::prelude::*;

use super::{Stored, output};
use crate::numbers::{cases, same_on_any_threads};

/// Replaces subnormal numbers by zero, as the instructions do with operands and results.
fn flushed(x: f32) -> f32 {
    if x.is_subnormal() {
        0.0f32.copysign(x)
    } else {
        x
    }
}

/// Rounds to the nearest bfloat16, ties to even.
fn rounded(x: f32) -> f32 {
    let bits = flushed(x).to_bits();
    f32::from_bits(bits.wrapping_add(0x7fff + (bits >> 16 & 1)) & 0xffff_0000)
}

/// `sum + x y` with a single rounding.
fn multiply_add(sum: f32, [x, y]: [f32; 2]) -> f32 {
    flushed(x.mul_add(y, sum))
}

/// `c + Σ x y` with AMX: each 32 products in a sum of those at even and one of those at odd positions.
fn with_amx(c: f32, factors: &[[f32; 2]]) -> f32 {
    factors.chunks(32).fold(c, |c, factors| {
        let mut sums = [0.0; 2];
        for (k, factors) in factors.iter().enumerate() {
            sums[k % 2] = multiply_add(sums[k % 2], *factors);
        }
        flushed(flushed(c) + flushed(sums[0] + sums[1]))
    })
}

/// `c + Σ x y` with AVX512-BF16, for at most 512 products: pairs, the second of a pair first.
fn with_avx512(c: f32, factors: &[[f32; 2]]) -> f32 {
    assert!(factors.len() <= 512, "there are several sums");
    let sum = factors.chunks(2).fold(0.0, |sum, pair| {
        let second = pair.get(1).copied().unwrap_or_default();
        multiply_add(multiply_add(sum, second), pair[0])
    });
    c + sum
}

/// The product in portable code, in row-major order, added to `before`.
fn emulated(instructions: Instructions, a: &Stored, b: &Stored, before: &[f32]) -> Vec<f32> {
    let ([m, k], n) = (a.sizes, b.sizes[1]);
    let round = |x: &Stored| x.elements().into_iter().map(rounded).collect::<Vec<_>>();
    let (a, b) = (round(a), round(b));
    let mut c = before.to_vec();
    for i in 0..m {
        for j in 0..n {
            let factors: Vec<_> = (0..k).map(|l| [a[i * k + l], b[l * n + j]]).collect();
            let c_ij = &mut c[i * n + j];
            *c_ij = match instructions {
                Instructions::Amx => with_amx(*c_ij, &factors),
                Instructions::Avx512 => with_avx512(*c_ij, &factors),
            };
        }
    }
    c
}

/// Scales the elements by powers of two from `2^-least` to 1, so that sums cancel, and small products are subnormal.
fn spread(x: &mut Stored, least: i32, seed: u64) {
    let mut random = SplitMix64::new(seed);
    for x in &mut x.data {
        *x *= 2f32.powi(-((random.next_u64() >> 33) as i32 % (least + 1)));
    }
}

/// Returns true if the instructions are available; prints that the test is skipped otherwise.
#[allow(clippy::print_stderr)]
fn available(instructions: Instructions) -> bool {
    let available = instructions.available();
    if !available {
        eprintln!("skipped: this CPU or system has no {instructions:?}");
    }
    available
}

fn check(
    instructions: Instructions,
    [m, k, n]: [usize; 3],
    layouts: [u8; 3],
    least: i32,
    output: Output,
    threads: Threads,
) {
    if !available(instructions) {
        return;
    }
    let mut a = Stored::new(layouts[0], [m, k], 1);
    let mut b = Stored::new(layouts[1], [k, n], 2);
    let mut c = Stored::new(layouts[2], [m, n], 3);
    for (x, seed) in [(&mut a, 4), (&mut b, 5), (&mut c, 6)] {
        spread(x, least, seed);
    }
    let before = match output {
        Output::Overwrite => vec![0.0; m * n],
        Output::Accumulate => c.elements(),
    };
    if output == Output::Overwrite {
        c.data.fill(f32::NAN);
    }
    let mut place = MatrixMut::new(&mut c.data, c.sizes, c.strides);
    bf16::product_with(
        instructions,
        &mut place,
        a.view(),
        b.view(),
        output,
        threads,
    );
    let expected = emulated(instructions, &a, &b, &before);
    for (at, (c, expected)) in c.elements().iter().zip(&expected).enumerate() {
        let [i, j] = [at / n, at % n];
        assert!(
            c.to_bits() == expected.to_bits(),
            "{instructions:?} {m}x{k}x{n} {layouts:?} {output:?}: {c:e} at {i}, {j}, not {expected:e}"
        );
    }
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn products_have_the_bits_of_portable_code(
        instructions in prop_oneof![Just(Instructions::Amx), Just(Instructions::Avx512)],
        sizes in [1usize..80, 1usize..200, 1usize..80],
        layouts in [0u8..3, 0u8..3, 0u8..3],
        least in prop_oneof![Just(0), Just(12), Just(100)],
        output in output(),
    ) {
        check(instructions, sizes, layouts, least, output, Threads::This);
    }
}

#[test]
fn amx_has_the_bits_of_portable_code_across_blocks() {
    for (sizes, layouts) in [
        ([300, 70, 290], [0, 0, 0]),
        ([40, 2100, 70], [1, 0, 0]),
        ([33, 4200, 35], [0, 1, 0]),
        ([1100, 33, 300], [1, 1, 0]),
    ] {
        for output in [Output::Overwrite, Output::Accumulate] {
            check(Instructions::Amx, sizes, layouts, 12, output, Threads::All);
        }
    }
}

/// The sums of AMX depend only on k, so a part of a product has the bits of the whole.
#[test]
fn rows_and_columns_of_a_product_have_the_bits_of_the_whole() {
    if !available(Instructions::Amx) {
        return;
    }
    let [m, k, n] = [290, 600, 530];
    let a = Stored::new(0, [m, k], 1);
    let b = Stored::new(0, [k, n], 2);
    let part = |a: Matrix<'_>, b: Matrix<'_>| {
        let mut c = vec![f32::NAN; a.rows * b.columns];
        let place = MatrixMut::row_major(&mut c, a.rows, b.columns);
        product(place, a, b, Output::Overwrite, Precision::Bf16);
        c
    };
    let whole = same_on_any_threads(|| part(a.view(), b.view()));
    let [rows, columns] = [40..85, 100..323];
    let some = part(
        a.view().block(rows.clone(), 0..k),
        b.view().block(0..k, columns.clone()),
    );
    for (i, row) in rows.zip(some.chunks(columns.len())) {
        assert_eq!(row, &whole[i * n..][columns.clone()]);
    }
}

#[test]
fn precision_is_f32_without_fast_instructions() {
    assert_eq!(bf16::usable(Precision::F32), Precision::F32);
    assert_eq!(bf16::usable(Precision::F16), Precision::F32);
    let usable = bf16::usable(Precision::Bf16);
    assert_eq!(usable == Precision::Bf16, bf16::supported());
    if Instructions::Amx.available() {
        assert_eq!(usable, Precision::Bf16);
    }
}
