//! Predicts the peak memory of inference: generating, embedding, serving and evaluating.
//!
//! ```text
//! peak   = program + weights + caches + max(pass, reading) + allocator
//! caches   slots · L · 2 · capacity · k           keys and values, in the cache's format; linear attention's sums are
//!                                                  small
//!          twice that for an encoder–decoder      those of the targets, and those of sources as long as a target
//! pass     T · (2d + max(2(q + 2k) + q, m F + d))  the states of a block; no earlier block keeps anything
//!          + the head: R · V logits, or the head's loss in blocks of rows
//! ```
//!
//! with `T` tokens and `R` rows of logits per pass; the other symbols are those of training (`fit`). Weights
//! stored in f32 are packed while they are loaded, which holds the largest matrix in f32. Weights stored
//! packed are loaded unchanged.

use emberlm_kernels::PackedFormat;
use emberlm_model::encoder::EncoderHeadConfig;
use emberlm_model::{CacheFormat, ModelKind, TransformerConfig, WeightFormat, count};
use serde::Serialize;

use super::shape::{BatchShape, Head, SequenceSizes, largest, largest_layer, stacks};
use super::{COMPUTING, MIB};

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
    /// Format of a decoder's caches.
    pub cache: CacheFormat,
    /// Tokens of the largest forward pass.
    pub pass_tokens: usize,
    /// Tokens per sequence in a pass; of an encoder–decoder, per source.
    pub sequence: usize,
    /// Tokens per target in a pass; only an encoder–decoder has targets.
    pub target: usize,
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
    /// The loss of this many tokens; the others have no logits.
    LossOf(usize),
    /// Hidden states, pooled or classified.
    States,
}

impl InferenceWork {
    /// Evaluation in batches of `batch` windows of `sequence` tokens.
    pub fn evaluation(weights: impl Into<HeldWeights>, batch: usize, sequence: usize) -> Self {
        let (input, target) = (sequence, 0);
        Self::of_batch(weights, batch, SequenceSizes { input, target })
    }

    /// Evaluation in batches of `batch` sequences.
    pub fn of_batch(weights: impl Into<HeldWeights>, batch: usize, sizes: SequenceSizes) -> Self {
        Self {
            weights: weights.into(),
            slots: 0,
            capacity: 0,
            cache: CacheFormat::F32,
            pass_tokens: batch.saturating_mul(sizes.input),
            sequence: sizes.input,
            target: sizes.target,
            head: HeadUse::Loss,
        }
    }

    /// The hidden states of texts of up to `longest` tokens, in passes of up to `pass_tokens` or a single text.
    pub fn encoding(longest: usize, pass_tokens: usize) -> Self {
        Self {
            weights: WeightFormat::F32.into(),
            slots: 0,
            capacity: 0,
            cache: CacheFormat::F32,
            pass_tokens: pass_tokens.max(longest),
            sequence: longest,
            target: 0,
            head: HeadUse::States,
        }
    }

    /// Targets of up to `capacity` tokens of `slots` sources of up to `source` tokens, which are encoded one at a time.
    pub fn targets(slots: usize, capacity: usize, source: usize) -> Self {
        Self {
            weights: WeightFormat::F32.into(),
            slots,
            capacity,
            cache: CacheFormat::F32,
            pass_tokens: source,
            sequence: source,
            target: 1,
            head: HeadUse::Logits(slots),
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
            cache: CacheFormat::F32,
            pass_tokens: pass_tokens.saturating_add(slots),
            sequence: capacity,
            target: 0,
            head: HeadUse::Logits(slots),
        }
    }

    /// The work with caches in another format.
    pub const fn with_cache(self, cache: CacheFormat) -> Self {
        Self { cache, ..self }
    }

    /// The work with the logits of `rows` more tokens in a pass.
    pub const fn with_more_logits(self, rows: usize) -> Self {
        match self.head {
            HeadUse::Logits(others) => Self {
                head: HeadUse::Logits(others.saturating_add(rows)),
                ..self
            },
            HeadUse::Loss | HeadUse::LossOf(_) | HeadUse::States => self,
        }
    }

    /// The work with a single slot and a context of at most `context` tokens. Work without slots stays as it is.
    pub fn with_one_slot(self, context: usize) -> Self {
        let capacity = self.capacity.min(context);
        match (self.slots, self.target) {
            (0, _) => self,
            (slots, 0) => {
                let more_logits = match self.head {
                    HeadUse::Logits(rows) => rows.saturating_sub(slots),
                    HeadUse::Loss | HeadUse::LossOf(_) | HeadUse::States => 0,
                };
                Self::generation(self.weights, 1, capacity, self.pass_tokens)
                    .with_cache(self.cache)
                    .with_more_logits(more_logits)
            }
            (_, _) => Self::targets(1, capacity, self.sequence.min(context)),
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
    model: &TransformerConfig,
    work: InferenceWork,
    program: u64,
) -> InferencePrediction {
    let caches = work.slots as f64 * cache(model, work);
    let HeldWeights { format, stored } = work.weights;
    let weights = match model.kind() {
        ModelKind::Decoder => held_weights(model, format),
        ModelKind::Encoder | ModelKind::EncoderDecoder => 4.0 * model.parameters() as f64,
    };
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

/// The size of the weights in bytes. A tied embedding table that is not packed stays in f32 in addition to a packed head.
pub(super) fn held_weights(model: &TransformerConfig, format: WeightFormat) -> f64 {
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
    let (embedding, tied) = (format.embedding(), model.head().tied);
    // A packed embedding is a tied head, too.
    let head = format.head().filter(|_| !(tied && embedding.is_some()));
    for (table, is_only) in [(embedding, true), (head, !tied)] {
        if let Some(format) = table {
            packed += format.bytes([model.vocab_size(), model.d_model()]) as f64;
            if is_only {
                floats -= (model.vocab_size() * model.d_model()) as f64;
            }
        }
    }
    4.0 * floats + packed
}

/// The size in f32 of the largest linear layer of a decoder whose layers are packed, 0 for other weights. GPUs unpack one at a
/// time in a pass of many tokens.
pub fn unpacked_layer(model: &TransformerConfig, weights: HeldWeights) -> u64 {
    match (weights.format.layers(), model.kind()) {
        (Some(_), ModelKind::Decoder) => (4.0 * largest_layer(model)).round() as u64,
        _ => 0,
    }
}

/// The size of a sequence's cache in bytes.
fn cache(model: &TransformerConfig, work: InferenceWork) -> f64 {
    let own = count::kv_cache(model, work.capacity, work.cache) as f64;
    own + 4.0 * memory_heads(model, work.sequence as f64)
}

/// Elements of the keys and values of all cross-attentions for sources of `tokens` in all.
fn memory_heads(model: &TransformerConfig, tokens: f64) -> f64 {
    let stack = model.stack();
    let Some(cross) = stack.block.cross_attention else {
        return 0.0;
    };
    let keys = (cross.kv_heads * cross.head_dim) as f64;
    stack.n_layers as f64 * 2.0 * keys * tokens
}

/// Elements of temporary memory in a pass.
pub(super) fn pass(model: &TransformerConfig, work: InferenceWork) -> f64 {
    let batch = BatchShape {
        inputs: work.pass_tokens,
        targets: work.target * work.pass_tokens.div_ceil(work.sequence.max(1)),
        learnt: match work.head {
            HeadUse::LossOf(tokens) => Some(tokens),
            HeadUse::Logits(_) | HeadUse::Loss | HeadUse::States => None,
        },
        sizes: SequenceSizes {
            input: work.sequence,
            target: work.target,
        },
    };
    let stacks = stacks(model, batch);
    let head = match (work.head, model.encoder_head()) {
        // The logits and a copy for the sampler.
        (HeadUse::Logits(rows), _) => 2.0 * rows as f64 * model.vocab_size() as f64,
        (HeadUse::Loss | HeadUse::LossOf(_), Some(EncoderHeadConfig::MaskedLm { .. })) => {
            let head = Head::of(model, batch);
            head.kept + head.temporaries
        }
        (HeadUse::Loss | HeadUse::LossOf(_), _) => Head::of(model, batch).temporaries,
        (HeadUse::States, _) => 0.0,
    };
    let states: f64 = stacks.iter().map(|stack| 2.0 * stack.input).sum();
    let blocks = stacks.iter().map(|stack| stack.block.forward);
    // The keys and values of all blocks' cross-attentions exist at once, unless the slots hold them.
    let memory = match work.slots {
        0 => memory_heads(model, work.pass_tokens as f64),
        _ => 0.0,
    };
    states + memory + blocks.fold(head, f64::max)
}
