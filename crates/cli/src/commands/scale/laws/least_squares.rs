//! Linear least squares with a few unknowns.

/// Solves `matrix · x = right` for a symmetric positive definite matrix by Cholesky decomposition. `None` if the matrix is
/// singular.
pub fn solve<const N: usize>(matrix: [[f64; N]; N], right: [f64; N]) -> Option<[f64; N]> {
    let mut lower = [[0.0; N]; N];
    let mut x = [0.0; N];
    for i in 0..N {
        for j in 0..=i {
            let sum: f64 = (0..j).map(|k| lower[i][k] * lower[j][k]).sum();
            let rest = matrix[i][j] - sum;
            lower[i][j] = match i == j {
                // The rest is a rounding error if a column depends on the others.
                true if rest > 1e-13 * matrix[i][i] => rest.sqrt(),
                true => return None,
                false => rest / lower[j][j],
            };
        }
        let sum: f64 = (0..i).map(|k| lower[i][k] * x[k]).sum();
        x[i] = (right[i] - sum) / lower[i][i];
    }
    for i in (0..N).rev() {
        let sum: f64 = (i + 1..N).map(|k| lower[k][i] * x[k]).sum();
        x[i] = (x[i] - sum) / lower[i][i];
    }
    Some(x)
}

/// The coefficients `c` that minimize `Σ w (c · row − y)²` over `(row, y, w)`. `None` if they are not determined.
pub fn fit<const N: usize>(rows: impl Iterator<Item = ([f64; N], f64, f64)>) -> Option<[f64; N]> {
    let (mut matrix, mut right) = ([[0.0; N]; N], [0.0; N]);
    for (row, y, weight) in rows {
        for i in 0..N {
            right[i] += weight * row[i] * y;
            for j in 0..N {
                matrix[i][j] += weight * row[i] * row[j];
            }
        }
    }
    solve(matrix, right)
}
