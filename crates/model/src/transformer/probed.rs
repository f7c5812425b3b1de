//! Passes with a probe.

use burn::tensor::{Int, Tensor};
use emberlm_kernels::Backend;

use crate::nn::probe::Probe;
use crate::nn::tokens::Tokens;
use crate::transformer::model::Transformer;

impl<B: Backend> Transformer<B> {
    /// [`Transformer::forward`] with a probe, which sees the tensors inside and may replace them.
    pub fn forward_probed(
        &self,
        tokens: Tensor<B, 2, Int>,
        probe: &mut dyn Probe<B>,
    ) -> Tensor<B, 3> {
        let hidden = self.hidden_states_probed(tokens, probe);
        self.logits(hidden)
    }

    /// [`Transformer::forward_probed`] with the logits of only the last position: `[batch, vocab_size]`.
    pub fn next_logits_probed(
        &self,
        tokens: Tensor<B, 2, Int>,
        probe: &mut dyn Probe<B>,
    ) -> Tensor<B, 2> {
        let hidden = self.hidden_states_probed(tokens, probe);
        self.last_logits(hidden)
    }

    /// [`Transformer::hidden_states`] with a probe, which sees the tensors inside and may replace them.
    pub fn hidden_states_probed(
        &self,
        tokens: impl Into<Tokens<B>>,
        probe: &mut dyn Probe<B>,
    ) -> Tensor<B, 3> {
        let tokens = tokens.into();
        let x = self.embeddings.forward(&tokens, 0);
        self.stack.run_probed(x, tokens.into(), probe)
    }
}
