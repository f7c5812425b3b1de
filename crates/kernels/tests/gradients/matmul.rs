//! Compares [`ops::matmul`], on which all other products are built, with Burn's own product.

use burn::backend::Autodiff;
use burn::tensor::Tensor;
use emberlm_kernels::{Backend, ops};

use crate::compare::{Reference, assert_all_close, numbers, tracked, with_gradients};

/// `[batch, heads]`, each of which may be broadcast from 1 in an operand.
fn product<B: Backend>(batch: [usize; 2], repeated: [bool; 4], sizes: [usize; 3], seed: u64) {
    let [rows, depth, columns] = sizes;
    let counts =
        |first: usize| [0, 1].map(|dim| if repeated[first + dim] { 1 } else { batch[dim] });
    let ([batch_a, heads_a], [batch_b, heads_b]) = (counts(0), counts(2));
    let a = numbers(seed, [batch_a, heads_a, rows, depth]);
    let b = numbers(seed + 1, [batch_b, heads_b, depth, columns]);
    let [x, y] = [&a, &b].map(tracked::<Autodiff<B>, 4>);
    let actual = with_gradients(ops::matmul(x.clone(), y.clone()), &[&x, &y]);
    let [x, y]: [Tensor<Reference, 4>; 2] = [&a, &b].map(tracked);
    let expected = with_gradients(x.clone().matmul(y.clone()), &[&x, &y]);
    assert_all_close("product", &actual, &expected);
}

crate::on_backends! {
    product(
        batch in [1usize..4, 1usize..4],
        repeated in proptest::array::uniform4(any::<bool>()),
        sizes in [1usize..9, 1usize..20, 1usize..9],
        seed in 0u64..1000,
    );
}
