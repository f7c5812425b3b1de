//! The reference attentions as types that a backend can name as its own.

use burn::tensor::ops::FloatTensor;

use super::{
    BlockedState, WholeState, attention, attention_backward, attention_training, blocked_attention,
    blocked_attention_backward, blocked_attention_training, blocked_self_attention,
    blocked_self_attention_backward, blocked_self_attention_training, self_attention,
    self_attention_backward, self_attention_training,
};
use crate::{
    AttentionGradients, AttentionKernels, AttentionMask, AttentionOptions, BaseOps, RotaryAngles,
    SelfAttention, SelfAttentionGradients,
};

/// Attention that materializes the scores of all queries over all keys.
#[derive(Clone, Copy, Debug)]
pub struct WholeAttention;

/// Attention in blocks of queries, whose scores use at most [`crate::Backend::block_bytes`] at once: for devices whose memory limits the
/// batch size.
#[derive(Clone, Copy, Debug)]
pub struct BlockedAttention;

/// Implements the six operations by functions that may take additional trailing arguments.
macro_rules! composed {
    (
        $kernels:ty, $state:ident $(, $blocks:expr)?;
        $attention:ident, $training:ident, $backward:ident,
        $self_attention:ident, $self_training:ident, $self_backward:ident
    ) => {
        impl<B: BaseOps> AttentionKernels<B> for $kernels {
            type State = $state<B>;
            type SelfState = $state<B>;

            fn attention(
                q: FloatTensor<B>,
                k: FloatTensor<B>,
                v: FloatTensor<B>,
                mask: AttentionMask<B>,
                options: AttentionOptions,
            ) -> FloatTensor<B> {
                let options = options.usable::<B>(&q);
                $attention::<B>(q, k, v, mask, options $(, $blocks)?)
            }

            fn attention_training(
                q: FloatTensor<B>,
                k: FloatTensor<B>,
                v: FloatTensor<B>,
                mask: AttentionMask<B>,
                options: AttentionOptions,
            ) -> (FloatTensor<B>, $state<B>) {
                let options = options.usable::<B>(&q);
                $training::<B>(q, k, v, mask, options $(, $blocks)?)
            }

            fn attention_backward(
                state: $state<B>,
                grad: FloatTensor<B>,
                options: AttentionOptions,
                bias: bool,
            ) -> AttentionGradients<B> {
                let options = options.usable::<B>(&grad);
                $backward::<B>(state, grad, options, bias $(, $blocks)?)
            }

            fn self_attention(
                qkv: FloatTensor<B>,
                angles: Option<RotaryAngles<B>>,
                mask: AttentionMask<B>,
                config: SelfAttention,
            ) -> FloatTensor<B> {
                let config = config.usable::<B>(&qkv);
                $self_attention::<B>(qkv, angles, mask, config $(, $blocks)?)
            }

            fn self_attention_training(
                qkv: FloatTensor<B>,
                angles: Option<RotaryAngles<B>>,
                mask: AttentionMask<B>,
                config: SelfAttention,
            ) -> (FloatTensor<B>, $state<B>) {
                let config = config.usable::<B>(&qkv);
                $self_training::<B>(qkv, angles, mask, config $(, $blocks)?)
            }

            fn self_attention_backward(
                state: $state<B>,
                angles: Option<RotaryAngles<B>>,
                grad: FloatTensor<B>,
                config: SelfAttention,
                bias: bool,
            ) -> SelfAttentionGradients<B> {
                let config = config.usable::<B>(&grad);
                $self_backward::<B>(state, angles, grad, config, bias $(, $blocks)?)
            }
        }
    };
}

composed! {
    WholeAttention, WholeState;
    attention, attention_training, attention_backward,
    self_attention, self_attention_training, self_attention_backward
}

composed! {
    BlockedAttention, BlockedState, None;
    blocked_attention, blocked_attention_training, blocked_attention_backward,
    blocked_self_attention, blocked_self_attention_training, blocked_self_attention_backward
}
