//! The orthogonalization of matrices for Muon and NorMuon.

use burn::tensor::Tensor;
use emberlm_kernels::ops::linear;
use emberlm_kernels::{Backend, Precision};

use crate::config::Orthogonalization;

/// The number of iterations.
const ITERATIONS: usize = 5;
/// Jordan's quintic, which is steep at 0 and then stays near 1, in every iteration.
const NEWTON_SCHULZ: [[f64; 3]; ITERATIONS] = [[3.4445, -4.7750, 2.0315]; ITERATIONS];
/// The first polynomials of Polar Express (Amsel et al. 2025, arXiv 2505.16932, algorithm 1), without their safety factor.
const POLAR_EXPRESS: [[f64; 3]; ITERATIONS] = [
    [8.28721201814563, -23.595886519098837, 17.300387312530933],
    [4.107059111542203, -2.9478499167379106, 0.5448431082926601],
    [3.9486908534822946, -2.908902115962949, 0.5518191394370137],
    [3.3184196573706015, -2.488488024314874, 0.51004894012372],
    [2.300652019954817, -1.6689039845747493, 0.4188073119525673],
];
/// Polar Express divides the matrix and the argument of each polynomial by it, so that rounding does not lift singular values
/// out of the range of the polynomials.
const SAFETY: f64 = 1.01;
/// Lower bound of the norm that divides the matrix.
const EPSILON: f64 = 1e-7;

impl Orthogonalization {
    /// The factor on the norm that divides the matrix, and the coefficients `a`, `b` and `c` of each iteration.
    fn polynomials(self) -> (f64, [[f64; 3]; ITERATIONS]) {
        match self {
            Self::NewtonSchulz => (1.0, NEWTON_SCHULZ),
            Self::PolarExpress => {
                let safe =
                    |[a, b, c]: [f64; 3]| [a / SAFETY, b / SAFETY.powi(3), c / SAFETY.powi(5)];
                (SAFETY, POLAR_EXPRESS.map(safe))
            }
        }
    }
}

/// `U S Vᵀ` of a matrix `U Σ Vᵀ`, with `S` near 1 wherever Σ is not negligible relative to the norm (0.7 to 1.2 with Jordan's
/// quintic): five iterations `X <- a X + (b A + c A²) X`, `A = X Xᵀ`, from the matrix over its norm.
pub(super) fn orthogonal<B: Backend>(matrix: Tensor<B, 2>, by: Orthogonalization) -> Tensor<B, 2> {
    let (safety, polynomials) = by.polynomials();
    let [rows, columns] = matrix.dims();
    let mut norm = (matrix.clone() * matrix.clone()).sum().sqrt(); // [1]
    if safety != 1.0 {
        norm = norm * safety;
    }
    let mut x = matrix / norm.clamp_min(EPSILON).unsqueeze();
    // The smaller of `X Xᵀ` and `Xᵀ X`.
    let tall = rows > columns;
    if tall {
        x = x.transpose();
    }
    let f32 = Precision::F32;
    for [a, b, c] in polynomials {
        let gram = linear(x.clone(), x.clone().transpose(), None, None, f32);
        let scaled = gram.clone() * b;
        let polynomial = linear(gram.clone() * c, gram, None, Some(scaled), f32);
        let scaled = x.clone() * a;
        x = linear(polynomial, x, None, Some(scaled), f32);
    }
    if tall { x.transpose() } else { x }
}

/// The factor on an orthogonalized matrix that makes its root mean square about that of AdamW's updates.
pub(super) fn update_scale([rows, columns]: [usize; 2]) -> f64 {
    0.2 * (rows.max(columns) as f64).sqrt()
}

/// The `update` of the matrix of each of the layers of `widths`, which a matrix stores side by side. It receives the layer's
/// first column, too.
pub(super) fn of_each_layer<B: Backend, const D: usize>(
    matrix: Tensor<B, D>,
    widths: Option<&[usize]>,
    mut update: impl FnMut(Tensor<B, 2>, usize) -> Tensor<B, 2>,
) -> Tensor<B, D> {
    let shape = matrix.shape();
    let columns = shape[D - 1];
    let matrix = matrix.reshape([-1, columns as i64]); // [rows, columns]
    let updated = match widths {
        None => update(matrix, 0),
        Some(widths) => {
            let mut start = 0;
            let layers = widths.iter().map(|&width| {
                let layer = update(matrix.clone().narrow(1, start, width), start);
                start += width;
                layer
            });
            Tensor::cat(layers.collect(), 1)
        }
    };
    updated.reshape(shape)
}
