//! GPTQ (Frantar et al. 2023): levels of quantized weights that are chosen column by column.
//!
//! With the inputs X `[tokens, in]` of a layer, the error of its outputs is `tr((W - Q) H (W - Q)ᵀ)` with
//! `H = Xᵀ X`, up to a constant factor. Each column is rounded to the nearest level, and the later columns are changed
//! to make up for its error as well as they can:
//!
//! ```text
//! H + λ I = R Rᵀ,  U = R⁻¹      upper triangular; Uᵀ U is the inverse
//! e_j = (w_j - q_j) / U_jj
//! w_k ← w_k - e_j U_jk          for k > j
//! ```
//!
//! λ is 1% of the mean of H's diagonal. The columns are in their natural order, and the scales and minimums of all blocks
//! are those of the packed matrix. An input that is always 0 has no influence: its column is rounded to nearest.

use std::ops::{Mul, Range, SubAssign};
use std::sync::{Mutex, PoisonError};

use super::matrix::Matrix;
use super::packed::PackedMatrix;
use super::packed_levels::{RowLevels, choose_levels};
use super::parallel;

/// λ, relative to the mean of the diagonal.
const DAMPING: f64 = 0.01;
/// Columns that are rounded before the later ones are changed.
const COLUMNS: usize = 128;
/// Rows per task.
const ROWS: usize = 16;

/// The factor U of a layer.
#[derive(Clone, Debug)]
pub struct Gptq {
    /// Row-major `[columns, columns]`.
    u: Vec<f32>,
    columns: usize,
}

impl Gptq {
    /// Factorizes a symmetric matrix of products of inputs `[in, in]`. `None` if it is not positive semidefinite or has
    /// non-finite elements, or every input is 0.
    pub fn new(products: &[f32]) -> Option<Self> {
        let columns = products.len().isqrt();
        let mut h: Vec<f64> = products.iter().map(|&product| product.into()).collect();
        let diagonal = || products.iter().step_by(columns + 1);
        let seen = diagonal().filter(|&&product| product != 0.0).count();
        let mean = diagonal().map(|&product| f64::from(product)).sum::<f64>() / seen as f64;
        if columns * columns != h.len() || !(mean > 0.0 && mean.is_finite()) {
            return None;
        }
        for j in 0..columns {
            let diagonal = &mut h[j * columns + j];
            // The row and column of an input that is always 0 are 0, so any diagonal separates it from the others.
            *diagonal = if *diagonal == 0.0 { mean } else { *diagonal } + DAMPING * mean;
        }
        factorize(&mut h, columns)?;
        Some(Self {
            u: inverse(&h, columns),
            columns,
        })
    }

    /// Chooses the levels of `packed`, of the weights `w` `[out, in]`. Rows with non-finite weights and formats without
    /// levels stay as they are.
    ///
    /// # Panics
    /// Panics if the shapes differ, or rows are not contiguous.
    pub fn choose(&self, w: Matrix<'_>, packed: &mut PackedMatrix) {
        let columns = self.columns;
        assert!(
            packed.shape() == [w.rows, w.columns] && w.columns == columns,
            "the sizes do not fit"
        );
        choose_levels(packed, ROWS, |range, levels| {
            let mut rows: Vec<(Vec<f32>, &mut RowLevels)> = range
                .map(|row| w.row(row).to_vec())
                .zip(levels)
                .filter(|(row, _)| row.iter().all(|w| w.is_finite()))
                .collect();
            for block in parallel::ranges(columns, COLUMNS) {
                let errors: Vec<[f32; COLUMNS]> = rows
                    .iter_mut()
                    .map(|(row, levels)| self.round(block.clone(), row, levels))
                    .collect();
                // A row of U is read once for all rows of W.
                for (at, j) in block.clone().enumerate() {
                    let u = &self.u[j * columns + block.end..(j + 1) * columns];
                    for ((row, _), errors) in rows.iter_mut().zip(&errors) {
                        subtract(&mut row[block.end..], errors[at], u);
                    }
                }
            }
        });
    }

    /// Rounds a block of columns of a row, and changes the later ones of the block. Returns the errors.
    fn round(
        &self,
        block: Range<usize>,
        row: &mut [f32],
        levels: &mut RowLevels,
    ) -> [f32; COLUMNS] {
        let mut errors = [0.0; COLUMNS];
        for (error, j) in errors.iter_mut().zip(block.clone()) {
            let u = &self.u[j * self.columns..(j + 1) * self.columns];
            let difference = row[j] - levels.round(j, row[j]);
            // A scale may exceed f16.
            if difference.is_finite() {
                *error = difference / u[j];
                subtract(&mut row[j + 1..block.end], *error, &u[j + 1..block.end]);
            }
        }
        errors
    }
}

/// `y -= a x`.
fn subtract<T: Copy + Mul<Output = T> + SubAssign>(y: &mut [T], a: T, x: &[T]) {
    for (y, &x) in y.iter_mut().zip(x) {
        *y -= a * x;
    }
}

/// Factorizes `H = R Rᵀ` with an upper triangular R, from the last column to the first. Column k of R replaces the lower
/// part of row k of H. `None` if a pivot is not positive.
fn factorize(h: &mut [f64], n: usize) -> Option<()> {
    for k in (0..n).rev() {
        let (above, rest) = h.split_at_mut(k * n);
        let column = &mut rest[..=k];
        let pivot = column[k].sqrt();
        if !(pivot > 0.0 && pivot.is_finite()) {
            return None;
        }
        column.iter_mut().for_each(|value| *value /= pivot);
        column[k] = pivot;
        for (i, row) in above.chunks_exact_mut(n).enumerate() {
            subtract(&mut row[..=i], column[i], &column[..=i]);
        }
    }
    Some(())
}

/// The inverse of R, whose columns are the lower parts of the rows of `h`. The lower part of the result is 0.
fn inverse(h: &[f64], n: usize) -> Vec<f32> {
    let mut r = vec![0.0; n * n];
    for (k, column) in h.chunks_exact(n.max(1)).enumerate() {
        for (l, &value) in column[..=k].iter().enumerate() {
            r[l * n + k] = value;
        }
    }
    let mut u = vec![0.0; n * n];
    let rows: Vec<Mutex<&mut [f32]>> = u.chunks_mut(n.max(1)).map(Mutex::new).collect();
    parallel::for_each(n, |i| {
        let mut out = rows[i].lock().unwrap_or_else(PoisonError::into_inner);
        // Row i of U R = I, solved from the left.
        let mut rest = vec![0.0; n];
        rest[i] = 1.0;
        for l in i..n {
            let value = rest[l] / r[l * n + l];
            out[l] = value as f32;
            subtract(&mut rest[l + 1..], value, &r[l * n + l + 1..(l + 1) * n]);
        }
    });
    u
}
