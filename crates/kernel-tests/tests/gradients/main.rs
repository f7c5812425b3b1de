//! Tests the operations with handwritten backward passes on each backend over random shapes, against their
//! reference implementations differentiated by Burn on flex.
//!
//! - Values of attention are compared with plain loops, and the gradients of its reference implementation with
//!   finite differences of the loops. Linear attention and the delta rule, which Burn differentiates, are tested in the same way.
//! - Linear layers with packed weights, which are not trained, and writes to caches are compared with the
//!   unpacked layer and with plain copies.
//! - Dropout of blocked attention is tested statistically, products of rounded operands are compared with f32,
//!   and activations with PyTorch.
//!
//! A subset also runs on Vulkan.

#![recursion_limit = "256"]
#![allow(clippy::unwrap_used, missing_docs)]

mod activations;
mod attention;
mod attention_case;
mod attention_dropout;
mod attention_options;
#[cfg(feature = "vulkan")]
mod attention_tiles;
mod blocked_attention;
mod cache;
mod compare;
mod delta_rule;
mod elementwise;
mod head_loss;
mod linear_attention;
mod matmul;
#[cfg(feature = "vulkan")]
mod matmul_kernels;
mod packed;
#[cfg(feature = "vulkan")]
mod packed_vulkan;
mod precision;
mod pytorch;
mod table_parts;
mod threads;
#[cfg(feature = "vulkan")]
mod vulkan;

use burn_flex::Flex;
use burn_ndarray::NdArray;
use emberlm_kernels::Precision;

#[test]
fn activations_match_pytorch_on_flex() {
    activations::check::<Flex>(&Default::default());
}

#[test]
fn activations_match_pytorch_on_ndarray() {
    activations::check::<NdArray>(&Default::default());
}

#[test]
fn head_loss_matches_pytorch_on_flex() {
    pytorch::check::<Flex>(&Default::default());
}

#[test]
fn head_loss_matches_pytorch_on_ndarray() {
    pytorch::check::<NdArray>(&Default::default());
}

#[test]
fn ndarray_dropout_matches_flex() {
    blocked_attention::dropout_matches_flex::<NdArray>();
}

#[test]
fn blocked_attention_state_is_linear_in_the_sequence() {
    blocked_attention::state_is_linear_in_the_sequence::<Flex>();
    blocked_attention::state_is_linear_in_the_sequence::<NdArray>();
}

#[test]
fn attention_dropout_is_independent() {
    attention_dropout::independent::<Flex>(0.3);
    attention_dropout::independent::<Flex>(0.1);
    attention_dropout::independent::<NdArray>(0.5);
}

#[test]
fn bias_gradient_with_dropout_matches_differences() {
    attention_options::bias_gradient_with_dropout_matches_differences();
}

#[test]
fn dropout_preserves_the_mean() {
    attention_dropout::preserves_the_mean();
}

#[test]
fn extreme_dropout_rates_give_finite_outputs() {
    attention_dropout::extreme_rates_give_finite_outputs();
}

#[test]
fn products_are_rounded_to_their_precision() {
    for (precision, unit) in precision::NARROW {
        precision::rounded_within_bounds::<Flex>(precision, unit);
    }
}

#[test]
fn non_finite_rows_stay_in_their_part() {
    table_parts::non_finite_rows_stay_in_their_part::<Flex>();
    table_parts::non_finite_rows_stay_in_their_part::<NdArray>();
}

#[test]
fn parts_are_rounded_like_the_whole_table() {
    for (precision, _) in precision::NARROW {
        table_parts::rounded_like_the_whole_table::<Flex>(precision);
    }
}

#[test]
fn small_probabilities_keep_their_gradients() {
    for (precision, unit) in precision::NARROW {
        let head = precision::reference_head::<Flex>;
        precision::small_probabilities_keep_their_gradients::<Flex>(head, precision, unit);
    }
}

#[test]
fn unsupported_precisions_use_f32() {
    precision::unsupported_precision_uses_f32::<NdArray>(Precision::F16);
    precision::unsupported_precision_uses_f32::<NdArray>(Precision::Bf16);
    precision::unsupported_precision_uses_f32::<Flex>(Precision::F16);
}

proptest::proptest! {
    #![proptest_config(compare::cases())]

    #[test]
    fn reference_attention_gradients_match_differences(
        drawn in attention_options::drawn(),
    ) {
        attention_options::reference_gradients_match_differences(drawn);
    }
}

/// Instantiates the properties of a module for each backend.
macro_rules! on_backends {
    ($($property:ident($($argument:ident in $strategy:expr),+ $(,)?);)+) => {
        $(
            mod $property {
                use proptest::prelude::*;
                #[allow(unused_imports)]
                use super::*;

                proptest! {
                    #![proptest_config(crate::compare::cases())]

                    #[test]
                    fn flex($($argument in $strategy),+) {
                        super::$property::<burn_flex::Flex>($($argument),+);
                    }

                    #[test]
                    fn ndarray($($argument in $strategy),+) {
                        super::$property::<burn_ndarray::NdArray>($($argument),+);
                    }
                }
            }
        )+
    };
}

pub(crate) use on_backends;
