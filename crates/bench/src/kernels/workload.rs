//! The sizes at which operations are measured.

use emberlm_kernels::{AttentionOptions, Precision, Reach, SelfAttention};

/// The sizes of a model and of a step of its training.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// The name in the output.
    pub name: &'static str,
    /// Sequences per step.
    pub batch: usize,
    /// Tokens per sequence.
    pub seq: usize,
    /// `d_model`.
    pub width: usize,
    /// Query heads.
    pub heads: usize,
    /// Key-value heads.
    pub kv_heads: usize,
    /// Width of the feed-forward block.
    pub hidden: usize,
    /// Size of the vocabulary.
    pub vocab: usize,
}

/// nanoGPT's character model, PocketTransformer, GPT-2.
pub const WORKLOADS: [Workload; 3] = [
    Workload {
        name: "char",
        batch: 12,
        seq: 64,
        width: 128,
        heads: 4,
        kv_heads: 4,
        hidden: 512,
        vocab: 65,
    },
    Workload {
        name: "pocket",
        batch: 4,
        seq: 256,
        width: 384,
        heads: 6,
        kv_heads: 2,
        hidden: 1536,
        vocab: 50257,
    },
    Workload {
        name: "gpt2-small",
        batch: 4,
        seq: 64,
        width: 768,
        heads: 12,
        kv_heads: 12,
        hidden: 3072,
        vocab: 50257,
    },
];

impl Workload {
    /// Tokens per step.
    pub fn tokens(&self) -> usize {
        self.batch * self.seq
    }

    /// Width of a head.
    pub fn head_dim(&self) -> usize {
        self.width / self.heads
    }

    /// Causal attention without a window.
    pub fn attention(&self) -> SelfAttention {
        let options = AttentionOptions {
            reach: Reach::Causal,
            scale: (self.head_dim() as f64).sqrt().recip(),
            soft_cap: None,
            dropout: 0.0,
            precision: Precision::F32,
        };
        SelfAttention {
            heads: self.heads,
            kv_heads: self.kv_heads,
            head_dim: self.head_dim(),
            options,
        }
    }
}
