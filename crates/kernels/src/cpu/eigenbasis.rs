//! Orthogonal bases of square matrices, in f64 on one thread: the eigenvectors of a symmetric matrix, and the columns of a
//! matrix made orthonormal.
//!
//! Both reduce a matrix by Householder reflections `H = I - 2 v vᵀ / (vᵀ v)`, which need no full rank: columns that depend on
//! earlier ones are replaced by others that complete the basis. A vector is a row in memory, so all loops are contiguous.
//! A matrix that is not finite gives the basis of the axes.

/// The most QL iterations per eigenvalue; two are usual.
const MOST_ITERATIONS: usize = 50;

/// The eigenvectors of the symmetric matrix `[n, n]` whose rows are given, in order of falling eigenvalues. Its symmetric part is
/// used, so rounding may differ between the two triangles.
pub fn eigenvectors(matrix: &[f32], n: usize) -> Vec<Vec<f64>> {
    if !are_finite(matrix) {
        return axes(n);
    }
    let at = |i: usize, j: usize| f64::from(matrix[i * n + j]);
    let mut rows: Vec<Vec<f64>> = (0..n)
        .map(|i| (0..n).map(|j| 0.5 * (at(i, j) + at(j, i))).collect())
        .collect();
    let reflections = tridiagonalized(&mut rows);
    let mut vectors = product_of(&reflections, n);
    let mut diagonal: Vec<f64> = (0..n).map(|i| rows[i][i]).collect();
    let mut beside: Vec<f64> = (1..n).map(|i| rows[i][i - 1]).collect();
    beside.push(0.0);
    diagonalize(&mut diagonal, &mut beside, &mut vectors);
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|&a, &b| diagonal[b].total_cmp(&diagonal[a]));
    order
        .into_iter()
        .map(|of| std::mem::take(&mut vectors[of]))
        .collect()
}

/// The columns of `Q` of the QR decomposition of the square matrix with these columns. Their signs are arbitrary.
pub fn orthonormal(mut columns: Vec<Vec<f64>>) -> Vec<Vec<f64>> {
    let n = columns.len();
    if !columns.iter().flatten().all(|value| value.is_finite()) {
        return axes(n);
    }
    let mut reflections = Vec::with_capacity(n);
    for done in 0..n {
        let (before, after) = columns.split_at_mut(done + 1);
        let reflection = Reflection::of(&before[done], done);
        for column in after {
            reflection.apply(column);
        }
        reflections.push(reflection);
    }
    product_of(&reflections, n)
}

fn are_finite(values: &[f32]) -> bool {
    values.iter().all(|value| value.is_finite())
}

fn axes(n: usize) -> Vec<Vec<f64>> {
    product_of(&[], n)
}

/// The inner product, summed in eight lanes that a compiler can put into vector registers.
fn dot(a: &[f64], b: &[f64]) -> f64 {
    let (a, a_rest) = a.as_chunks::<8>();
    let (b, b_rest) = b.as_chunks::<8>();
    let mut lanes = [0.0; 8];
    for (a, b) in a.iter().zip(b) {
        for (lane, (a, b)) in lanes.iter_mut().zip(a.iter().zip(b)) {
            *lane += a * b;
        }
    }
    let rest = a_rest.iter().zip(b_rest).map(|(a, b)| a * b);
    lanes.iter().sum::<f64>() + rest.sum::<f64>()
}

/// Adds `factor · x` to `y`.
fn add(y: &mut [f64], factor: f64, x: &[f64]) {
    for (y, x) in y.iter_mut().zip(x) {
        *y += factor * x;
    }
}

/// A Householder reflection, the identity in the first elements.
struct Reflection {
    start: usize,
    v: Vec<f64>,
    /// `2 / (vᵀ v)`; 0 for the identity.
    factor: f64,
}

impl Reflection {
    /// The reflection that makes all elements of `vector` after `start` 0 and does not change those before it.
    fn of(vector: &[f64], start: usize) -> Self {
        let mut v = vector[start..].to_vec();
        let largest = v.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
        if largest == 0.0 {
            return Self {
                start,
                v,
                factor: 0.0,
            };
        }
        // The squares of the scaled elements neither overflow nor vanish.
        v.iter_mut().for_each(|x| *x /= largest);
        v[0] += dot(&v, &v).sqrt().copysign(v[0]);
        let factor = 2.0 / dot(&v, &v);
        Self { start, v, factor }
    }

    fn apply(&self, vector: &mut [f64]) {
        let own = &mut vector[self.start..];
        let product = self.factor * dot(&self.v, own);
        add(own, -product, &self.v);
    }
}

/// The columns of `H₀ H₁ …`, where each reflection starts after those before it.
fn product_of(reflections: &[Reflection], n: usize) -> Vec<Vec<f64>> {
    let column = |number: usize| {
        let mut column = vec![0.0; n];
        column[number] = 1.0;
        let changing = reflections.iter().filter(|it| it.start <= number);
        for reflection in changing.rev() {
            reflection.apply(&mut column);
        }
        column
    };
    (0..n).map(column).collect()
}

/// Reduces a symmetric matrix `A` to the tridiagonal `T` with `A = Q T Qᵀ`. Returns the reflections whose product is `Q`.
fn tridiagonalized(rows: &mut [Vec<f64>]) -> Vec<Reflection> {
    let n = rows.len();
    let mut reflections = Vec::new();
    for done in 0..n.saturating_sub(2) {
        let start = done + 1;
        let reflection = Reflection::of(&rows[done], start);
        reflection.apply(&mut rows[done]);
        rows[start][done] = rows[done][start];
        // H A H = A - v wᵀ - w vᵀ of the elements from `start`.
        let v = &reflection.v;
        let product = |row: &Vec<f64>| reflection.factor * dot(&row[start..], v);
        let mut w: Vec<f64> = rows[start..].iter().map(product).collect();
        let half = 0.5 * reflection.factor * dot(&w, v);
        add(&mut w, -half, v);
        for (row, (of_v, of_w)) in rows[start..].iter_mut().zip(v.iter().zip(&w)) {
            add(&mut row[start..], -of_v, &w);
            add(&mut row[start..], -of_w, v);
        }
        reflections.push(reflection);
    }
    reflections
}

/// Diagonalizes the tridiagonal matrix with this diagonal and the elements `beside` it by QL iterations with implicit shifts, whose
/// rotations are applied to `vectors`, too.
fn diagonalize(diagonal: &mut [f64], beside: &mut [f64], vectors: &mut [Vec<f64>]) {
    let n = diagonal.len();
    let largest = diagonal.iter().zip(beside.iter());
    let largest = largest.fold(0.0, |most: f64, (d, e)| most.max(d.abs() + e.abs()));
    // Relative to the largest element, since eigenvalues may be 0.
    let negligible = f64::EPSILON * largest;
    for at in 0..n {
        for _ in 0..MOST_ITERATIONS {
            let end = (at..n - 1).find(|&i| beside[i].abs() <= negligible);
            let end = end.unwrap_or(n - 1);
            if end == at {
                break;
            }
            rotate_between(at, end, diagonal, beside, vectors);
        }
    }
}

/// One QL iteration on the rows `at` to `end`.
fn rotate_between(
    at: usize,
    end: usize,
    diagonal: &mut [f64],
    beside: &mut [f64],
    vectors: &mut [Vec<f64>],
) {
    let slope = (diagonal[at + 1] - diagonal[at]) / (2.0 * beside[at]);
    let shift = beside[at] / (slope + slope.hypot(1.0).copysign(slope));
    let mut g = diagonal[end] - diagonal[at] + shift;
    let (mut sine, mut cosine, mut moved) = (1.0, 1.0, 0.0);
    for i in (at..end).rev() {
        let (f, b) = (sine * beside[i], cosine * beside[i]);
        let length = f.hypot(g);
        beside[i + 1] = length;
        if length == 0.0 {
            diagonal[i + 1] -= moved;
            beside[end] = 0.0;
            return;
        }
        (sine, cosine) = (f / length, g / length);
        g = diagonal[i + 1] - moved;
        let r = (diagonal[i] - g) * sine + 2.0 * cosine * b;
        moved = sine * r;
        diagonal[i + 1] = g + moved;
        g = cosine * r - b;
        if let [first, second] = &mut vectors[i..=i + 1] {
            for (x, y) in first.iter_mut().zip(second) {
                (*x, *y) = (cosine * *x - sine * *y, sine * *x + cosine * *y);
            }
        }
    }
    diagonal[at] -= moved;
    beside[at] = g;
    beside[end] = 0.0;
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
                add(&mut image, -value, vector);
                assert!(dot(&image, &image).sqrt() < 1e-5, "{n} {rank}");
            }
        }
    }

    #[test]
    fn the_columns_of_any_square_matrix_become_orthonormal() {
        let n = 9;
        let values = numbers(n * n);
        let columns: Vec<Vec<f64>> = values.chunks(n).map(<[f64]>::to_vec).collect();
        let basis = orthonormal(columns.clone());
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
        assert_orthonormal(&orthonormal(dependent));
    }

    #[test]
    fn matrices_that_are_not_finite_give_the_axes() {
        let expected = vec![vec![1.0, 0.0], vec![0.0, 1.0]];
        assert_eq!(eigenvectors(&[1.0, f32::NAN, 0.0, 1.0], 2), expected);
        let columns = vec![vec![f64::INFINITY, 0.0], vec![0.0, 1.0]];
        assert_eq!(orthonormal(columns), expected);
        assert!(eigenvectors(&[], 0).is_empty());
    }
}
