//! Tests of the attention variants.

use burn::tensor::{Bool, Int, Tensor, TensorData};
use emberlm_kernels::reference::{self, AttentionBlocks};
use emberlm_kernels::{
    AttentionMask, AttentionOptions, Precision, Reach, RotaryAngles, RotaryLayout, SelfAttention,
    TrainingBackend, ops,
};

use super::super::case::{Case, NamedValues, float, gradient_of, named_values, typed};
use super::options;

pub const HEAD_DIM: usize = 8;

const BATCH: usize = 2;
const HEADS: usize = 4;
const SEQ: usize = 19;

/// Self-attention as the backend implements it.
pub fn self_attention<B: TrainingBackend>(
    case: &Case<B>,
    kv_heads: usize,
    options: AttentionOptions,
    documents: bool,
) -> Vec<NamedValues> {
    let inputs = inputs(case, kv_heads);
    let [q, k, v] = &inputs;
    // Each document starts at or before the query.
    let documents = documents.then(|| {
        let first: Vec<i64> = (0..BATCH * SEQ).map(|i| (i % SEQ / 6 * 6) as i64).collect();
        let data = TensorData::new(first, [BATCH, SEQ]);
        Tensor::<B, 2, Int>::from_data(data, &case.device)
    });
    let mask = AttentionMask::of_documents(documents);
    let y = match case.composed {
        true => composed(&inputs, mask, options),
        false => ops::attention(q.clone(), k.clone(), v.clone(), mask, options),
    };
    differentiated(case, y, &inputs)
}

/// Cross-attention with full reach, a soft cap, a bias and padding, over more keys than queries. All keys of
/// the second sequence are padding.
pub fn cross_attention<B: TrainingBackend>(case: &Case<B>) -> Vec<NamedValues> {
    let k_len = 2 * SEQ + 3;
    let q = case.tracked(1, [BATCH, HEADS, SEQ, HEAD_DIM]);
    let [k, v] = [2, 3].map(|seed| case.tracked(seed, [BATCH, 2, k_len, HEAD_DIM]));
    let bias = case.tracked(4, [HEADS, SEQ, k_len]);
    let seen: Vec<bool> = (0..BATCH * k_len).map(|at| at < k_len - 5).collect();
    let seen = TensorData::new(seen, [BATCH, k_len]);
    let mask = AttentionMask {
        padding: Some(Tensor::<B, 2, Bool>::from_data(seen, &case.device)),
        bias: Some(bias.clone()),
        ..AttentionMask::default()
    };
    let options = AttentionOptions {
        reach: Reach::Full,
        soft_cap: Some(2.0),
        ..options(None, Precision::F32)
    };
    let inputs = [q, k, v];
    let y = match case.composed {
        true => composed(&inputs, mask, options),
        false => {
            let [q, k, v] = inputs.clone();
            ops::attention(q, k, v, mask, options)
        }
    };
    let [q, k, v] = &inputs;
    let inputs = vec![
        ("q", gradient_of(q)),
        ("k", gradient_of(k)),
        ("v", gradient_of(v)),
        ("bias", gradient_of(&bias)),
    ];
    case.differentiated::<4>(y, inputs)
}

/// Attention in blocks shorter than the sequence, as GPU backends compute long sequences.
pub fn blocked_attention<B: TrainingBackend>(case: &Case<B>) -> Vec<NamedValues> {
    let options = options(Some(9), Precision::F32);
    let inputs = inputs(case, 2);
    if case.composed {
        let y = composed(&inputs, AttentionMask::default(), options);
        return differentiated(case, y, &inputs);
    }
    let [q, k, v] = inputs.map(|x| float(x.inner()));
    let blocks = Some(AttentionBlocks {
        sequences: 1,
        queries: 7,
    });
    let mask = AttentionMask::default();
    let (output, state) =
        reference::blocked_attention_training::<B::InnerBackend>(q, k, v, mask, options, blocks);
    let grad = float(case.factors([BATCH, HEADS, SEQ, HEAD_DIM]).inner());
    let made = reference::blocked_attention_backward::<B::InnerBackend>(
        state, grad, options, false, blocks,
    );
    let parts = [
        ("output", output),
        ("by q", made.q),
        ("by k", made.k),
        ("by v", made.v),
    ];
    parts
        .map(|(name, x)| named_values::<B::InnerBackend, 4>(name, typed(x)))
        .into()
}

/// Attention over the output of a fused QKV projection.
pub fn fused_qkv_attention<B: TrainingBackend>(case: &Case<B>) -> Vec<NamedValues> {
    let kv_heads = 2;
    let qkv = case.tracked(1, [BATCH, SEQ, (HEADS + 2 * kv_heads) * HEAD_DIM]);
    let [cos, sin] = [2, 3].map(|seed| case.constant::<2>(seed, [SEQ, HEAD_DIM / 2]));
    let layout = RotaryLayout::HalfSplit;
    let how = SelfAttention {
        heads: HEADS,
        kv_heads,
        head_dim: HEAD_DIM,
        options: options(None, Precision::F32),
    };
    let y = match case.composed {
        true => {
            let (cos, sin) = (float(cos), float(sin));
            let angles = Some(RotaryAngles { layout, cos, sin });
            let qkv = float(qkv.clone());
            let mask = AttentionMask::default();
            typed(reference::self_attention::<B>(qkv, angles, mask, how))
        }
        false => ops::self_attention(
            qkv.clone(),
            Some(ops::Angles { layout, cos, sin }),
            AttentionMask::default(),
            how,
        ),
    };
    case.differentiated::<3>(y, vec![("qkv", gradient_of(&qkv))])
}

/// Query, key and value tensors `[batch, heads, seq, head_dim]`.
fn inputs<B: TrainingBackend>(case: &Case<B>, kv_heads: usize) -> [Tensor<B, 4>; 3] {
    [(1, HEADS), (2, kv_heads), (3, kv_heads)]
        .map(|(seed, heads)| case.tracked(seed, [BATCH, heads, SEQ, HEAD_DIM]))
}

/// The reference implementation, always in f32.
fn composed<B: TrainingBackend>(
    inputs: &[Tensor<B, 4>; 3],
    mask: AttentionMask<B>,
    options: AttentionOptions,
) -> Tensor<B, 4> {
    let [q, k, v] = inputs.clone().map(float);
    let options = AttentionOptions {
        precision: Precision::F32,
        ..options
    };
    typed(reference::attention::<B>(q, k, v, mask, options))
}

fn differentiated<B: TrainingBackend>(
    case: &Case<B>,
    y: Tensor<B, 4>,
    [q, k, v]: &[Tensor<B, 4>; 3],
) -> Vec<NamedValues> {
    let inputs = vec![
        ("q", gradient_of(q)),
        ("k", gradient_of(k)),
        ("v", gradient_of(v)),
    ];
    case.differentiated::<4>(y, inputs)
}
