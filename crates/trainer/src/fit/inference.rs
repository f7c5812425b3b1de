//! Predicts the peak memory of inference: generating, serving and evaluating.
//!
//! ```text
//! peak   = program + weights + caches + max(pass, reading) + allocator
//! caches   slots · L · 2 · capacity · k           keys and values; linear attention's sums are small
//! pass     T · (2d + max(2(q + 2k) + q, m F + d))  the states of a block; no earlier block keeps anything
//!          + the head: R · V logits, or the head's loss in blocks of rows
//! ```
//!
//! with `T` tokens and `R` rows of logits per pass; the other symbols are those of training (`fit`). Weights
//! stored in f32 are packed while they are loaded, which holds the largest matrix in f32. Weights stored
//! packed are loaded unchanged.

use emberlm_kernels::PackedFormat;
use emberlm_kernels::cpu::head_loss::peak_elements;
use emberlm_model::{DecoderConfig, WeightFormat, count};
use serde::Serialize;

use super::block::Block;
use super::{COMPUTING, MIB, largest};

/// The weight formats of a model for inference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldWeights {
    /// The format in memory.
    pub format: WeightFormat,
    /// The format on disk.
    pub stored: WeightFormat,
}

impl From<WeightFormat> for HeldWeights {
    /// Weights stored in f32.
    fn from(format: WeightFormat) -> Self {
        Self {
            format,
            stored: WeightFormat::F32,
        }
    }
}

/// The properties of an inference workload that determine its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InferenceWork {
    /// The weights.
    pub weights: HeldWeights,
    /// Sequences with a key-value cache; 0 without caches.
    pub slots: usize,
    /// Capacity of a cache in tokens.
    pub capacity: usize,
    /// Tokens of the largest forward pass.
    pub pass_tokens: usize,
    /// Tokens per sequence in a pass.
    pub sequence: usize,
    /// The output of the head.
    pub head: HeadUse,
}

/// The output of the head in a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadUse {
    /// The logits of this many rows.
    Logits(usize),
    /// The loss of every token. Logits exist only for blocks of rows.
    Loss,
}

impl InferenceWork {
    /// Evaluation in batches of `batch` windows of `sequence` tokens.
    pub fn evaluation(weights: impl Into<HeldWeights>, batch: usize, sequence: usize) -> Self {
        Self {
            weights: weights.into(),
            slots: 0,
            capacity: 0,
            pass_tokens: batch.saturating_mul(sequence),
            sequence,
            head: HeadUse::Loss,
        }
    }

    /// Generation of `slots` sequences of up to `capacity` tokens, with prompts processed in chunks of
    /// `pass_tokens`.
    pub fn generation(
        weights: impl Into<HeldWeights>,
        slots: usize,
        capacity: usize,
        pass_tokens: usize,
    ) -> Self {
        Self {
            weights: weights.into(),
            slots,
            capacity,
            pass_tokens: pass_tokens.saturating_add(slots),
            sequence: capacity,
            head: HeadUse::Logits(slots),
        }
    }
}

/// A predicted peak by component, in bytes. The components add up to `total`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct InferencePrediction {
    /// The program itself.
    pub program: u64,
    /// The weights in their in-memory format.
    pub weights: u64,
    /// The key-value caches.
    pub caches: u64,
    /// The activations and logits of a pass.
    pub temporaries: u64,
    /// Freed memory that the allocator retains.
    pub allocator: u64,
    /// The predicted peak.
    pub total: u64,
}

/// Predicts the peak resident memory of inference in a process that holds `program` bytes before it computes.
pub fn predict_inference(
    model: &DecoderConfig,
    work: InferenceWork,
    program: u64,
) -> InferencePrediction {
    let caches = work.slots as f64 * count::kv_cache(model, work.capacity) as f64;
    let HeldWeights { format, stored } = work.weights;
    let weights = held_weights(model, format);
    let packs =
        |held: Option<PackedFormat>, stored: Option<PackedFormat>| held.is_some() && held != stored;
    let packs = packs(format.layers(), stored.layers()) || packs(format.head(), stored.head());
    let reading = if packs { largest(model) } else { 0.0 };
    let temporaries = 4.0 * pass(model, work).max(reading);
    let live = weights + caches + temporaries;
    let allocator = (0.3 * live).min(25.0 * MIB) + 0.02 * live;
    let mut total = 0u64;
    let mut part = |bytes: f64| {
        let bytes = bytes.round() as u64;
        total = total.saturating_add(bytes);
        bytes
    };
    InferencePrediction {
        program: part(program as f64 + COMPUTING),
        weights: part(weights),
        caches: part(caches),
        temporaries: part(temporaries),
        allocator: part(allocator),
        total,
    }
}

/// The size of the weights in bytes. A tied embedding table stays in f32 in addition to a packed head.
fn held_weights(model: &DecoderConfig, format: WeightFormat) -> f64 {
    let mut floats = count::parameters(model).total as f64;
    let mut packed = 0.0;
    if let Some(format) = format.layers() {
        for (blocks, block) in model.stack().kinds() {
            for layer in block.linear_layers() {
                let shape = [layer.d_output, layer.d_input];
                floats -= (layer.d_input * layer.d_output * blocks) as f64;
                packed += (format.bytes(shape) * blocks) as f64;
            }
        }
    }
    if let Some(format) = format.head() {
        let shape = [model.vocab_size(), model.d_model()];
        packed += format.bytes(shape) as f64;
        if !model.head().tied {
            floats -= (model.vocab_size() * model.d_model()) as f64;
        }
    }
    4.0 * floats + packed
}

/// Elements of temporary memory in a pass.
pub(super) fn pass(model: &DecoderConfig, work: InferenceWork) -> f64 {
    let tokens = work.pass_tokens as f64;
    let block = Block::of(model, tokens, work.sequence as f64);
    let ends = 2.0 * tokens * model.d_model() as f64;
    let head = match work.head {
        // The logits and a copy for the sampler.
        HeadUse::Logits(rows) => 2.0 * rows as f64 * model.vocab_size() as f64,
        HeadUse::Loss => {
            peak_elements(work.pass_tokens, model.d_model(), model.vocab_size()) as f64
        }
    };
    ends + block.forward.max(head)
}
