//! Tiny configurations with the components of a full-size model, for tests.

use super::{AttentionKind, FullLayers, Init, ModelConfig, Position, RotaryScaling};

impl ModelConfig {
    /// Vocabulary size of [`ModelConfig::tiny`].
    pub const TINY_VOCAB_SIZE: usize = 19;

    /// Longest sequence of [`ModelConfig::tiny`].
    pub const TINY_SEQ_LEN: usize = 12;

    /// Returns the configuration with the same components at tiny sizes, for comparing implementations. Structure is
    /// preserved: grouped queries stay grouped, partial rotation stays partial, and full layers stay full.
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
        // 4 if derived from the width. An explicit head width stays different from it.
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
        if let Some(nets) = &mut self.delta_nets {
            nets.key_heads = Some(2);
            nets.value_heads = nets.value_heads.map(|_| 4);
            nets.key_dim = Some(6);
            nets.value_dim = nets.value_dim.map(|_| 5);
            nets.full_layers = FullLayers::Every { every: 2 };
        }
        if let Some(latent) = &mut self.latent_attention {
            latent.rank = 7;
            latent.query_rank = latent.query_rank.map(|_| 9);
            latent.rope_dim = Some(2);
            latent.value_dim = latent.value_dim.map(|_| 5);
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
            }
            | RotaryScaling::LongRope {
                original_seq_len, ..
            } = scaling
            {
                *original_seq_len = 8;
            }
            if let RotaryScaling::LongRope {
                short_factor,
                long_factor,
                ..
            } = scaling
            {
                let pairs = dims.unwrap_or(self.head_dim.unwrap_or(4)) / 2;
                short_factor.resize(pairs, 1.0);
                long_factor.resize(pairs, 2.0);
            }
        }
        if let Some(positions) = &mut self.layer_positions {
            *positions.layers_mut() = FullLayers::Every { every: 2 };
        }
        // Large enough that attention is far from uniform and activations are far from linear.
        self.init = Init::Normal {
            std: 0.3,
            scale_residual: false,
        };
        self.feed_forward.width = Some(20);
        if let Some(experts) = &mut self.experts {
            experts.count = experts
                .count
                .min(if experts.groups.is_some() { 6 } else { 5 });
            if let Some(groups) = &mut experts.groups {
                (groups.count, groups.active) = (3, 2);
            }
            experts.active = experts.active.min(2);
            experts.width = experts.width.map(|_| 12);
            experts.shared_width = experts.shared_width.map(|_| 8);
            experts.dense_layers.retain(|&layer| layer < self.n_layers);
        }
        self
    }
}
