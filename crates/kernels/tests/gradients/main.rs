//! Each operation whose backward is written by hand, on each backend, against its reference implementation differentiated by Burn
//! on flex, over random shapes. Attention's values are compared with plain loops, and the gradients of its reference implementation with the
//! loops' differences; linear attention, which Burn differentiates, with plain loops in f64 and their central differences;
//! linear layers with packed weights, which are never trained, and writes into a cache, too. Dropout of attention in blocks is
//! tested as a random number, products of rounded
//! factors against f32's, and activations against PyTorch's. A part of it runs on Vulkan, too.

#![recursion_limit = "256"]
#![allow(clippy::unwrap_used, missing_docs)]

mod activations;
mod attention;
mod attention_dropout;
mod attention_options;
mod blocked_attention;
mod cache;
mod compare;
mod elementwise;
mod head_loss;
mod linear_attention;
mod matmul;
mod packed;
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
fn activations_as_in_pytorch_on_flex() {
    activations::check::<Flex>(&Default::default());
}

#[test]
fn activations_as_in_pytorch_on_ndarray() {
    activations::check::<NdArray>(&Default::default());
}

#[test]
fn head_loss_as_in_pytorch_on_flex() {
    pytorch::check::<Flex>(&Default::default());
}

#[test]
fn head_loss_as_in_pytorch_on_ndarray() {
    pytorch::check::<NdArray>(&Default::default());
}

#[test]
fn ndarray_drops_as_flex_does() {
    blocked_attention::drops_as_flex_does::<NdArray>();
}

#[test]
fn what_attention_in_blocks_keeps_is_linear_in_the_sequence() {
    blocked_attention::state_is_linear_in_the_sequence::<Flex>();
    blocked_attention::state_is_linear_in_the_sequence::<NdArray>();
}

#[test]
fn what_attention_drops_is_independent() {
    attention_dropout::independent::<Flex>(0.3);
    attention_dropout::independent::<Flex>(0.1);
    attention_dropout::independent::<NdArray>(0.5);
}

#[test]
fn the_gradient_of_a_bias_under_dropout_is_the_difference() {
    attention_options::dropped_bias_gradient_is_the_difference();
}

#[test]
fn dropping_changes_nothing_on_average() {
    attention_dropout::nothing_is_changed_on_average();
}

#[test]
fn extreme_rates_of_dropping_give_numbers() {
    attention_dropout::extreme_rates_give_numbers();
}

#[test]
fn products_are_rounded() {
    for (precision, unit) in precision::NARROW {
        precision::rounded_by_no_more_than_that::<Flex>(precision, unit);
    }
}

#[test]
fn a_row_that_is_no_number_stays_in_its_part() {
    table_parts::a_row_that_is_no_number_stays_where_it_is::<Flex>();
    table_parts::a_row_that_is_no_number_stays_where_it_is::<NdArray>();
}

#[test]
fn parts_are_rounded_as_the_whole_is() {
    for (precision, _) in precision::NARROW {
        table_parts::rounded_as_the_whole::<Flex>(precision);
    }
}

#[test]
fn small_probabilities_count() {
    for (precision, unit) in precision::NARROW {
        precision::small_probabilities_count::<Flex>(precision, unit);
    }
}

#[test]
fn where_a_precision_is_missing_products_are_f32s() {
    precision::where_there_is_none_it_is_f32::<NdArray>(Precision::F16);
    precision::where_there_is_none_it_is_f32::<NdArray>(Precision::Bf16);
    precision::where_there_is_none_it_is_f32::<Flex>(Precision::F16);
}

proptest::proptest! {
    #![proptest_config(compare::cases())]

    #[test]
    fn composed_attentions_gradients_are_the_loops_differences(
        drawn in attention_options::drawn(),
    ) {
        attention_options::composed_gradients_are_the_loops_differences(drawn);
    }
}

/// The properties of each module for each backend.
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
