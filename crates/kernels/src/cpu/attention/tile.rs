//! The products within a block of queries, small enough for the caches: a few rows of one operand against vectors of the
//! other, the sums in registers.
//!
//! A product of 64 · 32 · 64 takes 2 µs. That is too short for a general product, which copies its operands into an
//! different order first.

use pulp::{Simd, WithSimd};

/// An operand whose elements are taken one by one: element `(i, l)` is `data[i · row + l · step]`.
#[derive(Clone, Copy)]
pub struct Left<'a> {
    pub data: &'a [f32],
    pub row: usize,
    pub step: usize,
}

/// An operand or result whose rows are taken in vectors: element `(l, j)` is `data[l · row + j]`.
#[derive(Clone, Copy)]
pub struct Right<'a> {
    pub data: &'a [f32],
    pub row: usize,
}

/// `C (+)= A B`, `[rows, depth] · [depth, width]`, where row `i` of `C` begins at `c[i · c_row]`. It is added
/// to `C` where `add`, and `C` is not read otherwise.
///
/// # Panics
/// Panics if an operand leaves its memory, or the width is no multiple of [`LANES`](super::mask::LANES).
#[inline(always)]
pub fn multiply<S: Simd>(
    simd: S,
    [rows, depth, width]: [usize; 3],
    (c, c_row): (&mut [f32], usize),
    a: Left<'_>,
    b: Right<'_>,
    add: bool,
) {
    assert!(rows == 0 || (rows - 1) * c_row + width <= c.len());
    // SAFETY: these rows are in memory that is borrowed exclusively.
    unsafe {
        multiply_at(
            simd,
            [rows, depth, width],
            (c.as_mut_ptr(), c_row),
            a,
            b,
            add,
        )
    };
}

/// [`multiply`] with `C` among elements that others may write meanwhile.
///
/// # Safety
/// `C`'s rows of `width` elements may be written, and where `add` read, and nothing else reaches for them meanwhile.
///
/// # Panics
/// As [`multiply`].
#[inline(always)]
pub unsafe fn multiply_at<S: Simd>(
    simd: S,
    [rows, depth, width]: [usize; 3],
    (c, c_row): (*mut f32, usize),
    a: Left<'_>,
    b: Right<'_>,
    add: bool,
) {
    if rows == 0 || width == 0 {
        return;
    }
    let vectors = width / S::F32_LANES;
    assert!(vectors * S::F32_LANES == width);
    assert!(
        depth == 0
            || ((rows - 1) * a.row + (depth - 1) * a.step < a.data.len()
                && (depth - 1) * b.row + width <= b.data.len())
    );
    // Compiled once rather than into each caller.
    simd.vectorize(Product {
        rows,
        depth,
        vectors,
        c,
        c_row,
        a,
        b,
        add,
    });
}

/// [`multiply`] once its sizes are checked.
struct Product<'a> {
    rows: usize,
    depth: usize,
    vectors: usize,
    c: *mut f32,
    c_row: usize,
    a: Left<'a>,
    b: Right<'a>,
    add: bool,
}

impl WithSimd for Product<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        // As many sums as stay in the registers beside what they are made of.
        let [most_rows, most_vectors] = if S::REGISTER_COUNT >= 32 {
            [8, 3]
        } else {
            [4, 2]
        };
        let mut row = 0;
        while row < self.rows {
            let rows = match self.rows - row {
                8.. if most_rows == 8 => 8,
                4.. => 4,
                rest => rest,
            };
            let mut first = 0;
            while first < self.vectors {
                // Four in two halves: three and one would load more.
                let count = match self.vectors - first {
                    4 => 2,
                    rest => rest.min(most_vectors),
                };
                let at = first * S::F32_LANES;
                // SAFETY: `multiply_at` asserted that all of the elements which these rows and vectors read lie within
                // their memory, and was promised those of `C`.
                unsafe {
                    let operands = Operands {
                        depth: self.depth,
                        a: self.a.data.as_ptr().wrapping_add(row * self.a.row),
                        a_row: self.a.row,
                        a_step: self.a.step,
                        // With a depth of 0 these may lie outside, and are not read.
                        b: self.b.data.as_ptr().wrapping_add(at),
                        b_row: self.b.row,
                        c: self.c.wrapping_add(row * self.c_row + at),
                        c_row: self.c_row,
                        add: self.add,
                    };
                    match rows {
                        8 if S::REGISTER_COUNT >= 32 => operands.wide_tile::<S, 8>(simd, count),
                        4.. => operands.wide_tile::<S, 4>(simd, count),
                        3 => operands.wide_tile::<S, 3>(simd, count),
                        2 => operands.wide_tile::<S, 2>(simd, count),
                        _ => operands.wide_tile::<S, 1>(simd, count),
                    }
                }
                first += count;
            }
            row += rows;
        }
    }
}

#[derive(Clone, Copy)]
struct Operands {
    depth: usize,
    a: *const f32,
    a_row: usize,
    a_step: usize,
    b: *const f32,
    b_row: usize,
    c: *mut f32,
    c_row: usize,
    add: bool,
}

impl Operands {
    /// # Safety
    /// As [`Operands::tile`], for `count` vectors.
    #[inline(always)]
    unsafe fn wide_tile<S: Simd, const M: usize>(self, simd: S, count: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            match count {
                3 => self.tile::<S, M, 3>(simd),
                2 => self.tile::<S, M, 2>(simd),
                _ => self.tile::<S, M, 1>(simd),
            }
        }
    }

    /// `M` rows of `N` vectors.
    ///
    /// # Safety
    /// All the elements that it names may be read, those of `C` written, and nothing else writes them meanwhile.
    #[inline(always)]
    unsafe fn tile<S: Simd, const M: usize, const N: usize>(self, simd: S) {
        // SAFETY: the caller's promise; where `A` has a stride of 1, that is what is said of it.
        unsafe {
            // A known stride leaves no addresses to be computed within the loop.
            if self.a_step == 1 {
                let mut rows = [self.a; M];
                for (m, row) in rows.iter_mut().enumerate() {
                    *row = self.a.wrapping_add(m * self.a_row);
                }
                self.sums::<S, M, N>(simd, |m, l| *rows[m].add(l));
            } else if self.a_row == 1 {
                let step = self.a_step;
                self.sums::<S, M, N>(simd, |m, l| *self.a.add(l * step + m));
            } else {
                let (row, step) = (self.a_row, self.a_step);
                self.sums::<S, M, N>(simd, |m, l| *self.a.add(m * row + l * step));
            }
        }
    }

    /// [`Operands::tile`] with the elements of `A` given by `left`.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    unsafe fn sums<S: Simd, const M: usize, const N: usize>(
        self,
        simd: S,
        left: impl Fn(usize, usize) -> f32,
    ) {
        let mut sums = [[simd.splat_f32s(0.0); N]; M];
        // SAFETY: the caller's promise.
        unsafe {
            if self.add {
                for (m, sums) in sums.iter_mut().enumerate() {
                    for (n, sum) in sums.iter_mut().enumerate() {
                        *sum = load::<S>(self.c.add(m * self.c_row + n * S::F32_LANES));
                    }
                }
            }
            let mut b = self.b;
            for l in 0..self.depth {
                let mut right = [simd.splat_f32s(0.0); N];
                for (n, right) in right.iter_mut().enumerate() {
                    *right = load::<S>(b.add(n * S::F32_LANES));
                }
                for (m, sums) in sums.iter_mut().enumerate() {
                    let left = simd.splat_f32s(left(m, l));
                    for (sum, right) in sums.iter_mut().zip(right) {
                        *sum = simd.mul_add_e_f32s(left, right, *sum);
                    }
                }
                // Past the last row it is not read.
                b = b.wrapping_add(self.b_row);
            }
            for (m, sums) in sums.iter().enumerate() {
                for (n, sum) in sums.iter().enumerate() {
                    let c = self.c.add(m * self.c_row + n * S::F32_LANES);
                    c.cast::<S::f32s>().write_unaligned(*sum);
                }
            }
        }
    }
}

/// # Safety
/// A vector of elements may be read from there.
#[inline(always)]
unsafe fn load<S: Simd>(from: *const f32) -> S::f32s {
    // SAFETY: the caller's promise; every bit pattern is a vector.
    unsafe { from.cast::<S::f32s>().read_unaligned() }
}

/// The vector of `x[at..]`.
///
/// # Panics
/// Panics if it ends outside.
#[inline(always)]
pub fn vector<S: Simd>(x: &[f32], at: usize) -> S::f32s {
    let x = &x[at..at + S::F32_LANES];
    // SAFETY: these are as many elements as a vector has.
    unsafe { load::<S>(x.as_ptr()) }
}

/// Makes `x[at..]` begin with a vector.
///
/// # Panics
/// Panics if it ends outside.
#[inline(always)]
pub fn store<S: Simd>(x: &mut [f32], at: usize, vector: S::f32s) {
    let x = &mut x[at..at + S::F32_LANES];
    // SAFETY: these are as many elements as a vector has.
    unsafe { x.as_mut_ptr().cast::<S::f32s>().write_unaligned(vector) }
}

/// `Σ x y`.
#[inline(always)]
pub fn dot<S: Simd>(simd: S, x: &[f32], y: &[f32]) -> f32 {
    let (x_vectors, x_rest) = S::as_simd_f32s(x);
    let (y_vectors, y_rest) = S::as_simd_f32s(y);
    let mut sums = simd.splat_f32s(0.0);
    for (x, y) in x_vectors.iter().zip(y_vectors) {
        sums = simd.mul_add_e_f32s(*x, *y, sums);
    }
    let mut sum = simd.reduce_sum_f32s(sums);
    for (x, y) in x_rest.iter().zip(y_rest) {
        sum += x * y;
    }
    sum
}
