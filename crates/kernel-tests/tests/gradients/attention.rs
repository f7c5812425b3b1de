//! Tests attention: values against plain loops, gradients against the reference implementation, and dropout
//! against the same weights dropped explicitly.

use burn::backend::Autodiff;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Bool, Int, Tensor, TensorData};
use emberlm_kernels::{
    AttentionGradients, AttentionKernels, AttentionMask, AttentionOptions, Backend, Reach,
    RotaryAngles, RotaryLayout, ops, reference,
};

use crate::compare::{
    self, Reference, assert_all_within, assert_close, causal, constant, host, numbers, primitive,
    random_state, tracked, typed, with_gradients,
};

/// The tolerance for gradients. Scores reach 20, and the rounding errors of weights recomputed from them grow
/// with the scores.
pub const TOLERANCE: f64 = 3e-5;

/// The sizes of a case: `[batch, kv_heads, queries per key-value head, q_len, past, head_dim]`.
pub type Sizes = [usize; 6];

/// The window, 0 for none, and the number of global tokens.
pub type Limits = [usize; 2];

/// The reach for these limits: a window, or causal without one.
pub fn reach([tokens, global_tokens]: Limits) -> Reach {
    match tokens {
        0 => Reach::Causal,
        _ => Reach::Window {
            tokens,
            global_tokens,
        },
    }
}

/// Returns true if `key` is visible to the query at `position`, whose document begins at `first`.
pub fn reaches(reach: Reach, position: usize, first: usize, key: usize) -> bool {
    match reach {
        Reach::Causal => key <= position,
        Reach::Window {
            tokens,
            global_tokens,
        } => key <= position && (key + tokens > position || key < first + global_tokens),
        Reach::Local { distance } => key.abs_diff(position) <= distance,
        Reach::Full => true,
    }
}

pub struct Case {
    pub q: TensorData,
    pub k: TensorData,
    pub v: TensorData,
    /// The first key of each query's document, `[batch, q_len]`.
    documents: Option<TensorData>,
    pub options: AttentionOptions,
}

impl Case {
    pub fn new(sizes: Sizes, limits: Limits, with_documents: bool, seed: u64) -> Self {
        let [batch, kv_heads, group, q_len, past, head_dim] = sizes;
        let keys = [batch, kv_heads, past + q_len, head_dim];
        Self {
            q: numbers(seed, [batch, kv_heads * group, q_len, head_dim]),
            k: numbers(seed + 1, keys),
            v: numbers(seed + 2, keys),
            documents: with_documents.then(|| documents(batch, q_len, past, seed)),
            options: AttentionOptions {
                reach: reach(limits),
                ..causal(1.0 / (head_dim as f64).sqrt())
            },
        }
    }

    /// The mask of the documents.
    pub fn mask<B: Backend>(&self) -> AttentionMask<B> {
        let documents = self.documents.clone();
        let tensor = |documents| Tensor::<B, 2, Int>::from_data(documents, &Default::default());
        AttentionMask::of_documents(documents.map(tensor))
    }

    /// The first key of the document of each query, sequence by sequence.
    fn first_keys(&self) -> Vec<usize> {
        match &self.documents {
            Some(documents) => documents.iter::<i64>().map(|key| key as usize).collect(),
            None => vec![0; self.q.shape[0] * self.q.shape[2]],
        }
    }

    /// Output and gradients of the reference implementation, differentiated by Burn.
    pub fn expected(&self) -> Vec<Vec<f32>> {
        let inputs = [&self.q, &self.k, &self.v].map(tracked::<Reference, 4>);
        let [q, k, v] = &inputs;
        let [query, key, value] = inputs.clone().map(primitive);
        let mask = self.mask::<Reference>();
        let output = reference::attention::<Reference>(query, key, value, mask, self.options);
        with_gradients(typed::<Reference, 4>(output), &[q, k, v])
    }

    /// Computes attention with plain loops in f64: the output, and `ln Σ exp(scores)` of each query.
    pub fn by_loops(&self) -> (Vec<f32>, Vec<f32>) {
        let [batch, heads, q_len, head_dim] = self.q.shape.dims();
        let [_, kv_heads, k_len, _] = self.k.shape.dims();
        let (q, k, v) = (values(&self.q), values(&self.k), values(&self.v));
        let first_keys = self.first_keys();
        let (mut output, mut log_sums) = (Vec::new(), Vec::new());
        for (b, h, i) in indices([batch, heads, q_len]) {
            let position = k_len - q_len + i;
            let first = first_keys[b * q_len + i];
            let seen: Vec<usize> = (first..=position)
                .filter(|&j| reaches(self.options.reach, position, first, j))
                .collect();
            let query = &q[((b * heads + h) * q_len + i) * head_dim..][..head_dim];
            let group = b * kv_heads + h / (heads / kv_heads);
            let row =
                |of: &[f64], j: usize| of[(group * k_len + j) * head_dim..][..head_dim].to_vec();
            let score = |j| dot(query, &row(&k, j)) * self.options.scale;
            let weights: Vec<f64> = seen.iter().map(|&j| score(j).exp()).collect();
            let total: f64 = weights.iter().sum();
            log_sums.push(total.ln() as f32);
            for e in 0..head_dim {
                let terms = seen.iter().zip(&weights);
                let sum: f64 = terms.map(|(&j, weight)| weight * row(&v, j)[e]).sum();
                output.push((sum / total) as f32);
            }
        }
        (output, log_sums)
    }
}

/// Draws the first key of each query's document: any key up to the query's own.
fn documents(batch: usize, q_len: usize, past: usize, seed: u64) -> TensorData {
    let any = numbers(seed + 3, [batch, q_len]);
    let first = any.iter::<f64>().enumerate().map(|(n, any)| {
        let keys = past + n % q_len + 1;
        ((any + 2.0) / 4.0 * keys as f64) as i64
    });
    TensorData::new(first.collect(), [batch, q_len])
}

fn values(data: &TensorData) -> Vec<f64> {
    data.iter::<f64>().collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn indices([a, b, c]: [usize; 3]) -> impl Iterator<Item = (usize, usize, usize)> {
    (0..a * b * c).map(move |n| (n / (b * c), n / c % b, n % c))
}

fn values_match_loops<B: Backend>(sizes: Sizes, reach: Limits, documents: bool, seed: u64) {
    let case = Case::new(sizes, reach, documents, seed);
    let constant = constant::<B, 4>;
    let actual = ops::attention(
        constant(&case.q),
        constant(&case.k),
        constant(&case.v),
        case.mask(),
        case.options,
    );
    assert_close("attention", &host(actual), &case.by_loops().0);
}

fn gradients<B: Backend>(sizes: Sizes, reach: Limits, documents: bool, seed: u64) {
    let case = Case::new(sizes, reach, documents, seed);
    let inputs = [&case.q, &case.k, &case.v].map(tracked::<Autodiff<B>, 4>);
    let [q, k, v] = &inputs;
    let output = ops::attention(q.clone(), k.clone(), v.clone(), case.mask(), case.options);
    let actual = with_gradients(output, &[q, k, v]);

    assert_all_within(TOLERANCE, "attention", &actual, &case.expected());
}

/// The weights are a distribution over the visible keys, and their product with the values is the output.
fn weights_make_the_output<B: Backend>(sizes: Sizes, reach: Limits, seed: u64) {
    let case = Case::new(sizes, reach, false, seed);
    let [q, k, v] = [&case.q, &case.k, &case.v].map(constant::<B, 4>);
    let (heads, kv_heads) = (q.dims()[1], v.dims()[1]);
    let weights = ops::attention_weights(q.clone(), k.clone(), case.mask(), case.options);
    assert_weights(&weights, &case.options);
    let expanded = v.clone().repeat_dim(2, heads / kv_heads);
    let [batch, _, k_len, head_dim] = v.dims();
    let expanded = expanded.reshape([batch, heads, k_len, head_dim]);
    let output = ops::attention(q, k, v, case.mask(), case.options);
    assert_close("weights", &host(weights.matmul(expanded)), &host(output));
}

fn assert_weights<B: Backend>(weights: &Tensor<B, 4>, options: &AttentionOptions) {
    let [_, _, q_len, k_len] = weights.dims();
    for (row, weights) in host(weights.clone()).chunks(k_len).enumerate() {
        let position = k_len - q_len + row % q_len;
        let sum: f32 = weights.iter().sum();
        assert!((sum - 1.0).abs() < 1e-5, "a row's weights sum to {sum}");
        for (j, &weight) in weights.iter().enumerate() {
            let seen = reaches(options.reach, position, 0, j);
            assert_eq!(weight > 0.0, seen, "query {position}, key {j}: {weight}");
        }
    }
}

/// Dropout: compares gradients with those of the same product with explicit dropout factors, differentiated by
/// Burn.
fn dropped_gradients<B: Backend>(sizes: Sizes, documents: bool, seed: u64) {
    dropped_gradients_of::<B, _>(
        sizes,
        documents,
        seed,
        |[q, k, v], mask, options| B::Attention::attention_training(q, k, v, mask, options),
        |state, grad, options| B::Attention::attention_backward(state, grad, options, false),
    );
}

/// [`dropped_gradients`] for any attention with dropout.
pub fn dropped_gradients_of<B: Backend, S>(
    sizes: Sizes,
    documents: bool,
    seed: u64,
    attend: impl Attend<B, S>,
    backward: impl Fn(S, FloatTensor<B>, AttentionOptions) -> AttentionGradients<B>,
) {
    let mut case = Case::new(sizes, [0, 0], documents, seed);
    case.options.dropout = 0.3;
    let (output, state) = dropped(&case, constant(&case.v), &attend);
    let factors = constant::<B, 4>(&numbers(99, output.dims()));
    let made = backward(state, primitive(factors), case.options);
    let actual = [made.q, made.k, made.v].map(|grad| host(typed::<B, 4>(grad)));
    let actual: Vec<_> = std::iter::once(host(output)).chain(actual).collect();
    let kept = kept(&case, &attend);
    assert_all_within(
        TOLERANCE,
        "dropped attention",
        &actual,
        &reference_with_dropout(&case, &kept),
    );
}

/// [`AttentionKernels::attention_training`] of queries, keys and values. Returns the output and the state.
pub trait Attend<B: Backend, S>:
    Fn([FloatTensor<B>; 3], AttentionMask<B>, AttentionOptions) -> (FloatTensor<B>, S)
{
}

impl<B: Backend, S, F> Attend<B, S> for F where
    F: Fn([FloatTensor<B>; 3], AttentionMask<B>, AttentionOptions) -> (FloatTensor<B>, S)
{
}

/// The attention of a case over other values, with the same dropout mask in every call.
fn dropped<B: Backend, S>(
    case: &Case,
    v: Tensor<B, 4>,
    attend: &impl Attend<B, S>,
) -> (Tensor<B, 4>, S) {
    let _drawing = random_state();
    B::seed(&Default::default(), 7);
    let [q, k] = [&case.q, &case.k].map(|data| primitive(constant::<B, 4>(data)));
    let (output, state) = attend([q, k, primitive(v)], case.mask(), case.options);
    (typed(output), state)
}

/// The dropout factor of each weight, 0 or `1/(1 - p)`, `[batch, kv_heads, heads / kv_heads · q_len, k_len]`.
/// With rows of the identity as values, the output is the dropped weights, `head_dim` columns at a time.
fn kept<B: Backend, S>(case: &Case, attend: &impl Attend<B, S>) -> TensorData {
    let [batch, kv_heads, k_len, head_dim] = case.v.shape.dims();
    let [_, heads, q_len, _] = case.q.shape.dims();
    let mut kept = vec![0.0_f32; batch * heads * q_len * k_len];
    for first in (0..k_len).step_by(head_dim) {
        let identity = indices([batch * kv_heads, k_len, head_dim])
            .map(|(_, key, column)| f32::from(u8::from(key == first + column)));
        let identity = TensorData::new(identity.collect::<Vec<f32>>(), case.v.shape.clone());
        let weights = host(dropped(case, constant(&identity), attend).0);
        for (row, weights) in weights.chunks(head_dim).enumerate() {
            for (column, &weight) in weights.iter().enumerate().take(k_len - first) {
                if weight > 0.0 {
                    kept[row * k_len + first + column] =
                        (1.0 / (1.0 - case.options.dropout)) as f32;
                }
            }
        }
    }
    TensorData::new(kept, [batch, kv_heads, heads / kv_heads * q_len, k_len])
}

fn reference_with_dropout(case: &Case, kept: &TensorData) -> Vec<Vec<f32>> {
    let inputs = [&case.q, &case.k, &case.v].map(tracked::<Reference, 4>);
    let [q, k, v] = &inputs;
    let [batch, heads, q_len, head_dim] = q.dims();
    let [_, kv_heads, k_len, _] = k.dims();
    let grouped = [batch, kv_heads, heads / kv_heads * q_len];
    let stacked = q
        .clone()
        .reshape([grouped[0], grouped[1], grouped[2], head_dim]);
    let scores = stacked.matmul(k.clone().transpose()) * case.options.scale;
    let first_keys = case.first_keys();
    let hidden = indices([batch * heads, q_len, k_len]).map(|(row, i, j)| {
        let first = first_keys[row / heads * q_len + i];
        j < first || j > k_len - q_len + i
    });
    let shape = [batch, heads, q_len, k_len];
    let hidden = TensorData::new(hidden.collect::<Vec<_>>(), shape);
    let hidden = Tensor::<Reference, 4, Bool>::from_data(hidden, &Default::default());
    let scores = scores.reshape(shape);
    let scores = scores.mask_fill(hidden, f32::NEG_INFINITY);
    let weights = burn::tensor::activation::softmax(scores, 3);
    let weights = weights.reshape([grouped[0], grouped[1], grouped[2], k_len]);
    let weights = weights * constant::<Reference, 4>(kept);
    let output = weights
        .matmul(v.clone())
        .reshape([batch, heads, q_len, head_dim]);
    with_gradients(output, &[q, k, v])
}

/// Attention over the output of a fused projection, with and without rotation.
fn fused<B: Backend>(sizes: [usize; 5], rotated: bool, documents: bool, seed: u64) {
    let [batch, kv_heads, group, seq, pairs] = sizes;
    let (heads, head_dim) = (kv_heads * group, 2 * pairs + 1);
    let config = compare::fused(heads, kv_heads, head_dim);
    let data = numbers(seed, [batch, seq, (heads + 2 * kv_heads) * head_dim]);
    let [cos, sin] = [1, 2].map(|n| numbers(seed + n, [seq, pairs]));
    let first_keys = documents.then(|| self::documents(batch, seq, 0, seed));

    let qkv = tracked::<Autodiff<B>, 3>(&data);
    let angles = rotated.then(|| ops::Angles {
        layout: RotaryLayout::HalfSplit,
        cos: constant(&cos),
        sin: constant(&sin),
    });
    let of = first_keys.clone();
    let of = of.map(|keys| Tensor::from_data(keys, &Default::default()));
    let mask = AttentionMask::of_documents(of);
    let output = ops::self_attention(qkv.clone(), angles, mask, config);
    let actual = with_gradients(output, &[&qkv]);

    let qkv = tracked::<Reference, 3>(&data);
    let angles = rotated.then(|| RotaryAngles {
        layout: RotaryLayout::HalfSplit,
        cos: primitive(constant::<Reference, 2>(&cos)),
        sin: primitive(constant::<Reference, 2>(&sin)),
    });
    let of =
        first_keys.map(|keys| Tensor::<Reference, 2, Int>::from_data(keys, &Default::default()));
    let (input, mask) = (primitive(qkv.clone()), AttentionMask::of_documents(of));
    let output = reference::self_attention::<Reference>(input, angles, mask, config);
    let expected = with_gradients(typed::<Reference, 3>(output), &[&qkv]);
    assert_all_within(TOLERANCE, "fused attention", &actual, &expected);
}

crate::on_backends! {
    fused(
        sizes in [1_usize..3, 1..3, 1..4, 1..9, 1..4],
        rotated in any::<bool>(),
        documents in any::<bool>(),
        seed in 0..u64::MAX - 3,
    );
    values_match_loops(
        sizes in [1_usize..3, 1..4, 1..4, 1..9, 0..7, 1..9],
        reach in [0_usize..8, 0..5],
        documents in any::<bool>(),
        seed in 0..u64::MAX - 3,
    );
    gradients(
        sizes in [1_usize..3, 1..4, 1..4, 1..9, 0..7, 1..9],
        reach in [0_usize..8, 0..5],
        documents in any::<bool>(),
        seed in 0..u64::MAX - 3,
    );
    weights_make_the_output(
        sizes in [1_usize..3, 1..4, 1..4, 1..9, 0..7, 1..9],
        reach in [0_usize..8, 0..5],
        seed in 0..u64::MAX - 2,
    );
    dropped_gradients(
        sizes in [1_usize..3, 1..4, 1..4, 1..9, 0..7, 1..9],
        documents in any::<bool>(),
        seed in 0..u64::MAX - 3,
    );
}
