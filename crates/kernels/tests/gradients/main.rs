//! Each operation whose backward is written by hand, on each backend, against its composed body differentiated by Burn
//! on flex, over random shapes. Attention's values are compared with plain loops; linear attention, which Burn
//! differentiates, with plain loops in f64 and their central differences; maps with weights of 8 bits, which are never
//! trained, and writes into a cache, too.

#![recursion_limit = "256"]
#![allow(clippy::unwrap_used, missing_docs)]

mod attention;
mod attention_dropout;
mod blocked_attention;
mod cache;
mod compare;
mod elementwise;
mod head_loss;
mod int8;
mod linear_attention;
mod precision;
mod pytorch;

#[test]
fn head_loss_as_in_pytorch_on_flex() {
    pytorch::check::<burn_flex::Flex>(&Default::default());
}

#[test]
fn head_loss_as_in_pytorch_on_ndarray() {
    pytorch::check::<burn_ndarray::NdArray>(&Default::default());
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
