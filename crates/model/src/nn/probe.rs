//! Probes: they see the tensors inside a pass at named sites, and may replace them.
//!
//! The names are those of TransformerLens (Nanda and Bloom 2022). Fused operations compute several steps without the tensors between them, so
//! blocks compute each step separately in a pass with a probe. Results are the same except for rounding.

use std::fmt;

use burn::tensor::Tensor;

use emberlm_kernels::Backend;

emberlm_system::named! {
    /// A tensor inside a block. Those of attentions are `[batch, heads, seq, head_dim]`, the others `[batch, seq, width]`.
    pub enum Point {
        /// The residual stream before the block.
        ResidPre = "hook_resid_pre",
        /// The output of the attention's norm.
        Norm1 = "ln1.hook_normalized",
        /// The queries, before their norm and the rotation.
        Queries = "attn.hook_q",
        /// The keys, before their norm and the rotation, `[batch, kv_heads, seq, head_dim]`.
        Keys = "attn.hook_k",
        /// The values, `[batch, kv_heads, seq, head_dim]`.
        Values = "attn.hook_v",
        /// The rotated queries.
        RotatedQueries = "attn.hook_rot_q",
        /// The rotated keys, `[batch, kv_heads, seq, head_dim]`.
        RotatedKeys = "attn.hook_rot_k",
        /// The attention weights, `[batch, heads, queries, keys]`.
        Pattern = "attn.hook_pattern",
        /// The weighted sums of the values.
        Mixed = "attn.hook_z",
        /// The term that the attention adds to the residual stream.
        AttentionOut = "hook_attn_out",
        /// The weights of the cross-attention, `[batch, heads, queries, memory]`.
        CrossPattern = "cross_attn.hook_pattern",
        /// The term that the cross-attention adds to the residual stream.
        CrossOut = "hook_cross_attn_out",
        /// The residual stream before the feed-forward layer. With post-norm wiring, before the attention's norm; parallel
        /// wiring has none.
        ResidMid = "hook_resid_mid",
        /// The output of the feed-forward layer's norm.
        Norm2 = "ln2.hook_normalized",
        /// The input of the activation function, `[batch, seq, hidden]`.
        FeedForwardPre = "mlp.hook_pre",
        /// The factor of a gated layer that has no activation function, `[batch, seq, hidden]`.
        FeedForwardLinear = "mlp.hook_pre_linear",
        /// The input of the feed-forward layer's last projection, `[batch, seq, hidden]`.
        FeedForwardPost = "mlp.hook_post",
        /// The probabilities that a router gives to its experts, `[batch, seq, experts]`. The choice of experts depends on them.
        ExpertWeights = "mlp.hook_expert_weights",
        /// The term that the feed-forward layer adds to the residual stream.
        FeedForwardOut = "hook_mlp_out",
        /// The residual stream after the block. With post-norm wiring, before the last norm.
        ResidPost = "hook_resid_post",
    }
}

/// The place of a tensor in a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Site {
    /// A tensor of block `layer`: `blocks.0.hook_resid_pre`.
    Block {
        /// The block's index.
        layer: usize,
        /// The tensor.
        point: Point,
    },
    /// The output of the norm after the last block, or that of the last block if there is no such norm: `ln_final.hook_normalized`.
    Final,
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Block { layer, point } => write!(f, "blocks.{layer}.{}", point.name()),
            Self::Final => f.write_str("ln_final.hook_normalized"),
        }
    }
}

/// Sees the tensors of a pass. Each method returns the tensor with which the pass continues, of the same shape.
pub trait Probe<B: Backend>: fmt::Debug {
    /// Sees rows `[batch, seq, width]`.
    fn rows(&mut self, site: Site, x: Tensor<B, 3>) -> Tensor<B, 3>;

    /// Sees the heads of an attention, `[batch, heads, seq, width]`.
    fn heads(&mut self, site: Site, x: Tensor<B, 4>) -> Tensor<B, 4>;
}

/// A probe in one block.
#[derive(Debug)]
pub(crate) struct LayerProbe<'p, B: Backend> {
    pub layer: usize,
    pub probe: &'p mut (dyn Probe<B> + 'p),
}

impl<B: Backend> LayerProbe<'_, B> {
    /// The same probe for a shorter time.
    pub fn reborrowed(&mut self) -> LayerProbe<'_, B> {
        LayerProbe {
            layer: self.layer,
            probe: self.probe,
        }
    }

    pub fn rows(&mut self, point: Point, x: Tensor<B, 3>) -> Tensor<B, 3> {
        let layer = self.layer;
        self.probe.rows(Site::Block { layer, point }, x)
    }

    pub fn heads(&mut self, point: Point, x: Tensor<B, 4>) -> Tensor<B, 4> {
        let layer = self.layer;
        self.probe.heads(Site::Block { layer, point }, x)
    }
}

/// Collects the attention weights of every block.
#[derive(Debug)]
pub(crate) struct Patterns<B: Backend> {
    /// [`Point::Pattern`] or [`Point::CrossPattern`].
    pub of: Point,
    /// `[batch, heads, queries, keys]` per block.
    pub weights: Vec<Tensor<B, 4>>,
}

impl<B: Backend> Probe<B> for Patterns<B> {
    fn rows(&mut self, _: Site, x: Tensor<B, 3>) -> Tensor<B, 3> {
        x
    }

    fn heads(&mut self, site: Site, x: Tensor<B, 4>) -> Tensor<B, 4> {
        if matches!(site, Site::Block { point, .. } if point == self.of) {
            self.weights.push(x.clone());
        }
        x
    }
}
