//! The matrix products within a block of queries, small enough for the caches: a few rows of one operand times
//! vectors of the other, with the sums in registers.
//!
//! A product of 64 · 32 · 64 takes 2 µs. That is too short for a general product, which packs its operands first.

use pulp::{Simd, WithSimd};

/// An operand that is read element by element: element `(i, l)` is `data[i · row + l · step]`.
#[derive(Clone, Copy)]
pub struct Left<'a> {
    pub data: &'a [f32],
    pub row: usize,
    pub step: usize,
}

/// An operand or result whose rows are accessed as vectors: element `(l, j)` is `data[l · row + j]`.
#[derive(Clone, Copy)]
pub struct Right<'a> {
    pub data: &'a [f32],
    pub row: usize,
}

/// `C (+)= A B`, `[rows, depth] · [depth, width]`, where row `i` of `C` begins at `c[i · c_row]`. If `add` is
/// true, the product is added to `C`; otherwise `C` is not read.
///
/// # Panics
/// Panics if an operand exceeds its memory, or the width is not a multiple of [`LANES`](super::mask::LANES).
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
    // SAFETY: the rows are in memory that is borrowed exclusively.
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

/// [`multiply`] for a `C` between whose rows others may write concurrently.
///
/// # Safety
/// The rows of `C`, `width` elements each, are writable and, if `add` is true, readable. Nothing else accesses
/// them during the call.
///
/// # Panics
/// See [`multiply`].
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
    // Compiled once rather than inlined into each caller.
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

/// [`multiply`] with checked sizes.
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
        // As many sums as fit in the registers together with the operands.
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
                // Four vectors are processed as two and two: three and one would load more.
                let count = match self.vectors - first {
                    4 => 2,
                    rest => rest.min(most_vectors),
                };
                let at = first * S::F32_LANES;
                // SAFETY: `multiply_at` has asserted that all elements that these rows and vectors read are
                // within their memory, and its caller guarantees access to those of `C`.
                unsafe {
                    let operands = Operands {
                        depth: self.depth,
                        a: self.a.data.as_ptr().wrapping_add(row * self.a.row),
                        a_row: self.a.row,
                        a_step: self.a.step,
                        // With a depth of 0 these may be out of bounds, but are not read.
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
    /// See [`Operands::tile`], for `count` vectors.
    #[inline(always)]
    unsafe fn wide_tile<S: Simd, const M: usize>(self, simd: S, count: usize) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            match count {
                3 => self.tile::<S, M, 3>(simd),
                2 => self.tile::<S, M, 2>(simd),
                _ => self.tile::<S, M, 1>(simd),
            }
        }
    }

    /// Multiplies `M` rows by `N` vectors.
    ///
    /// # Safety
    /// All elements of the operands are readable and those of `C` writable, and nothing else writes them during
    /// the call.
    #[inline(always)]
    unsafe fn tile<S: Simd, const M: usize, const N: usize>(self, simd: S) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            // A stride known at compile time avoids address computations in the loop.
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
    /// See [`Operands::tile`].
    #[inline(always)]
    unsafe fn sums<S: Simd, const M: usize, const N: usize>(
        self,
        simd: S,
        left: impl Fn(usize, usize) -> f32,
    ) {
        let mut sums = [[simd.splat_f32s(0.0); N]; M];
        // SAFETY: guaranteed by the caller.
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
                // After the last row, the address is not read.
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
/// A vector of elements is readable at the address.
#[inline(always)]
unsafe fn load<S: Simd>(from: *const f32) -> S::f32s {
    // SAFETY: guaranteed by the caller; every bit pattern is a valid vector.
    unsafe { from.cast::<S::f32s>().read_unaligned() }
}

/// Loads a vector from `x[at..]`.
///
/// # Panics
/// Panics if the vector is out of bounds.
#[inline(always)]
pub fn vector<S: Simd>(x: &[f32], at: usize) -> S::f32s {
    let x = &x[at..at + S::F32_LANES];
    // SAFETY: the slice has the length of a vector.
    unsafe { load::<S>(x.as_ptr()) }
}

/// Stores a vector to `x[at..]`.
///
/// # Panics
/// Panics if the vector is out of bounds.
#[inline(always)]
pub fn store<S: Simd>(x: &mut [f32], at: usize, vector: S::f32s) {
    let x = &mut x[at..at + S::F32_LANES];
    // SAFETY: the slice has the length of a vector.
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
