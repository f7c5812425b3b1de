//! Models that are tiny but for their parts.

use crate::config::{AttentionKind, FullLayers, Init, ModelConfig, Position, RotaryScaling};

impl ModelConfig {
    /// [`ModelConfig::tiny`]'s.
    pub const TINY_VOCAB_SIZE: usize = 19;

    /// [`ModelConfig::tiny`]'s.
    pub const TINY_SEQ_LEN: usize = 12;

    /// The same parts at a tiny size, for comparing one computation of a model with another: what is a part of a whole stays
    /// a part, and what is grouped stays grouped.
    pub fn tiny(mut self) -> Self {
        let head_dim = self.head_dim.unwrap_or(self.d_model / self.heads.max(1));
        self.vocab_size = Some(Self::TINY_VOCAB_SIZE);
        self.seq_len = Self::TINY_SEQ_LEN;
        self.d_model = 16;
        self.n_layers = 2;
        self.kv_heads = self.kv_heads.map(|kv_heads| match kv_heads {
            1 => 1,
            all if all == self.heads => 4,
            _ => 2,
        });
        self.heads = 4;
        // 4 where it follows from the width, else another.
        self.head_dim = self.head_dim.map(|_| 6);
        if let AttentionKind::Softmax { window, scale, .. } = &mut self.attention {
            if let Some(window) = window {
                window.tokens = window.tokens.min(5);
                if let FullLayers::Listed(layers) = &mut window.full_layers {
                    layers.retain(|&layer| layer < self.n_layers);
                }
            }
            *scale = scale.map(|_| 0.3);
        }
        if let Position::Rotary { dims, scaling, .. } = &mut self.position {
            *dims = dims.filter(|&dims| dims < head_dim).map(|_| 2);
            if let RotaryScaling::Llama3 {
                original_seq_len, ..
            }
            | RotaryScaling::Dynamic {
                original_seq_len, ..
            }
            | RotaryScaling::Yarn {
                original_seq_len, ..
            } = scaling
            {
                *original_seq_len = 8;
            }
        }
        if let Some(positions) = &mut self.layer_positions {
            *positions.layers_mut() = FullLayers::Every { every: 2 };
        }
        // Wide enough to be far from uniform attention and from linear activations.
        self.init = Init::Normal {
            std: 0.3,
            scale_residual: false,
        };
        self.feed_forward.width = Some(20);
        self
    }
}
