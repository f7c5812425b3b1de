//! Orthogonal bases of square matrices, in f64 on one thread: the eigenvectors of a symmetric matrix, and the columns of a
//! matrix made orthonormal.
//!
//! Columns that depend on earlier ones are replaced by others that complete the basis. A matrix that is not finite gives the basis of
//! the axes.

use nalgebra::{DMatrix, SymmetricEigen};

/// The most iterations per eigenvalue; two are usual.
const MOST_ITERATIONS: usize = 50;

/// The eigenvectors of the symmetric matrix `[n, n]` whose rows are given, in order of falling eigenvalues. Its symmetric part is
/// used, so rounding may differ between the two triangles.
pub fn eigenvectors(matrix: &[f32], n: usize) -> Vec<Vec<f64>> {
    let at = |i: usize, j: usize| f64::from(matrix[i * n + j]);
    let symmetric = DMatrix::from_fn(n, n, |i, j| 0.5 * (at(i, j) + at(j, i)));
    if !is_usable(&symmetric) {
        return axes(n);
    }
    let found = SymmetricEigen::try_new(symmetric, f64::EPSILON, MOST_ITERATIONS * n);
    let Some(found) = found else {
        return axes(n);
    };
    let values = &found.eigenvalues;
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|&a, &b| values[b].total_cmp(&values[a]));
    columns(&found.eigenvectors, order)
}

/// The columns of `Q` of the QR decomposition of the square matrix with these columns. Their signs are arbitrary.
pub fn orthonormal(matrix: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let n = matrix.len();
    let matrix = DMatrix::from_fn(n, n, |i, j| matrix[j][i]);
    match is_usable(&matrix) {
        true => columns(&matrix.qr().q(), 0..n),
        false => axes(n),
    }
}

/// Returns true if a matrix is finite and not empty.
fn is_usable(matrix: &DMatrix<f64>) -> bool {
    !matrix.is_empty() && matrix.iter().all(|value| value.is_finite())
}

fn axes(n: usize) -> Vec<Vec<f64>> {
    columns(&DMatrix::identity(n, n), 0..n)
}

fn columns(matrix: &DMatrix<f64>, order: impl IntoIterator<Item = usize>) -> Vec<Vec<f64>> {
    let column = |of: usize| matrix.column(of).iter().copied().collect();
    order.into_iter().map(column).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers between -1 and 1.
    fn numbers(count: usize) -> Vec<f64> {
        let mut state = 1u32;
        let next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            f64::from(state) / f64::from(u32::MAX) * 2.0 - 1.0
        };
        std::iter::repeat_with(next).take(count).collect()
    }

    /// `G Gᵀ` of a matrix `[n, rank]`.
    fn gram(n: usize, rank: usize) -> Vec<f32> {
        let values = numbers(n * rank);
        let row = |i: usize| &values[i * rank..][..rank];
        let elements = (0..n * n).map(|i| dot(row(i / n), row(i % n)) as f32);
        elements.collect()
    }

    fn dot(a: &[f64], b: &[f64]) -> f64 {
        a.iter().zip(b).map(|(a, b)| a * b).sum()
    }

    fn assert_orthonormal(vectors: &[Vec<f64>]) {
        for (i, a) in vectors.iter().enumerate() {
            for (j, b) in vectors.iter().enumerate() {
                let expected = f64::from(u8::from(i == j));
                assert!((dot(a, b) - expected).abs() < 1e-13, "{i} {j}");
            }
        }
    }

    #[test]
    fn eigenvectors_diagonalize_matrices_of_any_rank() {
        for (n, rank) in [(1, 1), (2, 2), (5, 5), (12, 8), (40, 40), (40, 1), (7, 0)] {
            let matrix = gram(n, rank);
            let vectors = eigenvectors(&matrix, n);
            assert_orthonormal(&vectors);
            let applied = |vector: &[f64]| -> Vec<f64> {
                let element = |i: usize, j: usize| f64::from(matrix[i * n + j]);
                let product = |i: usize| (0..n).map(|j| element(i, j) * vector[j]).sum();
                (0..n).map(product).collect()
            };
            let mut last = f64::INFINITY;
            for vector in &vectors {
                let mut image = applied(vector);
                let value = dot(&image, vector);
                assert!(value <= last + 1e-5, "falling: {last} {value}");
                last = value;
                for (image, x) in image.iter_mut().zip(vector) {
                    *image -= value * x;
                }
                assert!(dot(&image, &image).sqrt() < 1e-5, "{n} {rank}");
            }
        }
    }

    #[test]
    fn the_columns_of_any_square_matrix_become_orthonormal() {
        let n = 9;
        let values = numbers(n * n);
        let columns: Vec<Vec<f64>> = values.chunks(n).map(<[f64]>::to_vec).collect();
        let basis = orthonormal(&columns);
        assert_orthonormal(&basis);
        // Each column is a combination of the basis up to its own vector.
        for (number, column) in columns.iter().enumerate() {
            for vector in &basis[number + 1..] {
                assert!(dot(column, vector).abs() < 1e-13);
            }
        }
        let mut dependent = columns;
        dependent[3] = dependent[1].clone();
        dependent[5] = vec![0.0; n];
        dependent[7].iter_mut().for_each(|x| *x *= 1e-200);
        assert_orthonormal(&orthonormal(&dependent));
    }

    #[test]
    fn matrices_that_are_not_finite_give_the_axes() {
        let expected = vec![vec![1.0, 0.0], vec![0.0, 1.0]];
        assert_eq!(eigenvectors(&[1.0, f32::NAN, 0.0, 1.0], 2), expected);
        let columns = vec![vec![f64::INFINITY, 0.0], vec![0.0, 1.0]];
        assert_eq!(orthonormal(&columns), expected);
        assert!(eigenvectors(&[], 0).is_empty());
    }
}
