//! The bidirectional transformer: token ids in, hidden states out.
//!
//! ```text
//! tokens ─► embedding + positions + segments ─► norm ─► block × n_layers ─► [norm] ─► states ─► [head]
//! ```
//!
//! | module | contents |
//! |---|---|
//! | `config` | [`EncoderSettings`]: an encoder in the words of published ones |
//! | `head_config`, `head` | masked language model, classifiers, pooler |
//! | `pooling` | one vector per text |
//! | `texts` | one pass over texts of unequal length, without padding |

mod config;
mod head;
mod head_config;
mod pooling;
mod texts;

pub use crate::config::{
    EncoderHeadConfig, PooledActivation, Pooling, ProblemType, TokenLayer, most_probable,
};
pub use config::{EncoderSettings, LocalWindow};
pub use head::{EncoderHead, MaskedLmHead, SequenceClassifier, TokenClassifier};
pub use texts::{TextStates, TextTokens};

use burn::tensor::{Bool, Int, Tensor};

use emberlm_kernels::{AttentionMask, Backend, HeadLossOptions};

use crate::nn::context::StackContext;
use crate::nn::probe::Probe;
use crate::transformer::input::ModelInput;
use crate::transformer::model::Transformer;

impl<B: Backend> Transformer<B> {
    /// Computes the final hidden states, `[batch, seq]` to `[batch, seq, d_model]`. States at padding tokens have no
    /// meaning.
    ///
    /// Ids must be below `vocab_size`, segments below `segments`, and texts at most [`TransformerConfig::seq_len`](crate::TransformerConfig::seq_len) long;
    /// [`TransformerConfig::check_tokens`](crate::TransformerConfig::check_tokens) checks input.
    pub fn states(&self, input: impl Into<ModelInput<B>>) -> Tensor<B, 3> {
        let (x, context) = self.embedded_with_context(input);
        self.stack.run(x, context, None)
    }

    /// [`Transformer::states`] with a probe, which sees the tensors inside and may replace them.
    pub fn states_probed(
        &self,
        input: impl Into<ModelInput<B>>,
        probe: &mut dyn Probe<B>,
    ) -> Tensor<B, 3> {
        let (x, context) = self.embedded_with_context(input);
        self.stack.run_probed(x, context, probe)
    }

    /// The attention weights after the softmax, one tensor `[batch, heads, seq, seq]` per block.
    pub fn text_attention_weights(&self, input: impl Into<ModelInput<B>>) -> Vec<Tensor<B, 4>> {
        let (x, context) = self.embedded_with_context(input);
        self.stack.run_attention_weights(x, context)
    }

    /// Computes the logits of every token, `[batch, seq, d_model]` to `[batch, seq, outputs]`: of the vocabulary for a
    /// masked language model, of the labels for a token classifier. `None` for other heads.
    pub fn token_logits(&self, states: Tensor<B, 3>) -> Option<Tensor<B, 3>> {
        let head = self.head.as_ref()?;
        head.token_logits(states, &self.embeddings.tokens)
    }

    /// The pooling of the states that [`Transformer::class_logits`] maps to labels; that of the first token without a
    /// sequence classifier.
    pub fn class_pooling(&self) -> Pooling {
        match &self.head {
            Some(EncoderHead::Sequence(classifier)) => classifier.pooling(),
            _ => Pooling::First,
        }
    }

    /// Pools the states of a padded batch for [`Transformer::class_logits`], `[batch, seq, d_model]` to `[batch, d_model]`.
    /// The padding mask `[batch, seq]` is false at padding tokens.
    pub fn class_states(
        &self,
        states: Tensor<B, 3>,
        padding: Option<Tensor<B, 2, Bool>>,
    ) -> Tensor<B, 2> {
        self.class_pooling().forward_padded(states, padding)
    }

    /// Computes the logits of a text's labels from its pooled states, `[texts, d_model]` to `[texts, labels]`.
    /// `None` without a sequence classifier.
    pub fn class_logits(&self, pooled: Tensor<B, 2>) -> Option<Tensor<B, 2>> {
        match &self.head {
            Some(EncoderHead::Sequence(classifier)) => Some(classifier.forward(pooled)),
            _ => None,
        }
    }

    /// The cross-entropy in nats of the head's outputs, summed over the targets that are at least 0, plus the additional
    /// terms of `options`: `[1]`. Targets are `[batch, seq]` for a head of tokens and `[batch, 1]` for a head of texts,
    /// which reads the pooled states. The padding mask `[batch, seq]` is false at padding tokens. `None` without such a head.
    pub fn head_loss_sum(
        &self,
        states: Tensor<B, 3>,
        padding: Option<Tensor<B, 2, Bool>>,
        targets: Tensor<B, 2, Int>,
        options: HeadLossOptions,
    ) -> Option<Tensor<B, 1>> {
        let head = self.head.as_ref()?;
        head.loss_sum(states, padding, &self.embeddings.tokens, targets, options)
    }

    /// The embedded tokens, `[batch, seq, d_model]`, and the context of the stack.
    pub(crate) fn embedded_with_context(
        &self,
        input: impl Into<ModelInput<B>>,
    ) -> (Tensor<B, 3>, StackContext<'static, B>) {
        let ModelInput {
            tokens,
            segments,
            padding,
            ..
        } = input.into();
        let offset = self.config().first_position();
        let embedded = self
            .embeddings
            .forward_with_segments(&tokens, segments, offset);
        let mask = AttentionMask {
            padding,
            ..AttentionMask::default()
        };
        (embedded, mask.into())
    }
}
