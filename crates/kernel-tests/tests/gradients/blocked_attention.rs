//! Compares blocked attention with attention without blocks: values, log-sums and gradients, for any block sizes.
//! Also tests that the state for the backward pass is linear in the sequence length.

use burn::tensor::{Int, Tensor, TensorData, TensorMetadata};
use burn_flex::Flex;
use emberlm_kernels::reference::{self, AttentionBlocks, BlockedState};
use emberlm_kernels::{AttentionMask, Backend, RotaryAngles, RotaryLayout};

use crate::attention::{Case, Limits, Sizes, TOLERANCE, dropped_gradients_of};
use crate::compare::{
    self, assert_all_within, assert_close, constant, host, numbers, primitive, random_state, typed,
};

fn block_sizes([sequences, queries]: [usize; 2]) -> Option<AttentionBlocks> {
    Some(AttentionBlocks { sequences, queries })
}

/// The forward and backward passes use different blocks.
pub fn matches_unblocked<B: Backend>(
    sizes: Sizes,
    reach: Limits,
    documents: bool,
    blocks_of_passes: [[usize; 2]; 2],
    seed: u64,
) {
    let case = Case::new(sizes, reach, documents, seed);
    let (output, state) = trained::<B>(&case, blocks_of_passes[0]);
    let (by_loops, log_sums) = case.by_loops();
    let actual = host(typed::<B, 4>(state.log_sums.clone()));
    assert_close("sums of exponentials", &actual, &log_sums);
    let factors = constant::<B, 4>(&numbers(99, output.dims()));
    let made = reference::blocked_attention_backward::<B>(
        state,
        primitive(factors),
        case.options,
        false,
        block_sizes(blocks_of_passes[1]),
    );
    let grads = [made.q, made.k, made.v].map(|grad| host(typed::<B, 4>(grad)));
    let actual: Vec<_> = std::iter::once(host(output)).chain(grads).collect();
    assert_all_within(TOLERANCE, "in blocks", &actual, &case.expected());

    let [q, k, v] = inputs::<B>(&case);
    let mask = case.mask::<B>();
    let output = reference::blocked_attention::<B>(
        q,
        k,
        v,
        mask,
        case.options,
        block_sizes(blocks_of_passes[0]),
    );
    assert_close("prediction", &host(typed::<B, 4>(output)), &by_loops);
}

pub fn inputs<B: Backend>(case: &Case) -> [burn::tensor::ops::FloatTensor<B>; 3] {
    [&case.q, &case.k, &case.v].map(|data| primitive(constant::<B, 4>(data)))
}

fn trained<B: Backend>(case: &Case, blocks: [usize; 2]) -> (Tensor<B, 4>, BlockedState<B>) {
    let [q, k, v] = inputs::<B>(case);
    let mask = case.mask::<B>();
    let (output, state) = reference::blocked_attention_training::<B>(
        q,
        k,
        v,
        mask,
        case.options,
        block_sizes(blocks),
    );
    (typed(output), state)
}

/// The forward pass uses several blocks, and the backward pass the default, a single block. The gradients are
/// those of the product with explicit dropout factors, differentiated by Burn.
fn dropout_is_independent_of_blocks<B: Backend>(
    sizes: Sizes,
    documents: bool,
    blocks: [usize; 2],
    seed: u64,
) {
    dropped_gradients_of::<B, _>(
        sizes,
        documents,
        seed,
        |[q, k, v], mask, options| {
            let blocks = block_sizes(blocks);
            reference::blocked_attention_training::<B>(q, k, v, mask, options, blocks)
        },
        |state, grad, options| {
            reference::blocked_attention_backward::<B>(state, grad, options, false, None)
        },
    );
}

/// Attention over the output of a fused projection, with and without rotation.
pub fn fused<B: Backend>(sizes: [usize; 5], blocks: [usize; 2], rotated: bool, seed: u64) {
    let [batch, kv_heads, group, seq, pairs] = sizes;
    let config = compare::fused(kv_heads * group, kv_heads, 2 * pairs);
    let width = (config.heads + 2 * config.kv_heads) * config.head_dim;
    let qkv = || primitive(constant::<B, 3>(&numbers(seed, [batch, seq, width])));
    let angles = rotated.then(|| RotaryAngles {
        layout: RotaryLayout::Interleaved,
        cos: primitive(constant::<B, 2>(&numbers(seed + 1, [seq, pairs]))),
        sin: primitive(constant::<B, 2>(&numbers(seed + 2, [seq, pairs]))),
    });
    let grad = numbers(seed + 3, [batch, seq, config.heads * config.head_dim]);
    let grad = primitive(constant::<B, 3>(&grad));
    let (mask, of, blocks) = (AttentionMask::default, angles.clone(), block_sizes(blocks));
    let (output, state) =
        reference::blocked_self_attention_training::<B>(qkv(), of.clone(), mask(), config, blocks);
    let made = reference::blocked_self_attention_backward::<B>(
        state,
        of.clone(),
        grad.clone(),
        config,
        false,
        blocks,
    );
    let actual = [output, made.qkv].map(|x| host(typed::<B, 3>(x)));
    let (output, state) =
        reference::self_attention_training::<B>(qkv(), of.clone(), mask(), config);
    let made = reference::self_attention_backward::<B>(state, of.clone(), grad, config, false);
    let expected = [output, made.qkv].map(|x| host(typed::<B, 3>(x)));
    assert_all_within(TOLERANCE, "fused, in blocks", &actual, &expected);
    let predicted = reference::blocked_self_attention::<B>(qkv(), of, mask(), config, blocks);
    let predicted = host(typed::<B, 3>(predicted));
    assert_close("fused prediction", &predicted, &expected[0]);
}

/// The number of elements in a state.
pub fn state_len<B: Backend>(state: BlockedState<B>) -> usize {
    let floats = [state.q, state.k, state.v, state.output, state.log_sums];
    let floats = floats.iter().map(|x| x.shape().num_elements());
    let draws = state.draws.into_iter().flat_map(|of| [of.queries, of.keys]);
    let documents = state.mask.documents.map(Tensor::into_primitive);
    let integers = documents.into_iter().chain(draws);
    let integers = integers.map(|x| x.shape().num_elements());
    floats.sum::<usize>() + integers.sum::<usize>()
}

pub fn state_is_linear_in_the_sequence<B: Backend>() {
    let _drawing = random_state();
    let kept = |q_len| state_len(trained::<B>(&dropout_case(q_len), [1, 64]).1);
    assert_eq!(kept(96), 2 * kept(48));
}

pub fn dropout_case(q_len: usize) -> Case {
    let mut case = Case::new([2, 2, 2, q_len, 0, 4], [0, 0], true, 1);
    case.options.dropout = 0.1;
    case
}

/// For the same random numbers, dropout and its gradients are the same on every backend, regardless of the
/// integer width.
pub fn dropout_matches_flex<B: Backend>() {
    let _drawing = random_state();
    let mut case = Case::new([2, 2, 2, 70, 3, 8], [0, 0], false, 5);
    case.options.dropout = 0.4;
    let (_, state) = trained::<Flex>(&case, [2, 32]);
    let draws = state.draws.clone().unwrap();
    let carried = |draws: burn::tensor::ops::IntTensor<Flex>| {
        let data = Tensor::<Flex, 4, Int>::from_primitive(draws).into_data();
        let values = TensorData::new(data.iter::<i64>().collect(), data.shape.clone());
        Tensor::<B, 4, Int>::from_data(values, &Default::default()).into_primitive()
    };
    let draws = reference::DropoutDraws::<B> {
        queries: carried(draws.queries),
        keys: carried(draws.keys),
    };
    let (_, mut other) = trained::<B>(&case, [2, 32]);
    other.draws = Some(draws);
    // The output depends on the dropout mask too.
    let output = host(typed::<Flex, 4>(state.output.clone()));
    let output = TensorData::new(output, case.q.shape.clone());
    other.output = primitive(constant::<B, 4>(&output));
    let factors = numbers(99, case.q.shape.dims::<4>());
    let expected = gradients::<Flex>(state, &factors, &case);
    assert_all_within(
        TOLERANCE,
        "draws",
        &gradients::<B>(other, &factors, &case),
        &expected,
    );
}

fn gradients<B: Backend>(
    state: BlockedState<B>,
    factors: &TensorData,
    case: &Case,
) -> [Vec<f32>; 3] {
    let factors = primitive(constant::<B, 4>(factors));
    let (options, blocks) = (case.options, block_sizes([2, 40]));
    let made = reference::blocked_attention_backward::<B>(state, factors, options, false, blocks);
    [made.q, made.k, made.v].map(|grad| host(typed::<B, 4>(grad)))
}

crate::on_backends! {
    matches_unblocked(
        sizes in [1_usize..4, 1..3, 1..4, 1..12, 0..9, 1..7],
        reach in [0_usize..8, 0..4],
        documents in any::<bool>(),
        blocks_of_passes in [[1_usize..4, 1..6], [1_usize..4, 1..6]],
        seed in 0..u64::MAX - 3,
    );
    dropout_is_independent_of_blocks(
        sizes in [1_usize..3, 1..3, 1..4, 1..9, 0..7, 1..9],
        documents in any::<bool>(),
        blocks in [1_usize..3, 1..5],
        seed in 0..u64::MAX - 3,
    );
    fused(
        sizes in [1_usize..3, 1..3, 1..4, 1..9, 1..4],
        blocks in [1_usize..3, 1..5],
        rotated in any::<bool>(),
        seed in 0..u64::MAX - 3,
    );
    far_windows(
        window in 1_usize..200,
        global_tokens in 0_usize..3,
        queries in 1_usize..90,
        seed in 0..u64::MAX - 3,
    );
}

/// Windows longer than the granularity of a block's keys, so that the first keys are skipped.
pub fn far_windows<B: Backend>(window: usize, global_tokens: usize, queries: usize, seed: u64) {
    let sizes = [1, 1, 2, 150, 67, 2];
    let blocks_of_passes = [[1, queries], [1, 91 - queries]];
    matches_unblocked::<B>(
        sizes,
        [window, global_tokens],
        false,
        blocks_of_passes,
        seed,
    );
}
