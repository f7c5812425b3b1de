//! Cases of attention with options: inputs, and the expected outputs and gradients.

use burn::tensor::{Bool, Int, Tensor, TensorData, backend};
use emberlm_kernels::reference;
use emberlm_kernels::{AttentionMask, AttentionOptions, Backend, Reach};

use crate::attention::reaches;
use crate::compare::{Reference, causal, constant, host, numbers, primitive, typed};

/// `[batch, kv_heads, queries per key-value head, q_len, k_len, head_dim]`. The reach is full if there are more
/// queries than keys.
pub type Sizes = [usize; 6];

/// A case, whose inputs are determined by the seed.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub sizes: Sizes,
    pub options: AttentionOptions,
    /// True for documents of six keys each.
    pub documents: bool,
    /// True for a random padding mask that hides the whole first sequence if there are several.
    pub padding: bool,
    pub bias: bool,
    pub sinks: bool,
    pub seed: u64,
}

/// The options of a case as drawn by a strategy.
#[derive(Clone, Copy, Debug)]
pub struct DrawnOptions {
    pub sizes: Sizes,
    /// The window and the number of global tokens. A window of 0 stands for full reach, 1 for causal, and 2 for a window
    /// in both directions whose distance is the second number.
    pub limits: [usize; 2],
    /// Soft cap, documents, padding, bias and sinks.
    pub on: [bool; 5],
    pub seed: u64,
}

impl Case {
    pub fn new(drawn: DrawnOptions) -> Self {
        let [_, _, _, q_len, k_len, head_dim] = drawn.sizes;
        let [tokens, global_tokens] = drawn.limits;
        let reach = match tokens {
            _ if q_len > k_len => Reach::Full,
            0 => Reach::Full,
            1 => Reach::Causal,
            2 => Reach::Local {
                distance: global_tokens,
            },
            _ => Reach::Window {
                tokens,
                global_tokens,
            },
        };
        let [soft_cap, documents, padding, bias, sinks] = drawn.on;
        Self {
            sizes: drawn.sizes,
            options: AttentionOptions {
                reach,
                soft_cap: soft_cap.then_some(1.3),
                ..causal(1.0 / (head_dim as f64).sqrt())
            },
            documents: documents && !matches!(reach, Reach::Full | Reach::Local { .. }),
            padding,
            bias,
            sinks,
            seed: drawn.seed,
        }
    }

    pub fn q_dims(&self) -> [usize; 4] {
        let [batch, kv_heads, group, q_len, _, head_dim] = self.sizes;
        [batch, kv_heads * group, q_len, head_dim]
    }

    /// Queries, keys and values.
    pub fn numbers(&self) -> [TensorData; 3] {
        let [batch, kv_heads, _, _, k_len, head_dim] = self.sizes;
        let keys = [batch, kv_heads, k_len, head_dim];
        [
            numbers(self.seed, self.q_dims()),
            numbers(self.seed + 1, keys),
            numbers(self.seed + 2, keys),
        ]
    }

    pub fn bias(&self) -> Option<TensorData> {
        let [_, heads, q_len, _] = self.q_dims();
        self.bias
            .then(|| numbers(self.seed + 3, [heads, q_len, self.sizes[4]]))
    }

    /// Between those of keys, above and below all of them.
    pub fn sinks(&self) -> Option<TensorData> {
        let heads = self.q_dims()[1];
        self.sinks.then(|| numbers(self.seed + 5, [heads]))
    }

    pub fn first_keys(&self) -> Option<Vec<i64>> {
        let [batch, _, _, q_len, k_len, _] = self.sizes;
        self.documents.then(|| {
            let of = |at: usize| ((k_len - q_len + at % q_len) / 6 * 6) as i64;
            (0..batch * q_len).map(of).collect()
        })
    }

    pub fn visible_keys(&self) -> Option<Vec<bool>> {
        let [batch, _, _, _, k_len, _] = self.sizes;
        self.padding.then(|| {
            let drawn = numbers(self.seed + 4, [batch, k_len]);
            let seen = drawn.iter::<f32>().enumerate();
            // If there are several sequences, the first is all padding.
            seen.map(|(at, x)| x < 0.5 && (batch == 1 || at >= k_len))
                .collect()
        })
    }

    /// The mask with the given bias, and the sinks.
    pub fn mask<B: Backend>(&self, bias: Option<Tensor<B, 3>>) -> AttentionMask<B> {
        let [batch, _, _, q_len, k_len, _] = self.sizes;
        let device = Default::default();
        AttentionMask {
            documents: self.first_keys().map(|first| {
                Tensor::<B, 2, Int>::from_data(TensorData::new(first, [batch, q_len]), &device)
            }),
            padding: self.visible_keys().map(|seen| {
                Tensor::<B, 2, Bool>::from_data(TensorData::new(seen, [batch, k_len]), &device)
            }),
            bias,
            sinks: self.sinks().as_ref().map(constant::<B, 1>),
        }
    }

    pub fn tensors<B: Backend>(&self) -> ([Tensor<B, 4>; 3], Option<Tensor<B, 3>>) {
        let [q, k, v] = self.numbers().each_ref().map(constant::<B, 4>);
        ([q, k, v], self.bias().as_ref().map(constant::<B, 3>))
    }

    /// The output of an attention, then its gradients of queries, keys, values, bias and sinks.
    pub fn differentiated<B: Backend + backend::AutodiffBackend>(
        &self,
        attend: impl Fn([Tensor<B, 4>; 3], AttentionMask<B>) -> Tensor<B, 4>,
    ) -> Vec<Vec<f32>> {
        let (inputs, bias) = self.tensors::<B>();
        let inputs = inputs.map(Tensor::require_grad);
        let bias = bias.map(Tensor::require_grad);
        let mut mask = self.mask(bias.clone());
        mask.sinks = mask.sinks.map(Tensor::require_grad);
        let sinks = mask.sinks.clone();
        let output = attend(inputs.clone(), mask);
        let factors = constant::<B, 4>(&self.factors());
        let grads = (output.clone() * factors).sum().backward();
        let mut all = vec![host(output)];
        all.extend(inputs.map(|input| host(input.grad(&grads).unwrap())));
        all.extend(bias.map(|bias| host(bias.grad(&grads).unwrap())));
        all.extend(sinks.map(|sinks| host(sinks.grad(&grads).unwrap())));
        all
    }

    pub fn factors(&self) -> TensorData {
        numbers(99, self.q_dims())
    }

    /// Output and gradients of the reference implementation, differentiated by Burn.
    pub fn expected(&self) -> Vec<Vec<f32>> {
        self.differentiated::<Reference>(|inputs, mask| {
            let [q, k, v] = inputs.map(primitive);
            typed(reference::attention::<Reference>(
                q,
                k,
                v,
                mask,
                self.options,
            ))
        })
    }

    /// The output for these inputs, computed with plain loops in f64.
    pub fn by_loops(
        &self,
        [q, k, v]: [&[f64]; 3],
        bias: Option<&[f64]>,
        sinks: Option<&[f64]>,
    ) -> Vec<f64> {
        let [batch, kv_heads, group, q_len, k_len, head_dim] = self.sizes;
        let heads = kv_heads * group;
        let (first_keys, visible_keys) = (self.first_keys(), self.visible_keys());
        let mut output = Vec::new();
        for at in 0..batch * heads * q_len {
            let (b, h, i) = (at / (heads * q_len), at / q_len % heads, at % q_len);
            let first = first_keys
                .as_ref()
                .map_or(0, |of| of[b * q_len + i] as usize);
            let vector = |of: &[f64], key: usize| {
                let row = (b * kv_heads + h / group) * k_len + key;
                of[row * head_dim..][..head_dim].to_vec()
            };
            let position = (k_len + i).saturating_sub(q_len);
            let sees = |key: &usize| {
                let padded = visible_keys
                    .as_ref()
                    .is_some_and(|seen| !seen[b * k_len + key]);
                reaches(self.options.reach, position, first, *key) && *key >= first && !padded
            };
            let mut mixed = vec![0.0; head_dim];
            let mut sum = sinks.map_or(0.0, |sinks| sinks[h].exp());
            for key in (0..k_len).filter(sees) {
                let query = &q[at * head_dim..][..head_dim];
                let products = query.iter().zip(vector(k, key));
                let score = products.map(|(x, y)| x * y).sum::<f64>() * self.options.scale;
                let capped = |cap: f64| cap * (score / cap).tanh();
                let score = self.options.soft_cap.map_or(score, capped);
                let bias = bias.map_or(0.0, |bias| bias[(h * q_len + i) * k_len + key]);
                let weight = (score + bias).exp();
                sum += weight;
                for (mixed, x) in mixed.iter_mut().zip(vector(v, key)) {
                    *mixed += weight * x;
                }
            }
            // The output of a query without visible keys is 0.
            let sum = if sum == 0.0 { 1.0 } else { sum };
            output.extend(mixed.into_iter().map(|x| x / sum));
        }
        output
    }
}

/// The elements in f64.
pub fn f64s(data: &TensorData) -> Vec<f64> {
    data.iter::<f64>().collect()
}
