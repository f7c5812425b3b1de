//! Compares [`ops::matmul`], on which all other products are built, with Burn's own product.

use emberlm_kernels::{Backend, ops};

use crate::compare::{assert_same, numbers};

/// `[batch, heads]`, each of which may be broadcast from 1 in an operand.
fn product<B: Backend>(batch: [usize; 2], repeated: [bool; 4], sizes: [usize; 3], seed: u64) {
    let [rows, depth, columns] = sizes;
    let counts =
        |first: usize| [0, 1].map(|dim| if repeated[first + dim] { 1 } else { batch[dim] });
    let ([batch_a, heads_a], [batch_b, heads_b]) = (counts(0), counts(2));
    assert_same::<B, _, 4, _>(
        "product",
        &[
            numbers(seed, [batch_a, heads_a, rows, depth]),
            numbers(seed + 1, [batch_b, heads_b, depth, columns]),
        ],
        |[x, y]| ops::matmul(x, y),
        |[x, y]| x.matmul(y),
    );
}

crate::on_backends! {
    product(
        batch in [1usize..4, 1usize..4],
        repeated in proptest::array::uniform4(any::<bool>()),
        sizes in [1usize..9, 1usize..20, 1usize..9],
        seed in 0u64..1000,
    );
}
