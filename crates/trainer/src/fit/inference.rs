//! The peak memory of prediction: generating, serving and evaluating.
//!
//! ```text
//! peak   = program + weights + caches + max(pass, reading) + allocator
//! caches   slots · L · 2 · capacity · k           keys and values; linear attention's sums are small
//! pass     T · (2d + max(2(q + 2k) + q, m F + d))  the states of a block; no earlier block keeps anything
//!          + the head: R · V logits, or the head's loss in blocks of rows
//! ```
//!
//! with `T` tokens and `R` rows of logits in a pass, and the other letters as for training. Weights that are stored in f32 are packed
//! as they are read, so that reading holds the largest matrix in f32; weights that are stored packed are read as they are.

use emberlm_kernels::PackedFormat;
use emberlm_kernels::cpu::head_loss::most_held;
use emberlm_model::{DecoderConfig, WeightFormat, count};
use serde::Serialize;

use super::block::Block;
use super::{COMPUTING, MIB, largest};

/// The weights of a model that predicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldWeights {
    /// The format that they are held in.
    pub format: WeightFormat,
    /// The format that they are read from.
    pub stored: WeightFormat,
}

impl From<WeightFormat> for HeldWeights {
    /// Weights that are stored in f32.
    fn from(format: WeightFormat) -> Self {
        Self {
            format,
            stored: WeightFormat::F32,
        }
    }
}

/// The work of a model that predicts, as far as its memory depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InferenceWork {
    /// The weights.
    pub weights: HeldWeights,
    /// Sequences with a key-value cache; 0 for none.
    pub slots: usize,
    /// Tokens that a cache has room for.
    pub capacity: usize,
    /// Tokens of the largest pass.
    pub pass_tokens: usize,
    /// Tokens of a sequence in a pass.
    pub sequence: usize,
    /// The use of the head.
    pub head: HeadUse,
}

/// The use of the head in a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadUse {
    /// The logits of so many rows.
    Logits(usize),
    /// The loss of every token, whose logits exist in blocks of rows only.
    Loss,
}

impl InferenceWork {
    /// The evaluation of batches of `batch` windows of `sequence` tokens.
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

    /// The generation of `slots` sequences of `capacity` tokens, whose prompts are read by `pass_tokens`.
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

/// A predicted peak by its parts, in bytes; they add up to `total`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct InferencePrediction {
    /// The program itself.
    pub program: u64,
    /// The weights in their format.
    pub weights: u64,
    /// The key-value caches.
    pub caches: u64,
    /// The states and logits of a pass.
    pub temporaries: u64,
    /// The freed memory that the allocator keeps.
    pub allocator: u64,
    /// All of it.
    pub total: u64,
}

/// Predicts the peak resident memory of prediction, of a process that holds `program` bytes before it computes.
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

/// Bytes of the weights in a format. A tied embedding table stays in f32 beside a packed head.
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

/// Elements of a pass.
pub(super) fn pass(model: &DecoderConfig, work: InferenceWork) -> f64 {
    let tokens = work.pass_tokens as f64;
    let block = Block::of(model, tokens, work.sequence as f64);
    let ends = 2.0 * tokens * model.d_model() as f64;
    let head = match work.head {
        // The logits, and a copy of them for the sampler.
        HeadUse::Logits(rows) => 2.0 * rows as f64 * model.vocab_size() as f64,
        HeadUse::Loss => most_held(work.pass_tokens, model.d_model(), model.vocab_size()) as f64,
    };
    ends + block.forward.max(head)
}
