//! Predicts the peak memory of training from the configuration.
//!
//! ```text
//! peak = program + live + allocator
//! live = 4 bytes · (state + max over a step's phases of the phase's own memory)
//!
//! state       P · (1 + moments)     the weights, and the optimizer's moments per weight: 2 for AdamW, 1 for Lion; for
//!                                   Muon and NorMuon 1 for matrices and 2 for the rest, and 1 for each of NorMuon's
//!                                   neurons; for SOAP 2, and 2·(rows² + columns²) of each matrix; 1 more for a running average;
//!                                   + P from the second micro-batch on: the accumulated gradients
//! head        L·K + final + logits + the head's gradients
//! block back  L·K + final + the head's gradients + the buffers of the last block's backward pass
//! embedding   P + N·d               all gradients
//! evaluation  a forward pass of the evaluation's batch, without gradients (`inference`)
//! update      P                     in place; for others than AdamW, + 2·(the largest parameter), or 4 and 9·(the largest
//!                                   square tensor) for SOAP
//! ```
//!
//! with `P` trained parameters (a frozen base model adds its weights), `L` blocks, `N` tokens per micro-batch, width `d` and vocabulary size `V`. Module
//! `block` defines `K`, the activations that one block keeps for its gradients, and the additional buffers of
//! its backward pass. `shape` has the stacks and heads of decoders, encoders and encoder–decoders. The two stacks of an
//! encoder–decoder add up; in the backward pass of the encoder the decoder's activations are freed, and the gradients of
//! the decoder's blocks are held. Recomputation keeps the blocks' inputs, `L · N·d`, instead of `L·K`, and one `K` during
//! the backward pass. A checkpoint written during training adds a copy of the old state, `P · (1 + moments)`,
//! until it is complete. Module `ranks` has the phases that differ on one of several ranks, which share the micro-batches of
//! a step and the optimizer's state.
//!
//! The phases are derived from the code of this project, of Burn's autodiff and of the flex backend, which
//! works in place if no other tensor shares an operation's input. Two terms are empirical, fitted to measured
//! peaks (`docs/results.md`). `program` is the memory of the process before it computes, plus 21 MiB for code
//! and thread buffers that a step of the smallest model adds. `allocator` is freed memory that mimalloc
//! retains and never returns (`emberlm_kernels::memory`): `min(0.6 · live, 50 MiB) + 0.05 · live`, plus a
//! share of the head's one large buffer, whose range smaller allocations fragment before it is needed again.
//! That share is 0.2, or 0.6 if this happens within one step (with several micro-batches or recomputation).

mod block;
#[cfg(test)]
mod extremes;
mod inference;
mod plan;
mod ranks;
mod shape;

use emberlm_data::EvalChoice;
use emberlm_model::{ParameterRole, TransformerConfig, WeightFormat};
use serde::Serialize;

use crate::config::{ObjectiveConfig, TrainConfig};
use crate::error::TrainError;
use crate::optimizer::UpdateMemory;
use crate::peers::Rank;
use shape::{Head, largest};

pub use inference::{
    HeadUse, HeldWeights, InferencePrediction, InferenceWork, predict_inference, unpacked_layer,
};
pub use plan::{Plan, plans};
pub use shape::SequenceSizes;

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
    /// The exchange of gradients or parameters with other ranks.
    Exchange,
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

/// Predicts the peak resident memory of training in a process that holds `program` bytes before it computes. The batches
/// have the longest sequences that the settings allow, [`SequenceSizes::of`].
///
/// # Errors
/// A setting is invalid.
pub fn predict(
    model: &TransformerConfig,
    train: &TrainConfig,
    program: u64,
) -> Result<Prediction, TrainError> {
    predict_rank(model, train, 1, program)
}

/// [`predict`] for each of `ranks` processes that train one model together. The memory of a checkpoint, which is a copy of
/// the old weights, is that of rank 0.
///
/// # Errors
/// A setting is invalid, or the ranks cannot divide the micro-batches of a step.
pub fn predict_rank(
    model: &TransformerConfig,
    train: &TrainConfig,
    ranks: usize,
    program: u64,
) -> Result<Prediction, TrainError> {
    train.check()?;
    let rank = Rank::new(0, ranks).unwrap_or(Rank::SINGLE);
    let (ranks, micro_batches) = (rank.world_size(), train.rank_micro_batches(rank)?);
    let sizes = SequenceSizes::of(model, train)?;
    let trained = trained(model, train);
    let before = if micro_batches > 1 { trained } else { 0.0 };
    let batch = sizes
        .batch(train.objective.sequences(train.micro_batch))
        .of_objective(&train.objective);
    let head = Head::of(model, batch);
    let phases = phases(model, train, ranks, sizes, head, before);
    let most = |a: PhaseMemory, b: PhaseMemory| if b.total() > a.total() { b } else { a };
    let none = PhaseMemory {
        phase: Phase::Head,
        gradients: 0.0,
        activations: 0.0,
        temporaries: 0.0,
    };
    let held = phases.into_iter().fold(none, most);

    let bytes = |elements: f64| 4.0 * elements;
    let state = moments(model, train);
    let average = if train.ema > 0.0 { trained } else { 0.0 };
    // Ranks wait until their state is written.
    let held_until_written = bytes(if ranks > 1 { average } else { state + average });
    let optimizer = bytes(ranks::state(model, train, ranks, state) + average);
    let weights = match &train.adapter {
        Some(adapter) => {
            let base = adapter.base_format(WeightFormat::F32).unwrap_or_default();
            inference::held_weights(model, base) + bytes(trained)
        }
        None => bytes(model.parameters() as f64),
    };
    let [gradients, activations, temporaries] =
        [held.gradients, held.activations, held.temporaries].map(bytes);
    // The ids of inputs and targets of the step's other micro-batches.
    let waiting = (micro_batches - 1) as f64 * 2.0 * (batch.inputs as f64 + batch.targets as f64);
    let temporaries = temporaries + bytes(waiting);
    let live = weights + optimizer + gradients + activations + temporaries;
    let fragmented = match micro_batches > 1 || train.recompute {
        true => 0.6,
        false => 0.2,
    };
    let retained = ranks::retained(model, train, ranks, micro_batches);
    let allocator = (0.6 * live).min(50.0 * MIB)
        + 0.05 * live
        + fragmented * bytes(head.temporaries)
        + bytes(retained);
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
        checkpoint: (weights + held_until_written).round() as u64,
    };
    Ok(Prediction {
        total,
        ..prediction
    })
}

/// The phases of the step's last micro-batch. Earlier ones have accumulated gradients of `before` elements.
fn phases(
    model: &TransformerConfig,
    train: &TrainConfig,
    ranks: usize,
    sizes: SequenceSizes,
    head: Head,
    before: f64,
) -> Vec<PhaseMemory> {
    let trained = trained(model, train);
    let frozen = train.adapter.is_some();
    let head_gradients = if frozen { 0.0 } else { head.gradients };
    let stacks = shape::stacks(
        model,
        sizes.batch(train.objective.sequences(train.micro_batch)),
    );
    let kept = |count: usize| -> f64 {
        let of = stacks.iter().take(count);
        of.map(|stack| stack.kept(train.recompute) + stack.ends)
            .sum()
    };
    let mut phases = vec![PhaseMemory {
        phase: Phase::Head,
        gradients: before + head_gradients,
        activations: kept(stacks.len()) + head.kept,
        temporaries: head.temporaries,
    }];
    let mut gradients = before + head_gradients;
    for (number, stack) in stacks.iter().enumerate().rev() {
        let again = if train.recompute {
            stack.block.kept
        } else {
            0.0
        };
        phases.push(PhaseMemory {
            phase: Phase::Block,
            gradients,
            activations: kept(number + 1) + again,
            temporaries: stack.block.backward,
        });
        gradients += if frozen { trained } else { stack.parameters };
    }
    phases.extend([
        PhaseMemory {
            phase: Phase::Embedding,
            gradients: before + trained,
            activations: 0.0,
            temporaries: stacks.iter().map(|stack| stack.input).sum(),
        },
        PhaseMemory {
            phase: Phase::Evaluation,
            gradients: 0.0,
            activations: 0.0,
            temporaries: inference::pass(model, evaluation(model, train, sizes)),
        },
    ]);
    match ranks {
        1 => phases.push(PhaseMemory {
            phase: Phase::Update,
            gradients: trained,
            activations: 0.0,
            temporaries: update(model, train, largest(model)) + weights_for_norms(train, trained),
        }),
        _ => phases.extend(ranks::phases(model, train, ranks)),
    }
    phases
}

/// The trained weights before an update, which the norms of updates compare with.
fn weights_for_norms(train: &TrainConfig, trained: f64) -> f64 {
    match train.norms_interval {
        0 => 0.0,
        _ => trained,
    }
}

/// A forward pass of an evaluation. A decoder that predicts the next token is evaluated in windows of up to its context.
fn evaluation(
    model: &TransformerConfig,
    train: &TrainConfig,
    sizes: SequenceSizes,
) -> InferenceWork {
    let batch = train.objective.sequences(train.evaluation.batch);
    let work = InferenceWork {
        head: match sizes.batch(batch).of_objective(&train.objective).learnt {
            Some(tokens) => HeadUse::LossOf(tokens),
            None => HeadUse::Loss,
        },
        ..InferenceWork::of_batch(WeightFormat::F32, batch, sizes)
    };
    match &train.objective {
        ObjectiveConfig::NextToken(_) => {
            let window = model.seq_len().min(EvalChoice::LONGEST);
            InferenceWork {
                pass_tokens: work.pass_tokens.max(window),
                sequence: work.sequence.max(window),
                ..work
            }
        }
        _ => work,
    }
}

/// The number of trained parameters: all of them, or at most those of an adapter of every linear layer, with three parts
/// each as of queries, keys and values.
fn trained(model: &TransformerConfig, train: &TrainConfig) -> f64 {
    let Some(adapter) = &train.adapter else {
        return model.parameters() as f64;
    };
    let mut widths = 0;
    for (blocks, block) in model.stack().kinds() {
        for layer in block.linear_layers() {
            widths += blocks * (3 * layer.d_input + layer.d_output);
        }
    }
    // Modules that are trained whole are counted as tables of tokens, the largest ones.
    let whole = adapter.modules_to_save.len() * model.vocab_size() * model.d_model();
    (adapter.rank * widths + whole) as f64
}

/// Elements of the optimizer's state.
fn moments(model: &TransformerConfig, train: &TrainConfig) -> f64 {
    let all = trained(model, train);
    let memory = |role| UpdateMemory::of(train, &role);
    if train.adapter.is_some() {
        return memory(ParameterRole::Adapter).moments() * all;
    }
    let matrices = shape::matrices(model);
    let of_matrices = memory(ParameterRole::Matrix);
    of_matrices.moments() * matrices
        + memory(ParameterRole::Vector).moments() * (all - matrices)
        + shape::other_state(model, of_matrices)
}

/// Elements that an update takes in addition, of which the largest updated parameter or piece of one has `largest`.
fn update(model: &TransformerConfig, train: &TrainConfig, largest: f64) -> f64 {
    let [matrix, vector] =
        [ParameterRole::Matrix, ParameterRole::Vector].map(|role| UpdateMemory::of(train, &role));
    let other = match train.adapter {
        Some(_) => 0.0,
        None => shape::other_temporaries(model, matrix),
    };
    matrix.temporaries.max(vector.temporaries) * largest + other
}
