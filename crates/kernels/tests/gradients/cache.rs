//! Tests writing tokens to a cache, in place and into a copy: the new tokens are written and all others are
//! unchanged.

use burn_flex::Flex;
use burn_ndarray::NdArray;
use emberlm_kernels::{Backend, ops};

use crate::compare::{constant, host, numbers};

fn check<B: Backend>([batch, heads, capacity, head_dim]: [usize; 4], start: usize, seq: usize) {
    let (before, new) = (
        numbers(1, [batch, heads, capacity, head_dim]),
        numbers(2, [batch, seq, heads, head_dim]),
    );
    // Stored token by token, as the output of a fused projection.
    let turned = || constant::<B, 4>(&new).swap_dims(1, 2);
    let held = constant::<B, 4>(&before);
    let shared = held.clone();
    let copied = ops::write_tokens(held, turned(), start);
    let in_place = ops::write_tokens(constant(&before), turned(), start);

    let kept = host(constant::<B, 4>(&before));
    assert_eq!(host(shared), kept);
    let written = host(turned());
    let mut expected = kept;
    for head in 0..batch * heads {
        for at in 0..seq * head_dim {
            let to = (head * capacity + start) * head_dim + at;
            expected[to] = written[head * seq * head_dim + at];
        }
    }
    assert_eq!(host(copied), expected);
    assert_eq!(host(in_place), expected);
}

#[test]
fn only_the_new_tokens_are_written() {
    for (sizes, start, seq) in [
        ([1, 1, 1, 1], 0, 1),
        ([2, 3, 7, 5], 0, 7),
        ([2, 3, 7, 5], 6, 1),
        ([1, 4, 9, 8], 3, 4),
    ] {
        check::<Flex>(sizes, start, seq);
        check::<NdArray>(sizes, start, seq);
    }
}
