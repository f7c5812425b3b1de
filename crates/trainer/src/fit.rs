//! Predicts the peak memory of training from the configuration.
//!
//! ```text
//! peak = program + live + allocator
//! live = 4 bytes · (state + max over a step's phases of the phase's own memory)
//!
//! state       P · (1 + moments)     the weights, and the optimizer's moments per weight: 2 for AdamW, 1 for Lion; for
//!                                   Muon 1 for matrices and 2 for the rest; 1 more for a running average;
//!                                   + P from the second micro-batch on: the accumulated gradients
//! head        L·K + final + logits + the head's gradients
//! block back  L·K + final + the head's gradients + the buffers of the last block's backward pass
//! embedding   P + N·d               all gradients
//! evaluation  a forward pass of the evaluation's batch, without gradients (`inference`)
//! update      P                     in place; for Muon and Lion, + 2·(the largest parameter)
//! ```
//!
//! with `P` parameters, `L` blocks, `N` tokens per micro-batch, width `d` and vocabulary size `V`. Module
//! `block` defines `K`, the activations that one block keeps for its gradients, and the additional buffers of
//! its backward pass. Recomputation keeps the blocks' inputs, `L · N·d`, instead of `L·K`, and one `K` during
//! the backward pass. A checkpoint written during training adds a copy of the old state, `P · (1 + moments)`,
//! until it is complete.
//!
//! The phases are derived from the code of this project, of Burn's autodiff and of the flex backend, which
//! works in place if no other tensor shares an operation's input. Two terms are empirical, fitted to measured
//! peaks (`docs/results.md`). `program` is the memory of the process before it computes, plus 21 MiB for code
//! and thread buffers that a step of the smallest model adds. `allocator` is freed memory that mimalloc
//! retains and never returns (`emberlm_kernels::memory`): `min(0.6 · live, 50 MiB) + 0.05 · live`, plus a
//! share of the head's one large buffer, whose range smaller allocations fragment before it is needed again.
//! That share is 0.2, or 0.6 if this happens within one step (with several micro-batches or recomputation).

mod block;
mod inference;
mod plan;

use emberlm_kernels::cpu::head_loss::peak_elements;
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

/// A predicted peak by component, in bytes. The components add up to `total`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Prediction {
    /// The program itself.
    pub program: u64,
    /// The parameters.
    pub weights: u64,
    /// The optimizer's state.
    pub optimizer: u64,
    /// The gradients held at the peak.
    pub gradients: u64,
    /// The activations that blocks and norms keep for the backward pass.
    pub activations: u64,
    /// Temporary buffers at the peak: logits, a block's backward pass, or an update.
    pub temporaries: u64,
    /// Freed memory that the allocator retains.
    pub allocator: u64,
    /// The predicted peak.
    pub total: u64,
    /// The phase of a step in which the peak occurs.
    pub phase: Phase,
    /// The most additional memory while a checkpoint is written during training: the old weights and
    /// optimizer state. Not part of `total`.
    pub checkpoint: u64,
}

/// A phase of a step.
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

/// The memory that a phase holds in addition to the state, in elements.
#[derive(Clone, Copy, Debug)]
struct PhaseMemory {
    phase: Phase,
    gradients: f64,
    activations: f64,
    temporaries: f64,
}

impl PhaseMemory {
    fn total(&self) -> f64 {
        self.gradients + self.activations + self.temporaries
    }
}

/// Predicts the peak resident memory of training in a process that holds `program` bytes before it computes.
///
/// # Errors
/// A setting is invalid.
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
    let most = |a: PhaseMemory, b: PhaseMemory| if b.total() > a.total() { b } else { a };
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
    let fragmented = match train.accumulation > 1 || train.recompute {
        true => 0.6,
        false => 0.2,
    };
    let allocator =
        (0.6 * live).min(50.0 * MIB) + 0.05 * live + fragmented * bytes(head.temporaries);
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

/// The phases of the step's last micro-batch. Earlier ones have accumulated gradients of `before` elements.
fn phases(
    model: &DecoderConfig,
    train: &TrainConfig,
    tokens: f64,
    seq: f64,
    before: f64,
) -> [PhaseMemory; 5] {
    let [d, vocab, layers] =
        [model.d_model(), model.vocab_size(), model.n_layers()].map(|n| n as f64);
    let parameters = count::parameters(model).total as f64;
    let block = Block::of(model, tokens, seq);
    let table = vocab * d;

    // The last norm's input and output, the gradient of the head's input, and the embedding's norm.
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
        PhaseMemory {
            phase: Phase::Head,
            gradients: before + head.gradients,
            activations: between + ends,
            temporaries: head.temporaries,
        },
        PhaseMemory {
            phase: Phase::Block,
            gradients: before + table,
            activations: between + again + ends,
            temporaries: block.backward,
        },
        PhaseMemory {
            phase: Phase::Embedding,
            gradients: before + parameters,
            activations: 0.0,
            temporaries: tokens * d,
        },
        PhaseMemory {
            phase: Phase::Update,
            gradients: parameters,
            activations: 0.0,
            temporaries: match train.optimizer.kind() {
                OptimizerKind::AdamW => 0.0,
                OptimizerKind::Muon | OptimizerKind::Lion => 2.0 * largest(model),
            },
        },
        PhaseMemory {
            phase: Phase::Evaluation,
            gradients: 0.0,
            activations: 0.0,
            temporaries: inference::pass(model, evaluation),
        },
    ]
}

/// Memory of the head and its loss, in elements.
struct Head {
    gradients: f64,
    temporaries: f64,
}

impl Head {
    fn of(model: &DecoderConfig, tokens: f64) -> Self {
        let [d, vocab] = [model.d_model(), model.vocab_size()].map(|n| n as f64);
        // A bias is one more column of the weight: it adds a copy of the weight and one of its gradient.
        let with_bias = if model.head().bias { 2.0 } else { 0.0 };
        let held = peak_elements(tokens as usize, model.d_model(), model.vocab_size());
        Self {
            gradients: vocab * d,
            temporaries: held as f64 + with_bias * vocab * d,
        }
    }
}

/// Elements of the optimizer's state and of the running average.
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
