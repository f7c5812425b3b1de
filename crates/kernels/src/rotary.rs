//! Which elements of a head rotary positions pair up.

use serde::{Deserialize, Serialize};

/// The pairing of a rotary embedding (Su et al. 2021) over the `dims` rotated elements of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RotaryLayout {
    /// Pairs `(x[2i], x[2i + 1])`: the paper's, GPT-J's.
    Interleaved,
    /// Pairs `(x[i], x[i + dims/2])`: GPT-NeoX's, LLaMA's as Hugging Face stores it.
    HalfSplit,
}
