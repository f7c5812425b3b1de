//! Prediction of training's memory: the peak of the process, from only the configuration.
//!
//! ```text
//! peak = program + live + allocator
//! live = 4 bytes · (state + max over a step's phases of what only that phase holds)
//!
//! state       P · (1 + moments)     the weights and what the optimizer keeps of each: 2 for AdamW, 1 for Lion, for Muon
//!                                   1 of matrices and 2 of the rest, 1 more for a running average;
//!                                   + P from the second micro-batch on: the gradients so far
//! head        L·K + final + logits + the head's gradients
//! block back  L·K + final + the head's gradients + the buffers of the last block's backward pass
//! embedding   P + N·d               all gradients
//! evaluation  a forward pass of the evaluation's batch, without gradients (`inference`)
//! update      P                     in place; but for AdamW, + 2·(the largest parameter)
//! ```
//!
//! with `P` parameters, `L` blocks, `N` tokens of a micro-batch, `d` the width and `V` the vocabulary. `K`, the activations that one block
//! keeps for its gradients, and the additional buffers of its backward pass are in `block`. Recomputing keeps `L · N·d`, the blocks'
//! inputs, instead of `L·K`, and one `K` in the backward pass. A checkpoint that is written during training adds the
//! state's old copy, `P · (1 + moments)`, for as long as it takes.
//!
//! The phases are read off the code of this project, of Burn's autodiff and of the flex backend, where an operation whose
//! input nobody else holds works in place. Two terms are not: `program` is what the process holds before it computes, and
//! 21 MiB that a step of the smallest model adds, in code and threads' buffers; `allocator` is what mimalloc holds of
//! what was freed, which it never gives back (`emberlm_kernels::memory`): `min(0.6 · live, 50 MiB) + 0.05 · live`, and of the
//! head's one large buffer, whose place smaller ones take before it is needed again in one piece, 0.2, and 0.6 where that is
//! within one step, with several micro-batches or recomputing. Both were fitted to measured peaks (`docs/results.md`).

mod block;
mod inference;
mod plan;

use emberlm_kernels::cpu::head_loss::most_held;
use emberlm_model::config::Position;
use emberlm_model::{DecoderConfig, WeightFormat, count};
use serde::Serialize;

use crate::config::{OptimizerKind, TrainConfig};
use crate::error::TrainError;
use block::Block;

pub use inference::{HeadUse, HeldWeights, InferencePrediction, InferenceWork, predict_inference};
pub use plan::{Plan, plans};

const MIB: f64 = (1 << 20) as f64;
/// The memory that computing adds to an idle process.
const COMPUTING: f64 = 21.0 * MIB;

/// A predicted peak by its parts, in bytes; they add up to `total`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Prediction {
    /// The program itself.
    pub program: u64,
    /// The parameters.
    pub weights: u64,
    /// The optimizer's state of them.
    pub optimizer: u64,
    /// The gradients that are there at the peak.
    pub gradients: u64,
    /// The activations that blocks and norms keep for their gradients.
    pub activations: u64,
    /// Buffers of the operation at the peak: logits, a block's backward pass, an update.
    pub temporaries: u64,
    /// The freed memory that the allocator holds.
    pub allocator: u64,
    /// All of it.
    pub total: u64,
    /// In which part of a step the peak is.
    pub phase: Phase,
    /// Additional memory while a checkpoint is written during training, at most: the old weights and the state the optimizer
    /// kept. It is not in `total`.
    pub checkpoint: u64,
}

/// A part of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Logits and loss.
    Head,
    /// The backward pass of the last block.
    Block,
    /// The backward pass of the embedding.
    Embedding,
    /// The optimizer's update.
    Update,
    /// An evaluation between two steps.
    Evaluation,
}

/// The memory of a phase in addition to the state, in elements.
#[derive(Clone, Copy, Debug)]
struct HeldMemory {
    phase: Phase,
    gradients: f64,
    activations: f64,
    temporaries: f64,
}

impl HeldMemory {
    fn total(&self) -> f64 {
        self.gradients + self.activations + self.temporaries
    }
}

/// Predicts the peak resident memory of training, of a process that holds `program` bytes before it computes.
///
/// # Errors
/// A setting that is not allowed.
pub fn predict(
    model: &DecoderConfig,
    train: &TrainConfig,
    program: u64,
) -> Result<Prediction, TrainError> {
    train.check()?;
    let seq = train.sequence_tokens(model.seq_len())? as f64;
    let tokens = train.micro_batch as f64 * seq;
    let parameters = count::parameters(model).total as f64;
    let before = if train.accumulation > 1 {
        parameters
    } else {
        0.0
    };
    let phases = phases(model, train, tokens, seq, before);
    let most = |a: HeldMemory, b: HeldMemory| if b.total() > a.total() { b } else { a };
    let [head, rest @ ..] = phases;
    let held = rest.into_iter().fold(head, most);

    let bytes = |elements: f64| 4.0 * elements;
    let optimizer = bytes(moments(model, train));
    let [weights, gradients, activations, temporaries] = [
        parameters,
        held.gradients,
        held.activations,
        held.temporaries,
    ]
    .map(bytes);
    let live = weights + optimizer + gradients + activations + temporaries;
    let torn = match train.accumulation > 1 || train.recompute {
        true => 0.6,
        false => 0.2,
    };
    let allocator = (0.6 * live).min(50.0 * MIB) + 0.05 * live + torn * bytes(head.temporaries);
    let mut total = 0u64;
    let mut part = |bytes: f64| {
        let bytes = bytes.round() as u64;
        total = total.saturating_add(bytes);
        bytes
    };
    let prediction = Prediction {
        program: part(program as f64 + COMPUTING),
        weights: part(weights),
        optimizer: part(optimizer),
        gradients: part(gradients),
        activations: part(activations),
        temporaries: part(temporaries),
        allocator: part(allocator),
        total: 0,
        phase: held.phase,
        checkpoint: (weights + optimizer).round() as u64,
    };
    Ok(Prediction {
        total,
        ..prediction
    })
}

/// The phases of the step's last micro-batch; `before` elements are gradients of earlier ones.
fn phases(
    model: &DecoderConfig,
    train: &TrainConfig,
    tokens: f64,
    seq: f64,
    before: f64,
) -> [HeldMemory; 5] {
    let [d, vocab, layers] =
        [model.d_model(), model.vocab_size(), model.n_layers()].map(|n| n as f64);
    let parameters = count::parameters(model).total as f64;
    let block = Block::of(model, tokens, seq);
    let table = vocab * d;

    // The last norm's input and output, the head's gradient of its input; the embedding's norm.
    let embedding = f64::from(u8::from(model.norm_embedding()));
    let ends = tokens * d * (3.0 + embedding);
    let between = if train.recompute {
        layers * tokens * d
    } else {
        layers * block.kept
    };
    let again = if train.recompute { block.kept } else { 0.0 };
    let head = Head::of(model, tokens);
    let batch = train.evaluation.batch;
    let evaluation = InferenceWork::evaluation(WeightFormat::F32, batch, seq as usize);
    [
        HeldMemory {
            phase: Phase::Head,
            gradients: before + head.gradients,
            activations: between + ends,
            temporaries: head.temporaries,
        },
        HeldMemory {
            phase: Phase::Block,
            gradients: before + table,
            activations: between + again + ends,
            temporaries: block.back,
        },
        HeldMemory {
            phase: Phase::Embedding,
            gradients: before + parameters,
            activations: 0.0,
            temporaries: tokens * d,
        },
        HeldMemory {
            phase: Phase::Update,
            gradients: parameters,
            activations: 0.0,
            temporaries: match train.optimizer.kind() {
                OptimizerKind::AdamW => 0.0,
                OptimizerKind::Muon | OptimizerKind::Lion => 2.0 * largest(model),
            },
        },
        HeldMemory {
            phase: Phase::Evaluation,
            gradients: 0.0,
            activations: 0.0,
            temporaries: inference::pass(model, evaluation),
        },
    ]
}

/// The head with its loss.
struct Head {
    gradients: f64,
    temporaries: f64,
}

impl Head {
    fn of(model: &DecoderConfig, tokens: f64) -> Self {
        let [d, vocab] = [model.d_model(), model.vocab_size()].map(|n| n as f64);
        // A bias is one more column: of a copy of the weight, and of its gradient.
        let with_bias = if model.head().bias { 2.0 } else { 0.0 };
        let held = most_held(tokens as usize, model.d_model(), model.vocab_size());
        Self {
            gradients: vocab * d,
            temporaries: held as f64 + with_bias * vocab * d,
        }
    }
}

/// Elements that the optimizer keeps.
fn moments(model: &DecoderConfig, train: &TrainConfig) -> f64 {
    let counted = count::parameters(model);
    let all = counted.total as f64;
    let kept = match train.optimizer.kind() {
        OptimizerKind::AdamW => 2.0 * all,
        OptimizerKind::Lion => all,
        OptimizerKind::Muon => 2.0 * all - counted.attention as f64 - counted.feed_forward as f64,
    };
    kept + if train.ema > 0.0 { all } else { 0.0 }
}

/// Elements of the largest parameter.
fn largest(model: &DecoderConfig) -> f64 {
    let elements = |rows: usize, columns: usize| rows as f64 * columns as f64;
    let positions = match model.position() {
        Position::Learned => model.seq_len(),
        _ => 0,
    };
    let tables = elements(model.vocab_size().max(positions), model.d_model());
    let kinds = model.stack().kinds().into_iter();
    let linear = kinds.filter(|(blocks, _)| *blocks > 0);
    let linear = linear.flat_map(|(_, block)| block.linear_layers());
    linear
        .map(|layer| elements(layer.d_input, layer.d_output))
        .fold(tables, f64::max)
}
