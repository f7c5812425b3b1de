//! Attention over a cache to which the keys and values of the same tokens are appended, as in decoding.

use burn::tensor::ops::FloatTensor;
use burn_cubecl::CubeRuntime;

use super::forward::forward;
use super::masks;
use super::operands::Operands;
use super::rotate::{Angles, append};
use super::task::Task;
use super::words::words;
use crate::gpu::launch::input_or;
use crate::gpu::queue::{OnRuntime, queue};
use crate::{AttentionMask, KeyValueCache, RotaryAngles, SelfAttention};

/// See [`crate::AttentionKernels::cached_attention`]: a launch that rotates and appends, and those of the attention, which
/// reads the queries in the projection's output.
pub(super) fn cached_attention<R: CubeRuntime, B: OnRuntime<R>>(
    task: Task,
    qkv: FloatTensor<B>,
    angles: Option<RotaryAngles<B>>,
    cache: KeyValueCache<B>,
    mask: AttentionMask<B>,
    config: SelfAttention,
) -> (FloatTensor<B>, KeyValueCache<B>) {
    let (shape, strides) = task.output(true);
    let len = cache.len;
    let words = words::<B>(mask.documents.clone(), mask.padding.clone(), None);
    let kept = [&cache.keys, &cache.values].map(|of| (of.shape.clone(), of.dtype));
    let outputs = [(shape.clone(), qkv.dtype), kept[0].clone(), kept[1].clone()];
    let layout = angles.as_ref().map(|angles| angles.layout);
    let (cos, sin) = angles.map(|angles| (angles.cos, angles.sin)).unzip();
    let [cos, sin] = [cos, sin].map(|of| input_or(of, &qkv));
    let [bias, words] = masks(&qkv, &mask, words);
    let inputs = [qkv, cos, sin, bias, words, cache.keys, cache.values];
    let [output, keys, values] = queue("cached_attention", inputs, outputs, move |inputs| {
        let [qkv, cos, sin, bias, words, keys, values] = inputs;
        let angles = layout.map(|layout| Angles { layout, cos, sin });
        let (q, [keys, values]) = append(qkv, angles, [keys, values], len, config);
        let operands = Operands::new(task, [q, keys.clone(), values.clone()], [bias, words]);
        let [output, _] = forward(&operands, strides, shape.clone(), false);
        [output, keys, values]
    });
    let cache = KeyValueCache {
        keys,
        values,
        len: task.k_len,
    };
    (output, cache)
}
