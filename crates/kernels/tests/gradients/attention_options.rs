//! Tests soft caps, biases, padding and full reach, through the trait and in the reference implementations.
//! Values are compared with plain loops in f64, gradients of queries, keys, values and bias with the reference
//! implementation differentiated by Burn, and its gradients with finite differences of the loops.

use burn::backend::Autodiff;
use burn::tensor::{Bool, Int, Tensor, TensorData, backend};
use burn_flex::Flex;
use emberlm_kernels::reference::{self, AttentionBlocks};
use emberlm_kernels::{
    AttentionMask, AttentionOptions, Backend, Precision, Reach, SelfAttention, ops,
};

use crate::attention::{TOLERANCE, reaches};
use crate::compare::{
    Reference, assert_all_within, assert_close, constant, host, numbers, primitive, typed,
};

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
    pub seed: u64,
}

/// The options of a case as drawn by a strategy.
#[derive(Clone, Copy, Debug)]
pub struct DrawnOptions {
    pub sizes: Sizes,
    /// The window and the number of global tokens. A window of 0 stands for full reach, 1 for causal, and 2 for a window
    /// in both directions whose distance is the second number.
    pub limits: [usize; 2],
    /// Soft cap, documents, padding and bias.
    pub on: [bool; 4],
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
        let [soft_cap, documents, padding, bias] = drawn.on;
        Self {
            sizes: drawn.sizes,
            options: AttentionOptions {
                reach,
                scale: 1.0 / (head_dim as f64).sqrt(),
                soft_cap: soft_cap.then_some(1.3),
                dropout: 0.0,
                precision: Precision::F32,
            },
            documents: documents && !matches!(reach, Reach::Full | Reach::Local { .. }),
            padding,
            bias,
            seed: drawn.seed,
        }
    }

    fn q_dims(&self) -> [usize; 4] {
        let [batch, kv_heads, group, q_len, _, head_dim] = self.sizes;
        [batch, kv_heads * group, q_len, head_dim]
    }

    /// Queries, keys and values.
    fn numbers(&self) -> [TensorData; 3] {
        let [batch, kv_heads, _, _, k_len, head_dim] = self.sizes;
        let keys = [batch, kv_heads, k_len, head_dim];
        [
            numbers(self.seed, self.q_dims()),
            numbers(self.seed + 1, keys),
            numbers(self.seed + 2, keys),
        ]
    }

    fn bias(&self) -> Option<TensorData> {
        let [_, heads, q_len, _] = self.q_dims();
        self.bias
            .then(|| numbers(self.seed + 3, [heads, q_len, self.sizes[4]]))
    }

    fn first_keys(&self) -> Option<Vec<i64>> {
        let [batch, _, _, q_len, k_len, _] = self.sizes;
        self.documents.then(|| {
            let of = |at: usize| ((k_len - q_len + at % q_len) / 6 * 6) as i64;
            (0..batch * q_len).map(of).collect()
        })
    }

    fn visible_keys(&self) -> Option<Vec<bool>> {
        let [batch, _, _, _, k_len, _] = self.sizes;
        self.padding.then(|| {
            let drawn = numbers(self.seed + 4, [batch, k_len]);
            let seen = drawn.iter::<f32>().enumerate();
            // If there are several sequences, the first is all padding.
            seen.map(|(at, x)| x < 0.5 && (batch == 1 || at >= k_len))
                .collect()
        })
    }

    /// The mask with the given bias.
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
        }
    }

    fn tensors<B: Backend>(&self) -> ([Tensor<B, 4>; 3], Option<Tensor<B, 3>>) {
        let [q, k, v] = self.numbers().each_ref().map(constant::<B, 4>);
        ([q, k, v], self.bias().as_ref().map(constant::<B, 3>))
    }

    /// The output of an attention, then its gradients of queries, keys, values and bias.
    fn differentiated<B: Backend + backend::AutodiffBackend>(
        &self,
        attend: impl Fn([Tensor<B, 4>; 3], AttentionMask<B>) -> Tensor<B, 4>,
    ) -> Vec<Vec<f32>> {
        let (inputs, bias) = self.tensors::<B>();
        let inputs = inputs.map(Tensor::require_grad);
        let bias = bias.map(Tensor::require_grad);
        let output = attend(inputs.clone(), self.mask(bias.clone()));
        let factors = constant::<B, 4>(&self.factors());
        let grads = (output.clone() * factors).sum().backward();
        let mut all = vec![host(output)];
        all.extend(inputs.map(|input| host(input.grad(&grads).unwrap())));
        all.extend(bias.map(|bias| host(bias.grad(&grads).unwrap())));
        all
    }

    fn factors(&self) -> TensorData {
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
    fn by_loops(&self, [q, k, v]: [&[f64]; 3], bias: Option<&[f64]>) -> Vec<f64> {
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
            let mut sum = 0.0;
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

fn block_sizes(sequences: usize, queries: usize) -> Option<AttentionBlocks> {
    Some(AttentionBlocks { sequences, queries })
}

fn f64s(data: &TensorData) -> Vec<f64> {
    data.iter::<f64>().collect()
}

/// Compares the trait and blocked attention with the reference implementation.
pub fn matches_reference<B: Backend>(drawn: DrawnOptions) {
    let case = Case::new(drawn);
    let expected = case.expected();
    let actual = case.differentiated::<Autodiff<B>>(|[q, k, v], mask| {
        ops::attention(q, k, v, mask, case.options)
    });
    assert_all_within(TOLERANCE, "attention", &actual, &expected);

    let queries = 1 + (case.seed % 5) as usize;
    let blocks = block_sizes(1, queries);
    let (inputs, bias) = case.tensors::<B>();
    let [q, k, v] = inputs.map(primitive);
    let (options, mask) = (case.options, case.mask(bias));
    let (output, state) =
        reference::blocked_attention_training::<B>(q, k, v, mask, options, blocks);
    let grad = primitive(constant::<B, 4>(&case.factors()));
    let made = reference::blocked_attention_backward::<B>(state, grad, options, case.bias, blocks);
    let actual = [output, made.q, made.k, made.v].map(|x| host(typed::<B, 4>(x)));
    let mut actual = actual.to_vec();
    actual.extend(made.bias.map(|x| host(typed::<B, 3>(x))));
    assert_all_within(TOLERANCE, "in blocks", &actual, &expected);
}

/// Compares the operations without gradients, whole and in blocks, and the weights with plain loops.
pub fn matches_loops<B: Backend>(drawn: DrawnOptions) {
    let case = Case::new(drawn);
    let [q, k, v] = case.numbers().each_ref().map(f64s);
    let bias = case.bias().as_ref().map(f64s);
    let expected = case.by_loops([&q, &k, &v], bias.as_deref());
    let expected: Vec<f32> = expected.into_iter().map(|x| x as f32).collect();
    let (inputs, bias) = case.tensors::<B>();
    let [q, k, v] = inputs.clone();
    let actual = ops::attention(q, k, v, case.mask(bias.clone()), case.options);
    assert_close("attention", &host(actual), &expected);
    let blocks = block_sizes(2, 3);
    let [q, k, v] = inputs.clone().map(primitive);
    let mask = case.mask(bias.clone());
    let actual = reference::blocked_attention::<B>(q, k, v, mask, case.options, blocks);
    assert_close("in blocks", &host(typed::<B, 4>(actual)), &expected);

    let [q, k, v] = inputs;
    let weights = ops::attention_weights(q, k, case.mask(bias), case.options);
    let [batch, kv_heads, group, _, k_len, head_dim] = case.sizes;
    let v = v.repeat_dim(2, group);
    let v = v.reshape([batch, kv_heads * group, k_len, head_dim]);
    assert_close("weights", &host(weights.matmul(v)), &expected);
}

/// Compares the gradients of the reference implementation, differentiated by Burn, with central differences of
/// the loops along a random direction.
pub fn reference_gradients_match_differences(drawn: DrawnOptions) {
    let case = Case::new(drawn);
    let gradients = case.expected();
    let mut inputs = case.numbers().each_ref().map(f64s).to_vec();
    inputs.extend(case.bias().as_ref().map(f64s));
    let factors = f64s(&case.factors());
    let loss = |inputs: &[Vec<f64>]| -> f64 {
        let bias = inputs.get(3).map(Vec::as_slice);
        let output = case.by_loops([&inputs[0], &inputs[1], &inputs[2]], bias);
        output.iter().zip(&factors).map(|(x, y)| x * y).sum()
    };
    for (place, gradient) in gradients[1..].iter().enumerate() {
        let direction = f64s(&numbers(7, [gradient.len()]));
        let step = 1e-5;
        let at = |step: f64| {
            let mut moved = inputs.clone();
            let pairs = moved[place].iter_mut().zip(&direction);
            pairs.for_each(|(x, by)| *x += by * step);
            loss(&moved)
        };
        let difference = (at(step) - at(-step)) / (2.0 * step);
        let products = gradient.iter().zip(&direction);
        let expected: f64 = products.map(|(x, by)| f64::from(*x) * by).sum();
        let norm: f64 = gradient.iter().map(|x| f64::from(*x).powi(2)).sum();
        assert!(
            (difference - expected).abs() <= 1e-4 * (1.0 + norm.sqrt()),
            "gradient {place}: {difference} by differences and not {expected}, {case:?}"
        );
    }
}

/// Attention over the output of a fused projection, with padding and a bias, whole and in blocks.
pub fn fused<B: Backend>(sizes: [usize; 4], full: bool, seed: u64) {
    let [batch, kv_heads, group, seq] = sizes;
    let (heads, head_dim) = (kv_heads * group, 4);
    let config = SelfAttention {
        heads,
        kv_heads,
        head_dim,
        options: AttentionOptions {
            reach: if full { Reach::Full } else { Reach::Causal },
            scale: 0.4,
            soft_cap: Some(1.1),
            dropout: 0.0,
            precision: Precision::F32,
        },
    };
    let qkv = numbers(seed, [batch, seq, (heads + 2 * kv_heads) * head_dim]);
    let bias = numbers(seed + 1, [heads, seq, seq]);
    let seen = numbers(seed + 2, [batch, seq]);
    let seen: Vec<bool> = seen.iter::<f32>().map(|x| x < 1.0).collect();
    let seen = TensorData::new(seen, [batch, seq]);
    fn mask<B: Backend>(seen: &TensorData, bias: Tensor<B, 3>) -> AttentionMask<B> {
        let seen = Tensor::<B, 2, Bool>::from_data(seen.clone(), &Default::default());
        AttentionMask {
            documents: None,
            padding: Some(seen),
            bias: Some(bias),
        }
    }
    let factors = numbers(99, [batch, seq, heads * head_dim]);

    let inputs = (
        constant::<Autodiff<B>, 3>(&qkv).require_grad(),
        constant::<Autodiff<B>, 3>(&bias).require_grad(),
    );
    let of = mask(&seen, inputs.1.clone());
    let output = ops::self_attention(inputs.0.clone(), None, of, config);
    let grads = (output.clone() * constant(&factors)).sum().backward();
    let gradients = [&inputs.0, &inputs.1].map(|x| host(x.grad(&grads).unwrap()));
    let actual: Vec<_> = std::iter::once(host(output)).chain(gradients).collect();

    let inputs = (
        constant::<Reference, 3>(&qkv).require_grad(),
        constant::<Reference, 3>(&bias).require_grad(),
    );
    let of = mask(&seen, inputs.1.clone());
    let output =
        reference::self_attention::<Reference>(primitive(inputs.0.clone()), None, of, config);
    let output = typed::<Reference, 3>(output);
    let grads = (output.clone() * constant(&factors)).sum().backward();
    let gradients = [&inputs.0, &inputs.1].map(|x| host(x.grad(&grads).unwrap()));
    let expected: Vec<_> = std::iter::once(host(output)).chain(gradients).collect();
    assert_all_within(TOLERANCE, "fused", &actual, &expected);

    let blocks = block_sizes(1, 4);
    let of = mask(&seen, constant::<B, 3>(&bias));
    let input = primitive(constant::<B, 3>(&qkv));
    let (output, state) =
        reference::blocked_self_attention_training::<B>(input, None, of, config, blocks);
    let grad = primitive(constant::<B, 3>(&factors));
    let made =
        reference::blocked_self_attention_backward::<B>(state, None, grad, config, true, blocks);
    let made = [Some(output), Some(made.qkv), made.bias];
    let actual: Vec<_> = made
        .into_iter()
        .flatten()
        .map(|x| host(typed::<B, 3>(x)))
        .collect();
    assert_all_within(TOLERANCE, "fused, in blocks", &actual, &expected);
}

/// The bias gradient with dropout equals finite differences on flex, since both passes drop the same weights.
pub fn bias_gradient_with_dropout_matches_differences() {
    use emberlm_kernels::AttentionKernels;
    type Tiled = <Flex as Backend>::Attention;

    let mut case = Case::new(DrawnOptions {
        sizes: [2, 1, 2, 9, 7, 4],
        limits: [0, 0],
        on: [true, false, true, true],
        seed: 11,
    });
    case.options.dropout = 0.3;
    let ([q, k, v], bias) = case.tensors::<Flex>();
    let bias = bias.unwrap();
    let attend = |bias: Tensor<Flex, 3>| {
        <Flex as backend::Backend>::seed(&Default::default(), 7);
        let [q, k, v] = [&q, &k, &v].map(|x| primitive(x.clone()));
        Tiled::attention_training(q, k, v, case.mask(Some(bias)), case.options)
    };
    let grad = constant::<Flex, 4>(&case.factors());
    let loss = |bias| {
        let output = typed::<Flex, 4>(attend(bias).0) * grad.clone();
        host(output).into_iter().map(f64::from).sum::<f64>()
    };
    let (_, state) = attend(bias.clone());
    let made = Tiled::attention_backward(state, primitive(grad.clone()), case.options, true);
    let made = typed::<Flex, 3>(made.bias.unwrap());
    let direction = constant::<Flex, 3>(&numbers(5, bias.dims()));
    let expected: f64 = host(made * direction.clone())
        .into_iter()
        .map(f64::from)
        .sum();
    let step = 1e-2;
    let moved = |step: f64| loss(bias.clone() + direction.clone() * step);
    let difference = (moved(step) - moved(-step)) / (2.0 * step);
    assert!(
        (difference - expected).abs() < 2e-3 * (1.0 + expected.abs()),
        "{difference} by differences and not {expected}"
    );
}

crate::on_backends! {
    matches_reference(
        drawn in drawn(),
    );
    matches_loops(
        drawn in drawn(),
    );
    fused(
        sizes in [1_usize..3, 1..3, 1..4, 1..11],
        full in any::<bool>(),
        seed in 0..u64::MAX - 3,
    );
}

/// Any combination of options for up to a dozen queries and keys.
pub fn drawn() -> impl proptest::prelude::Strategy<Value = DrawnOptions> {
    use proptest::prelude::*;

    (
        [1_usize..3, 1..3, 1..4, 1..12, 1..13, 1..7],
        [0_usize..8, 0..4],
        any::<[bool; 4]>(),
        0..u64::MAX - 5,
    )
        .prop_map(|(sizes, limits, on, seed)| DrawnOptions {
            sizes,
            limits,
            on,
            seed,
        })
}
