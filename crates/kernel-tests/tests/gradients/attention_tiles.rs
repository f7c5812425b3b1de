//! Compares a backend's own attention with the reference implementation on flex: outputs and gradients without the
//! gradient of a bias, with the dropout mask that its state describes. Both passes run twice, with the same bits.

use burn::tensor::{DType, Int, Tensor, TensorData, TensorMetadata};
use burn_flex::Flex;
use emberlm_kernels::reference::{self, BlockedState, DropoutDraws};
use emberlm_kernels::{
    AttentionKernels, AttentionMask, Backend, Precision, RotaryAngles, RotaryLayout, ops,
};

use crate::attention::TOLERANCE;
use crate::attention_case::{Case, DrawnOptions};
use crate::compare::{
    self, assert_all_within, assert_close, constant, host, numbers, primitive, random_state, typed,
};
use crate::precision::assert_rounded;

/// The prime of the dropout.
const PRIME: i64 = 46_337;

/// A case of [`Case::new`] with this rate of dropout.
pub fn case(sizes: [usize; 6], limits: [usize; 2], on: [bool; 5], dropout: f64) -> Case {
    let mut case = Case::new(DrawnOptions {
        sizes,
        limits,
        on,
        seed: 5,
    });
    case.options.dropout = dropout;
    case
}

/// Compares training and its gradients, and the output without dropout. `state` converts the state to that of the reference
/// implementation.
pub fn matches_reference<B: Backend>(
    case: Case,
    state: impl Fn(<B::Attention as AttentionKernels<B>>::State) -> BlockedState<B>,
) {
    let made = made_by::<B>(&case);
    // The random numbers of two runs differ.
    if case.options.dropout == 0.0 {
        let again = made_by::<B>(&case);
        assert_eq!(made.1, again.1, "two runs of {case:?}");
    }
    let (saved, actual, whole) = made;
    let saved = state(saved);
    let draws = saved
        .draws
        .map(|of| [of.queries, of.keys].map(integers::<B>));

    let ([q, k, v], bias) = case.tensors::<Flex>();
    let mask = case.mask::<Flex>(bias.clone());
    let mut weights = host(ops::attention_weights(
        q.clone(),
        k.clone(),
        mask.clone(),
        case.options,
    ));
    let (options, drop) = (case.options, case.options.dropout > 0.0);
    assert_eq!(draws.is_some(), drop);
    assert_close("without dropout", &whole, &mixed(&case, &weights));
    if let Some([queries, keys]) = &draws {
        drop_weights(&case, &mut weights, queries.1.as_slice(), keys.1.as_slice());
    }
    let output = mixed(&case, &weights);
    let expected_state = BlockedState {
        q: primitive(q),
        k: primitive(k),
        v: primitive(v),
        output: primitive(constant::<Flex, 4>(&TensorData::new(
            output.clone(),
            case.q_dims(),
        ))),
        log_sums: primitive(constant::<Flex, 4>(
            &typed::<B, 4>(saved.log_sums).into_data(),
        )),
        mask,
        draws: draws.map(|of| {
            let [queries, keys] = of.map(|(shape, values)| {
                let data = TensorData::new(values, shape);
                Tensor::<Flex, 4, Int>::from_data(data, &Default::default()).into_primitive()
            });
            DropoutDraws { queries, keys }
        }),
    };
    let grad = primitive(constant::<Flex, 4>(&case.factors()));
    let made =
        reference::blocked_attention_backward::<Flex>(expected_state, grad, options, false, None);
    let grads = [made.q, made.k, made.v].map(|x| host(typed::<Flex, 4>(x)));
    let mut expected: Vec<_> = std::iter::once(output).chain(grads).collect();
    expected.extend(made.sinks.map(|x| host(typed::<Flex, 1>(x))));
    assert_all_within(TOLERANCE, &format!("{case:?}"), &actual, &expected);
}

type Made<B> = (
    <<B as Backend>::Attention as AttentionKernels<B>>::State,
    Vec<Vec<f32>>,
    Vec<f32>,
);

/// The state, the output and its gradients in training, and the output without dropout.
fn made_by<B: Backend>(case: &Case) -> Made<B> {
    let _drawing = random_state();
    let (inputs, bias) = case.tensors::<B>();
    let [q, k, v] = inputs.map(primitive);
    let mask = case.mask::<B>(bias);
    let whole =
        B::Attention::attention(q.clone(), k.clone(), v.clone(), mask.clone(), case.options);
    let (output, state) = B::Attention::attention_training(q, k, v, mask, case.options);
    let grad = primitive(constant::<B, 4>(&case.factors()));
    let made = B::Attention::attention_backward(state.clone(), grad, case.options, false);
    let all = [output, made.q, made.k, made.v].map(|x| host(typed::<B, 4>(x)));
    let sinks = made.sinks.map(|x| host(typed::<B, 1>(x)));
    let all = all.into_iter().chain(sinks).collect();
    (state, all, host(typed::<B, 4>(whole)))
}

/// The sums of the values with weights `[batch, heads, q_len, k_len]`.
fn mixed(case: &Case, weights: &[f32]) -> Vec<f32> {
    let ([_, _, v], _) = case.tensors::<Flex>();
    let [batch, kv_heads, group, q_len, k_len, _] = case.sizes;
    let weights = TensorData::new(weights.to_vec(), [batch, kv_heads, group * q_len, k_len]);
    host(constant::<Flex, 4>(&weights).matmul(v))
}

/// Applies the dropout of these draws.
fn drop_weights(case: &Case, weights: &mut [f32], queries: &[i64], keys: &[i64]) {
    let k_len = case.sizes[4];
    let bound = ((1.0 - case.options.dropout) * PRIME as f64).round() as i64;
    for (at, weight) in weights.iter_mut().enumerate() {
        let of = &queries[at / k_len * 3..][..3];
        let (x, d) = (keys[at % k_len], keys[k_len + at % k_len]);
        let u = (of[0] * x + of[1]) % PRIME;
        let v = (u * u % PRIME * u % PRIME * d + of[2]) % PRIME;
        let kept = PRIME as f32 / bound as f32;
        *weight *= if v < bound { kept } else { 0.0 };
    }
}

/// The shape and elements of a tensor of integers.
fn integers<B: Backend>(x: burn::tensor::ops::IntTensor<B>) -> (Vec<usize>, Vec<i64>) {
    let data = Tensor::<B, 4, Int>::from_primitive(x).into_data();
    (data.shape.to_vec(), data.iter::<i64>().collect())
}

/// A single or few queries over a cache of keys that are not contiguous, whose keys are divided among cubes.
pub fn decoding<B: Backend>(q_len: usize, padding: bool, limits: [usize; 2]) {
    let case = case(
        [2, 2, 3, q_len, 1_100, 40],
        limits,
        [false, false, padding, false, false],
        0.0,
    );
    let attend = || {
        let ([q, k, v], _) = case.tensors::<B>();
        // As in a cache with room for more tokens.
        let [k, v] = [k, v].map(|x| {
            let more = Tensor::ones([2, 2, 36, 40], &x.device());
            primitive(Tensor::cat(vec![x, more], 2).narrow(2, 0, 1_100))
        });
        let mask = case.mask::<B>(None);
        host(typed::<B, 4>(B::Attention::attention(
            primitive(q),
            k,
            v,
            mask,
            case.options,
        )))
    };
    let actual = attend();
    assert_eq!(actual, attend(), "two runs");
    let ([q, k, v], _) = case.tensors::<Flex>();
    let [q, k, v] = [q, k, v].map(primitive);
    let expected = reference::attention::<Flex>(q, k, v, case.mask(None), case.options);
    assert_close("decoding", &actual, &host(typed::<Flex, 4>(expected)));
}

/// Attention over the output of a fused projection whose heads are rotated by some pairs of elements.
pub fn fused<B: Backend>(sizes: [usize; 5], pairs: usize, layout: RotaryLayout) {
    let [batch, kv_heads, group, seq, head_dim] = sizes;
    let mut config = compare::fused(kv_heads * group, kv_heads, head_dim);
    config.options.scale = 0.2;
    let width = (config.heads + 2 * config.kv_heads) * head_dim;
    fn angles<C: Backend>(seq: usize, pairs: usize, layout: RotaryLayout) -> RotaryAngles<C> {
        RotaryAngles {
            layout,
            cos: primitive(constant::<C, 2>(&numbers(2, [seq, pairs]))),
            sin: primitive(constant::<C, 2>(&numbers(3, [seq, pairs]))),
        }
    }
    let qkv = numbers(1, [batch, seq, width]);
    let grad = numbers(4, [batch, seq, config.heads * head_dim]);

    let input = || primitive(constant::<B, 3>(&qkv));
    let of = || (pairs > 0).then(|| angles::<B>(seq, pairs, layout));
    let (output, state) =
        B::Attention::self_attention_training(input(), of(), AttentionMask::default(), config);
    let factors = primitive(constant::<B, 3>(&grad));
    let made = B::Attention::self_attention_backward(state, of(), factors, config, false);
    let whole = B::Attention::self_attention(input(), of(), AttentionMask::default(), config);
    let actual = [output, made.qkv, whole].map(|x| host(typed::<B, 3>(x)));

    let input = primitive(constant::<Flex, 3>(&qkv));
    let of = (pairs > 0).then(|| angles::<Flex>(seq, pairs, layout));
    let mask = AttentionMask::default();
    let (output, state) =
        reference::self_attention_training::<Flex>(input, of.clone(), mask, config);
    let factors = primitive(constant::<Flex, 3>(&grad));
    let made = reference::self_attention_backward::<Flex>(state, of, factors, config, false);
    let expected = [output.clone(), made.qkv, output].map(|x| host(typed::<Flex, 3>(x)));
    assert_all_within(TOLERANCE, "fused", &actual, &expected);
}

/// Inputs and outputs in f16, with products of f32.
pub fn f16_tensors<B: Backend>() {
    let case = case([1, 2, 2, 70, 70, 24], [1, 0], [false; 5], 0.0);
    let narrow = |x: Tensor<B, 4>| primitive(x.cast(DType::F16));
    let ([q, k, v], _) = case.tensors::<B>();
    let [q, k, v] = [q, k, v].map(narrow);
    let mask = AttentionMask::default();
    let (output, state) = B::Attention::attention_training(q, k, v, mask, case.options);
    assert_eq!(output.dtype(), DType::F16);
    let grad = narrow(constant(&case.factors()));
    let made = B::Attention::attention_backward(state, grad, case.options, false);
    let actual = [output, made.q, made.k, made.v].map(|x| host(typed::<B, 4>(x)));
    assert_all_within(2e-3, "in f16", &actual, &made_by::<Flex>(&case).1);
}

/// Products of operands rounded to `precision`.
pub fn products_are_rounded<B: Backend>(precision: Precision, unit: f64) {
    let mut case = case([1, 2, 2, 70, 70, 24], [1, 0], [false; 5], 0.0);
    let expected = made_by::<Flex>(&case).1;
    case.options.precision = precision;
    let actual = made_by::<B>(&case).1;
    assert_rounded("attention in tiles", &actual, &expected, unit, 8.0);
}
