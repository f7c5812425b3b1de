//! In what precision matrix products are made.

use serde::{Deserialize, Serialize};

/// The factors of the matrix products of linear maps, of the head, and, but on flex, of attention, forward and backward.
/// Weights, sums, scores, and everything else stay f32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Precision {
    /// Not rounded.
    #[default]
    F32,
    /// Rounded to bfloat16 first, to the nearest, ties to even: a significand with 8 bits. A backend or a CPU without such
    /// products takes f32.
    Bf16,
    /// Rounded to half precision first: 11 bits of significand, and nothing above 65,504 or below 6e-8, so that training scales
    /// its loss. A backend without such products takes f32.
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
