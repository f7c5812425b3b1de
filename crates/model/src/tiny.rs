//! Models that are tiny but for their parts.

use crate::config::{FeedForward, Init, ModelConfig, Position, RotaryScaling};

impl ModelConfig {
    /// [`ModelConfig::tiny`]'s.
    pub const TINY_VOCAB_SIZE: usize = 19;

    /// [`ModelConfig::tiny`]'s.
    pub const TINY_SEQ_LEN: usize = 12;

    /// The same parts at a tiny size, for comparing one computation of a model with another: what is a part of a whole stays
    /// a part, and what is grouped stays grouped.
    pub fn tiny(mut self) -> Self {
        let head_dim = match self.head_dim {
            0 => self.d_model / self.heads.max(1),
            given => given,
        };
        self.vocab_size = Self::TINY_VOCAB_SIZE;
        self.seq_len = Self::TINY_SEQ_LEN;
        self.d_model = 16;
        self.n_layers = 2;
        self.kv_heads = match self.kv_heads {
            1 => 1,
            all if all == self.heads => 4,
            _ => 2,
        };
        self.heads = 4;
        // 4 where it follows from the width, else another.
        self.head_dim = if self.head_dim == 0 { 0 } else { 6 };
        self.window = self.window.min(5);
        if let Position::Rotary { dims, scaling, .. } = &mut self.position {
            let partial = (1..head_dim).contains(dims);
            *dims = if partial { 2 } else { 0 };
            if let RotaryScaling::Llama3 {
                original_seq_len, ..
            } = scaling
            {
                *original_seq_len = 8;
            }
        }
        // Wide enough to be far from uniform attention and from linear activations.
        self.init = Init::Normal {
            std: 0.3,
            scale_residual: false,
        };
        let (FeedForward::Dense { width, .. } | FeedForward::Gated { width, .. }) =
            &mut self.feed_forward;
        *width = 20;
        self
    }
}
