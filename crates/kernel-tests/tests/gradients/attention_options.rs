//! Tests soft caps, biases, sinks, padding and full reach, through the trait and in the reference implementations.
//! Values are compared with plain loops in f64, gradients of queries, keys, values, bias and sinks with the reference
//! implementation differentiated by Burn, and its gradients with finite differences of the loops.

use burn::backend::Autodiff;
use burn::tensor::{Bool, Tensor, TensorData, backend};
use burn_flex::Flex;
use emberlm_kernels::reference::{self, AttentionBlocks};
use emberlm_kernels::{AttentionMask, Backend, Reach, ops};

use crate::attention::TOLERANCE;
use crate::attention_case::{Case, DrawnOptions, f64s};
use crate::compare::{
    self, Reference, assert_all_within, assert_close, constant, host, numbers, primitive,
    random_state, typed,
};

fn block_sizes(sequences: usize, queries: usize) -> Option<AttentionBlocks> {
    Some(AttentionBlocks { sequences, queries })
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
    actual.extend(made.sinks.map(|x| host(typed::<B, 1>(x))));
    assert_all_within(TOLERANCE, "in blocks", &actual, &expected);
}

/// Compares the operations without gradients, whole and in blocks, and the weights with plain loops.
pub fn matches_loops<B: Backend>(drawn: DrawnOptions) {
    let case = Case::new(drawn);
    let [q, k, v] = case.numbers().each_ref().map(f64s);
    let bias = case.bias().as_ref().map(f64s);
    let sinks = case.sinks().as_ref().map(f64s);
    let expected = case.by_loops([&q, &k, &v], bias.as_deref(), sinks.as_deref());
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
    inputs.extend(case.sinks().as_ref().map(f64s));
    let factors = f64s(&case.factors());
    let loss = |inputs: &[Vec<f64>]| -> f64 {
        let mut others = inputs[3..].iter().map(Vec::as_slice);
        let bias = case.bias.then(|| others.next()).flatten();
        let sinks = others.next();
        let output = case.by_loops([&inputs[0], &inputs[1], &inputs[2]], bias, sinks);
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

/// Attention over the output of a fused projection, with padding, a bias and sinks, whole and in blocks.
pub fn fused<B: Backend>(sizes: [usize; 4], full: bool, seed: u64) {
    let [batch, kv_heads, group, seq] = sizes;
    let (heads, head_dim) = (kv_heads * group, 4);
    let mut config = compare::fused(heads, kv_heads, head_dim);
    config.options.soft_cap = Some(1.1);
    if full {
        config.options.reach = Reach::Full;
    }
    let qkv = numbers(seed, [batch, seq, (heads + 2 * kv_heads) * head_dim]);
    let bias = numbers(seed + 1, [heads, seq, seq]);
    let seen = numbers(seed + 2, [batch, seq]);
    let seen: Vec<bool> = seen.iter::<f32>().map(|x| x < 1.0).collect();
    let seen = TensorData::new(seen, [batch, seq]);
    let sinks = numbers(seed + 3, [heads]);
    fn mask<B: Backend>(
        seen: &TensorData,
        bias: Tensor<B, 3>,
        sinks: Tensor<B, 1>,
    ) -> AttentionMask<B> {
        let seen = Tensor::<B, 2, Bool>::from_data(seen.clone(), &Default::default());
        AttentionMask {
            documents: None,
            padding: Some(seen),
            bias: Some(bias),
            sinks: Some(sinks),
        }
    }
    let factors = numbers(99, [batch, seq, heads * head_dim]);

    let inputs = (
        constant::<Autodiff<B>, 3>(&qkv).require_grad(),
        constant::<Autodiff<B>, 3>(&bias).require_grad(),
        constant::<Autodiff<B>, 1>(&sinks).require_grad(),
    );
    let of = mask(&seen, inputs.1.clone(), inputs.2.clone());
    let output = ops::self_attention(inputs.0.clone(), None, of, config);
    let grads = (output.clone() * constant(&factors)).sum().backward();
    let gradients = [&inputs.0, &inputs.1].map(|x| host(x.grad(&grads).unwrap()));
    let mut actual: Vec<_> = std::iter::once(host(output)).chain(gradients).collect();
    actual.push(host(inputs.2.grad(&grads).unwrap()));

    let inputs = (
        constant::<Reference, 3>(&qkv).require_grad(),
        constant::<Reference, 3>(&bias).require_grad(),
        constant::<Reference, 1>(&sinks).require_grad(),
    );
    let of = mask(&seen, inputs.1.clone(), inputs.2.clone());
    let output =
        reference::self_attention::<Reference>(primitive(inputs.0.clone()), None, of, config);
    let output = typed::<Reference, 3>(output);
    let grads = (output.clone() * constant(&factors)).sum().backward();
    let gradients = [&inputs.0, &inputs.1].map(|x| host(x.grad(&grads).unwrap()));
    let mut expected: Vec<_> = std::iter::once(host(output)).chain(gradients).collect();
    expected.push(host(inputs.2.grad(&grads).unwrap()));
    assert_all_within(TOLERANCE, "fused", &actual, &expected);

    let blocks = block_sizes(1, 4);
    let of = mask(&seen, constant::<B, 3>(&bias), constant::<B, 1>(&sinks));
    let input = primitive(constant::<B, 3>(&qkv));
    let (output, state) =
        reference::blocked_self_attention_training::<B>(input, None, of, config, blocks);
    let grad = primitive(constant::<B, 3>(&factors));
    let made =
        reference::blocked_self_attention_backward::<B>(state, None, grad, config, true, blocks);
    let sinks = made.sinks;
    let made = [Some(output), Some(made.qkv), made.bias];
    let mut actual: Vec<_> = made
        .into_iter()
        .flatten()
        .map(|x| host(typed::<B, 3>(x)))
        .collect();
    actual.extend(sinks.map(|x| host(typed::<B, 1>(x))));
    assert_all_within(TOLERANCE, "fused, in blocks", &actual, &expected);
}

/// The bias gradient with dropout equals finite differences on flex, since both passes drop the same weights.
pub fn bias_gradient_with_dropout_matches_differences() {
    use emberlm_kernels::AttentionKernels;
    type Tiled = <Flex as Backend>::Attention;

    let mut case = Case::new(DrawnOptions {
        sizes: [2, 1, 2, 9, 7, 4],
        limits: [0, 0],
        on: [true, false, true, true, true],
        seed: 11,
    });
    case.options.dropout = 0.3;
    let ([q, k, v], bias) = case.tensors::<Flex>();
    let bias = bias.unwrap();
    let attend = |bias: Tensor<Flex, 3>| {
        let _drawing = random_state();
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
        seed in 0..u64::MAX - 4,
    );
}

/// Any combination of options for up to a dozen queries and keys.
pub fn drawn() -> impl proptest::prelude::Strategy<Value = DrawnOptions> {
    use proptest::prelude::*;

    (
        [1_usize..3, 1..3, 1..4, 1..12, 1..13, 1..7],
        [0_usize..8, 0..4],
        any::<[bool; 5]>(),
        0..u64::MAX - 6,
    )
        .prop_map(|(sizes, limits, on, seed)| DrawnOptions {
            sizes,
            limits,
            on,
            seed,
        })
}
