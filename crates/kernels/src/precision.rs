//! In what precision matrix products are made.

use serde::{Deserialize, Serialize};

/// The factors of the matrix products of linear maps and of the head, forward and backward. Weights, sums, and everything
/// else stay f32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Precision {
    /// As they are.
    #[default]
    F32,
    /// Rounded to bfloat16 first, to the nearest, ties to even: 8 bits of significand. A backend or a processor without such
    /// products takes f32.
    Bf16,
}
