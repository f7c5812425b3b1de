//! Linear biases of the scores by distance (Press et al. 2021, "ALiBi").

use burn::module::Module;
use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::{Device, Int, Tensor, TensorData};

use emberlm_kernels::{AttentionMask, Backend};

/// Fixed slopes of the heads. They are not stored with the weights.
#[derive(Module, Debug)]
pub(crate) struct AlibiSlopes<B: BurnBackend> {
    /// `[heads, 1, 1]`.
    slopes: Tensor<B, 3>,
}

impl<B: Backend> AlibiSlopes<B> {
    pub(crate) fn init(heads: usize, device: &Device<B>) -> Self {
        let slopes = slopes(heads).map(|slope| slope as f32).collect();
        Self {
            slopes: Tensor::from_data(TensorData::new(slopes, [heads, 1, 1]), device),
        }
    }

    /// Adds the biases of `seq` queries from position `offset` on to a mask over all keys, cached and new.
    pub(crate) fn added(
        &self,
        mask: AttentionMask<B>,
        offset: usize,
        seq: usize,
    ) -> AttentionMask<B> {
        let device = self.slopes.device();
        let (start, end) = (offset as i64, (offset + seq) as i64);
        let keys = Tensor::<B, 1, Int>::arange(0..end, &device).float();
        let queries = Tensor::<B, 1, Int>::arange(start..end, &device).float();
        // At most 0 for every key that causal attention attends to.
        let distance = keys.reshape([1, 1, offset + seq]) - queries.reshape([1, seq, 1]);
        let bias = distance * self.slopes.clone(); // [heads, seq, offset + seq]
        AttentionMask {
            bias: Some(match mask.bias {
                Some(other) => other + bias,
                None => bias,
            }),
            ..mask
        }
    }
}

/// Powers of `2^(-8/n)` for `n` heads if `n` is a power of two. Otherwise those of the power of two below, and every
/// second one of the power of two above.
fn slopes(heads: usize) -> impl Iterator<Item = f64> {
    let below = match heads.is_power_of_two() {
        true => heads,
        false => heads.next_power_of_two() / 2,
    };
    let power = |of: usize, exponent: usize| (-8.0 * exponent as f64 / of as f64).exp2();
    let first = (1..=below).map(move |i| power(below, i));
    let further = (0..heads - below).map(move |i| power(2 * below, 2 * i + 1));
    first.chain(further)
}

#[cfg(test)]
mod tests {
    use super::*;

    // In the paper, 8 heads have 1/2, 1/4, …, 1/256. 12 heads have those of 8, then the first, third, … of 16.
    #[test]
    fn slopes_are_those_of_the_paper() {
        let eight: Vec<f64> = slopes(8).collect();
        let powers: Vec<f64> = (1..=8).map(|i| f64::from(i).exp2().recip()).collect();
        assert_eq!(eight, powers);
        let twelve: Vec<f64> = slopes(12).collect();
        assert_eq!(twelve[..8], eight);
        let between = [-0.5, -1.5, -2.5, -3.5].map(f64::exp2);
        assert_eq!(twelve[8..], between);
        assert_eq!(slopes(1).collect::<Vec<_>>(), [1.0 / 256.0]);
    }
}
