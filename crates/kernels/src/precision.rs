//! The precision of matrix products.

use serde::{Deserialize, Serialize};

emberlm_system::named! {
    /// The precision of the operands of matrix products, forward and backward: in linear layers, in the head and, on flex
    /// only with AMX, in attention. Everything else, such as weights, sums and scores, stays in f32.
    #[derive(Default, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Precision {
        /// f32, without rounding.
        #[default]
        F32 = "f32",
        /// Rounded to bfloat16, to nearest, ties to even: 8 bits of significand. Backends and CPUs without bfloat16
        /// products that are faster than f32 use f32.
        Bf16 = "bf16",
        /// Rounded to half precision: 11 bits of significand and a range of 6e-8 to 65,504, so training scales its
        /// loss. Backends without half-precision products use f32.
        F16 = "f16",
    }
}
