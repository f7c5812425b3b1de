//! The pairing of head elements in rotary position embeddings.

use serde::{Deserialize, Serialize};

/// The pairing of a rotary embedding (Su et al. 2021) over the `dims` rotated elements of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RotaryLayout {
    /// Pairs `(x[2i], x[2i + 1])`, as in the paper and GPT-J.
    Interleaved,
    /// Pairs `(x[i], x[i + dims/2])`, as in GPT-NeoX and in LLaMA checkpoints from Hugging Face.
    HalfSplit,
}
