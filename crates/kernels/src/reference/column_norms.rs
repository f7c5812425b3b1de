//! Normalization of groups of columns and its gradient, set by set with the backend's normalization of rows.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;

use super::{primitive, rows, typed};
use crate::{
    ColumnGroups, ColumnNormGradients, ColumnNormInputs, ColumnNorms, NormGradients, Normalization,
};

type Row<B> = FloatTensor<B>;

/// See [`crate::Backend::normalize_columns`]. `normalize` normalizes rows with a gain and a bias.
pub fn normalize_columns<B: Backend>(
    norms: ColumnNorms,
    inputs: ColumnNormInputs<B>,
    normalize: impl Fn(Normalization, FloatTensor<B>, Option<Row<B>>, Option<Row<B>>) -> FloatTensor<B>,
) -> FloatTensor<B> {
    let (x, shape) = rows::<B>(inputs.x); // [rows, width]
    let [gains, biases] = [inputs.gains, inputs.biases].map(of_sets);
    let affine = gains.into_iter().zip(biases);
    let sets = sets(norms, &x).into_iter().zip(affine);
    let mut columns: Vec<Tensor<B, 2>> = sets
        .map(|((groups, set), (gain, bias))| {
            let [rows, columns] = set.dims();
            let set = by_group(groups, set);
            let set = normalize(norms.kind, primitive(set), gain, bias);
            typed::<B, 2>(set).reshape([rows, columns])
        })
        .collect();
    columns.extend(others(norms, &x));
    B::float_reshape(primitive(Tensor::cat(columns, 1)), shape)
}

/// See [`crate::Backend::normalize_columns_backward`]. `backward` has the gradients of normalized rows from these rows, the gain,
/// the presence of a bias, and the gradient of the output.
pub fn normalize_columns_backward<B: Backend>(
    norms: ColumnNorms,
    inputs: ColumnNormInputs<B>,
    grad: FloatTensor<B>,
    backward: impl Fn(FloatTensor<B>, Option<Row<B>>, bool, FloatTensor<B>) -> NormGradients<B>,
) -> ColumnNormGradients<B> {
    let ColumnNormInputs { x, gains, biases } = inputs;
    let (x, shape) = rows::<B>(x); // [rows, width]
    let (grad, _) = rows::<B>(grad);
    let has_bias = biases.is_some();
    let grads = sets(norms, &grad).map(|(_, grad)| grad);
    let inputs = sets(norms, &x).into_iter().zip(grads).zip(of_sets(gains));
    let (mut columns, mut gains, mut biases) = (Vec::new(), Vec::new(), Vec::new());
    for (((groups, x), grad), gain) in inputs {
        let shape = x.dims();
        let [x, grad] = [x, grad].map(|set| primitive(by_group(groups, set)));
        let own = backward(x, gain, has_bias, grad);
        columns.push(typed::<B, 2>(own.x).reshape(shape));
        gains.extend(own.gain);
        biases.extend(own.bias);
    }
    columns.extend(others(norms, &grad));
    ColumnNormGradients {
        x: B::float_reshape(primitive(Tensor::cat(columns, 1)), shape),
        gains: gains.try_into().ok(),
        biases: biases.try_into().ok(),
    }
}

fn of_sets<T>(both: Option<[T; 2]>) -> [Option<T>; 2] {
    match both {
        Some([first, second]) => [Some(first), Some(second)],
        None => [None, None],
    }
}

/// The columns of each set, `[rows, columns]`.
fn sets<B: Backend>(norms: ColumnNorms, x: &Tensor<B, 2>) -> [(ColumnGroups, Tensor<B, 2>); 2] {
    let [first, second] = norms.sets;
    let of = |start, groups: ColumnGroups| (groups, x.clone().narrow(1, start, groups.columns()));
    [of(0, first), of(first.columns(), second)]
}

/// A row per group, `[rows · count, width of a group]`.
fn by_group<B: Backend>(groups: ColumnGroups, set: Tensor<B, 2>) -> Tensor<B, 2> {
    let [rows, _] = set.dims();
    set.reshape([rows * groups.count, groups.width])
}

/// The columns that are not normalized, if any.
fn others<B: Backend>(norms: ColumnNorms, x: &Tensor<B, 2>) -> Option<Tensor<B, 2>> {
    let first: usize = norms.sets.iter().map(|groups| groups.columns()).sum();
    let [_, width] = x.dims();
    (first < width).then(|| x.clone().narrow(1, first, width - first))
}
