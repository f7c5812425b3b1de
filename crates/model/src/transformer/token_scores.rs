//! Losses of individual tokens for evaluation; training needs only their sum.

use burn::tensor::{Bool, Int, Tensor};
use emberlm_kernels::{Backend, reference};

use crate::nn::tokens::Tokens;
use crate::transformer::model::Transformer;

/// Scores of each target `[batch, seq]`.
#[derive(Clone, Debug)]
pub struct TokenScores<B: Backend> {
    /// `-ln p(target)` in nats, `[batch, seq]`; 0 where the target is ignored.
    pub losses: Tensor<B, 2>,
    /// True if no token is more probable than the target, so that greedy decoding would choose it, `[batch, seq]`. Also
    /// true for ignored targets: a sequence matches greedy decoding if all of its values are true.
    pub greedy: Tensor<B, 2, Bool>,
}

impl<B: Backend> Transformer<B> {
    /// Computes the cross-entropy in nats of every target, `[batch, seq]`; the sum is [`Transformer::loss_sum`]. `tokens`
    /// and `targets` are `[batch, seq]`. Logits are computed block by block and never held all at once.
    pub fn token_losses(
        &self,
        tokens: impl Into<Tokens<B>>,
        targets: Tensor<B, 2, Int>,
    ) -> Tensor<B, 2> {
        self.token_scores(tokens, targets).losses
    }

    /// Computes [`Transformer::token_losses`] and compares each target with greedy decoding.
    pub fn token_scores(
        &self,
        tokens: impl Into<Tokens<B>>,
        targets: Tensor<B, 2, Int>,
    ) -> TokenScores<B> {
        let bytes = B::block_bytes(&targets.device());
        let rows = reference::rows_per_block(self.config().vocab_size(), bytes);
        self.token_scores_in_blocks(tokens, targets, rows)
    }

    /// [`Transformer::token_scores`] with the logits of at most `rows` tokens in memory.
    fn token_scores_in_blocks(
        &self,
        tokens: impl Into<Tokens<B>>,
        targets: Tensor<B, 2, Int>,
        rows: usize,
    ) -> TokenScores<B> {
        let tokens = tokens.into();
        let [batch, seq] = tokens.dims();
        let (count, vocab_size) = (batch * seq, self.config().vocab_size());
        let hidden = self.hidden(tokens, None);
        let width = hidden.dims()[2];
        let hidden = hidden.reshape([1, count, width]);
        let targets = targets.reshape([count, 1]);
        let (mut losses, mut gaps) = (Vec::new(), Vec::new());
        for start in (0..count).step_by(rows) {
            let rows = rows.min(count - start);
            let logits = self.logits(hidden.clone().narrow(1, start, rows));
            let logits = logits.reshape([rows, vocab_size]);
            let targets = targets.clone().narrow(0, start, rows); // [rows, 1]
            let included = targets.clone().greater_equal_elem(0).float(); // [rows, 1]
            let target = logits.clone().gather(1, targets.clamp_min(0)); // [rows, 1]
            let max = logits.clone().max_dim(1); // [rows, 1]
            let log_sum = (logits - max.clone()).exp().sum_dim(1).log() + max.clone();
            losses.push((log_sum - target.clone()) * included.clone());
            gaps.push((max - target) * included);
        }
        TokenScores {
            losses: Tensor::cat(losses, 0).reshape([batch, seq]),
            greedy: Tensor::cat(gaps, 0)
                .reshape([batch, seq])
                .lower_equal_elem(0.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::TensorData;
    use burn_flex::Flex;

    use super::*;
    use crate::TransformerConfig;
    use crate::families;

    #[test]
    fn losses_do_not_depend_on_block_size() {
        let preset = families::preset("char-nano").unwrap();
        let mut raw = preset.config.clone();
        (raw.vocab_size, raw.seq_len, raw.d_model) = (Some(31), 8, 16);
        (raw.n_layers, raw.heads) = (1, 2);
        let device = Default::default();
        let decoder = TransformerConfig::try_from(raw)
            .unwrap()
            .init::<Flex>(3, &device);
        let ids = |seed: i32| {
            let ids: Vec<i32> = (0..14).map(|i| (i * 11 + seed * 5) % 31).collect();
            Tensor::<Flex, 2, Int>::from_data(TensorData::new(ids, [2, 7]), &device)
        };
        let found = [1, 3, 14, 100].map(|rows| {
            let scores = decoder.token_scores_in_blocks(ids(1), ids(2), rows);
            assert_eq!(scores.losses.dims(), [2, 7]);
            scores.losses.into_data().to_vec::<f32>().unwrap()
        });
        for other in &found[1..] {
            for (a, b) in found[0].iter().zip(other) {
                assert!((a - b).abs() < 1e-5, "{a} {b}");
            }
        }
    }
}
