//! Attention with operands rounded to bfloat16, in tile registers.

use emberlm_kernels::Precision;
use emberlm_kernels::cpu::bf16::{Instructions, instructions};
use proptest::prelude::*;

use super::case::{Case, any_case, plain};
use crate::numbers::cases;

proptest! {
    #![proptest_config(cases(60))]

    #[test]
    fn rounded_attention_matches_loops(case in any_case(300, false)) {
        case.rounded().check();
    }
}

proptest! {
    #![proptest_config(cases(16))]

    #[test]
    fn rounded_attention_is_bit_identical_on_any_threads(case in any_case(300, true)) {
        case.rounded().assert_same_on_any_threads();
    }
}

/// Output and gradients, one after the other.
fn computed(case: &Case) -> Vec<f32> {
    let (q, k, v) = (case.queries(1), case.keys(2), case.keys(3));
    let (out, _) = case.forward(&q, &k, &v);
    let gradients = case.backward(&q, &k, &v, &case.queries(4));
    out.into_iter()
        .chain(gradients.into_iter().flatten())
        .collect()
}

/// Several ranges of keys with several chunks, and lengths that are no multiples of a tile.
#[test]
fn long_rounded_sequences_are_split_into_ranges() {
    plain(1, 2, 1, 1100, 20).rounded().check();
    plain(1, 1, 1, 1055, 64).rounded().check();
}

/// Rounding changes the results where products are rounded, and nothing elsewhere: with other instructions, for fewer
/// queries than a tile has, and for few keys.
#[test]
fn only_whole_tiles_are_rounded() {
    let amx = instructions() == Some(Instructions::Amx);
    for (queries, keys, rounds) in [
        (65, 65, amx),
        (200, 200, amx),
        (32, 200, amx),
        (31, 200, false),
        (64, 64, false),
    ] {
        let case = plain(2, 2, 1, keys, 40).full(queries);
        let same = computed(&case) == computed(&case.clone().rounded());
        assert_eq!(same, !rounds, "{queries} queries and {keys} keys");
    }
    let mut half = plain(1, 1, 1, 200, 32);
    half.options.precision = Precision::F16;
    assert!(computed(&half) == computed(&plain(1, 1, 1, 200, 32)));
}
