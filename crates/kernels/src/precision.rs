//! The precision of matrix products.

use serde::{Deserialize, Serialize};

/// The precision of the operands of matrix products, forward and backward: in linear layers, in the head and,
/// except on flex, in attention. Everything else, such as weights, sums and scores, stays in f32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Precision {
    /// f32, without rounding.
    #[default]
    F32,
    /// Rounded to bfloat16, to nearest, ties to even: 8 bits of significand. Backends and CPUs without bfloat16
    /// products use f32.
    Bf16,
    /// Rounded to half precision: 11 bits of significand and a range of 6e-8 to 65,504, so training scales its
    /// loss. Backends without half-precision products use f32.
    F16,
}

impl Precision {
    /// Every precision.
    pub const ALL: [Self; 3] = [Self::F32, Self::Bf16, Self::F16];

    /// The name in configurations and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
        }
    }
}
