//! The sizes of a model of any kind that its memory depends on.

use emberlm_kernels::cpu::head_loss::peak_elements;
use emberlm_model::config::{DropoutSite, Position};
use emberlm_model::encoder::EncoderHeadConfig;
use emberlm_model::nn::{BlockConfig, LinearConfig, StackConfig};
use emberlm_model::{ModelKind, TransformerConfig, count};

use super::block::{Block, BlockInput};
use crate::config::{ObjectiveConfig, TrainConfig};
use crate::error::TrainError;
use crate::optimizer::UpdateMemory;

/// The sequences of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SequenceSizes {
    /// Tokens of an input.
    pub input: usize,
    /// Tokens of an encoder–decoder's target; 0 for other models.
    pub target: usize,
}

impl SequenceSizes {
    /// The longest sequences of a run's batches.
    ///
    /// # Errors
    /// The sequences are longer than the model's context, or the sources too short for span corruption.
    pub fn of(model: &TransformerConfig, train: &TrainConfig) -> Result<Self, TrainError> {
        let (input, target) = match model.kind() {
            ModelKind::Decoder | ModelKind::Encoder => (train.sequence_tokens(model.seq_len())?, 0),
            ModelKind::EncoderDecoder => {
                let input = train.source_tokens();
                let target = train.objective.objective().target_tokens(input)?;
                (input, target)
            }
        };
        Ok(Self { input, target })
    }

    /// A batch of `sequences` sequences.
    pub(super) fn batch(self, sequences: usize) -> BatchShape {
        BatchShape {
            inputs: sequences.saturating_mul(self.input),
            targets: sequences.saturating_mul(self.target),
            learnt: None,
            sizes: self,
        }
    }
}

/// The tokens of a batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct BatchShape {
    /// Tokens of all inputs.
    pub inputs: usize,
    /// Tokens of all targets of an encoder–decoder.
    pub targets: usize,
    /// The tokens with a loss; `None` for all. The others have no logits.
    pub learnt: Option<usize>,
    pub sizes: SequenceSizes,
}

impl BatchShape {
    /// The batch of a run's objective: of masked tokens, only the chosen ones have a loss.
    pub(super) fn of_objective(self, objective: &ObjectiveConfig) -> Self {
        let share = objective.objective().learnt_share();
        let learnt = share.map(|share| (self.inputs as f64 * share).ceil() as usize);
        Self { learnt, ..self }
    }
}

/// One stack of a model for a batch, in elements.
#[derive(Clone, Copy, Debug)]
pub(super) struct StackShape {
    pub layers: f64,
    pub block: Block,
    /// The input of one block.
    pub input: f64,
    /// Kept around the blocks: the last norm's input and output, the embedding's norm, dropout masks, and the gradient of
    /// the stack's output.
    pub ends: f64,
    /// The parameters of the blocks.
    pub parameters: f64,
}

impl StackShape {
    fn of(stack: &StackConfig, input: BlockInput, around: f64) -> Self {
        let d = stack.block.attention.d_model as f64;
        let of_blocks = |(count, block): (usize, BlockConfig)| {
            count as f64 * block.linear_layers().iter().map(elements).sum::<f64>()
        };
        let of_norm = if stack.final_norm { 2.0 } else { 0.0 };
        Self {
            layers: stack.n_layers as f64,
            block: largest_block(stack, input),
            input: input.tokens * d,
            ends: input.tokens * d * (1.0 + of_norm + around),
            parameters: stack.kinds().into_iter().map(of_blocks).sum(),
        }
    }

    /// Kept of all blocks.
    pub fn kept(&self, recompute: bool) -> f64 {
        self.layers
            * if recompute {
                self.input
            } else {
                self.block.kept
            }
    }
}

/// At least the memory of each block: the blocks of a stack may have different attentions.
fn largest_block(stack: &StackConfig, input: BlockInput) -> Block {
    let kinds = stack.kinds().into_iter();
    let attentions = kinds.filter(|(count, _)| *count > 0).map(|(_, block)| {
        let of = BlockConfig {
            attention: block.attention,
            ..stack.block
        };
        Block::of(&of, input)
    });
    let larger = |a: Block, b: Block| Block {
        kept: a.kept.max(b.kept),
        backward: a.backward.max(b.backward),
        forward: a.forward.max(b.forward),
    };
    attentions.fold(Block::of(&stack.block, input), larger)
}

/// The stacks of a model for a batch, in the order of the forward pass.
pub(super) fn stacks(model: &TransformerConfig, batch: BatchShape) -> Vec<StackShape> {
    let sizes = batch.sizes;
    let input = BlockInput::new(batch.inputs as f64, sizes.input as f64);
    // Norms and dropout masks of the embeddings, and of a stack's output.
    let around = |stack: &StackConfig, norm: bool| {
        let masks = [model.dropout_at(DropoutSite::Embedding), stack.dropout];
        let masks = masks.into_iter().filter(|&dropout| dropout > 0.0).count();
        f64::from(u8::from(norm)) + masks as f64
    };
    let norm = model.embeddings().norm.is_some();
    let input = BlockInput {
        biased: model.stack().relative.is_some(),
        ..input
    };
    let Some(encoder) = model.source_stack() else {
        let stack = model.stack();
        return vec![StackShape::of(&stack, input, around(&stack, norm))];
    };
    let (decoder, of_decoder) = (
        model.stack(),
        BlockInput {
            tokens: batch.targets as f64,
            seq: sizes.target as f64,
            memory: input.tokens,
            ..input
        },
    );
    vec![
        StackShape::of(&encoder, input, around(&encoder, norm)),
        StackShape::of(&decoder, of_decoder, around(&decoder, norm)),
    ]
}

/// Memory of the head and its loss, in elements.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Head {
    /// The gradient of its weight.
    pub gradients: f64,
    /// Kept by the layers before the projection.
    pub kept: f64,
    /// Held while the loss is computed.
    pub temporaries: f64,
}

impl Head {
    /// The head's memory for a batch.
    pub fn of(model: &TransformerConfig, batch: BatchShape) -> Self {
        let tokens = match model.kind() {
            ModelKind::Decoder | ModelKind::Encoder => batch.inputs,
            ModelKind::EncoderDecoder => batch.targets,
        };
        let learnt = batch.learnt.unwrap_or(tokens);
        let of_vocabulary = |width: usize, bias: bool, kept: f64| {
            let vocab_size = model.vocab_size();
            let table = vocab_size as f64 * width as f64;
            // A bias is one more column of the weight: it adds a copy of the weight and one of its gradient.
            let with_bias = if bias { 2.0 } else { 0.0 };
            Self {
                gradients: table,
                kept,
                temporaries: peak_elements(learnt, width, vocab_size) as f64 + with_bias * table,
            }
        };
        let width = model.d_model();
        match (model.kind(), model.encoder_head()) {
            (ModelKind::Decoder | ModelKind::EncoderDecoder, _) => {
                of_vocabulary(width, model.head().bias, 0.0)
            }
            (ModelKind::Encoder, Some(EncoderHeadConfig::MaskedLm { .. })) => {
                // The activation's slope and output, the norm's output, and it with a column of ones for the bias.
                let kept = 4.0 * tokens as f64 * width as f64;
                of_vocabulary(width, true, kept)
            }
            (ModelKind::Encoder, Some(EncoderHeadConfig::Token { labels, .. })) => Self {
                temporaries: 2.0 * tokens as f64 * labels.len() as f64,
                ..Self::default()
            },
            // Of the first token only.
            (
                ModelKind::Encoder,
                Some(EncoderHeadConfig::Pooler | EncoderHeadConfig::Sequence { .. }) | None,
            ) => Self::default(),
        }
    }
}

/// Elements of the matrices of linear layers, which some optimizers treat differently.
pub(super) fn matrices(model: &TransformerConfig) -> f64 {
    match model.kind() {
        ModelKind::Decoder => {
            let counted = count::parameters(model);
            counted.attention as f64 + counted.feed_forward as f64
        }
        ModelKind::Encoder | ModelKind::EncoderDecoder => linear_layers(&model.stacks()),
    }
}

fn linear_layers(stacks: &[StackConfig]) -> f64 {
    let of_stack = |stack: &StackConfig| {
        let layers = stack.block.linear_layers();
        stack.n_layers as f64 * layers.iter().map(elements).sum::<f64>()
    };
    stacks.iter().map(of_stack).sum()
}

fn elements(layer: &LinearConfig) -> f64 {
    layer.d_input as f64 * layer.d_output as f64
}

/// Elements that the update of a matrix takes because of the tensors of its state that do not have its shape.
pub(super) fn other_temporaries(model: &TransformerConfig, of_matrices: UpdateMemory) -> f64 {
    let of_layer =
        |layer: LinearConfig| of_matrices.other_temporaries(&[layer.d_input, layer.d_output]);
    held_layers(model).map(of_layer).fold(0.0, f64::max)
}

/// Elements of the tensors of the matrices' state that do not have the matrices' shapes.
pub(super) fn other_state(model: &TransformerConfig, of_matrices: UpdateMemory) -> f64 {
    let of_layer = |layer: &LinearConfig| of_matrices.other_state(&[layer.d_input, layer.d_output]);
    let stacks = model.stacks();
    let kinds = stacks.iter().flat_map(StackConfig::kinds);
    let of_kinds = kinds.map(|(blocks, block)| {
        blocks as f64 * block.linear_layers().iter().map(of_layer).sum::<f64>()
    });
    of_kinds.sum()
}

/// Elements of the largest parameter.
pub(super) fn largest(model: &TransformerConfig) -> f64 {
    let positions = match model.position() {
        Position::Learned => model.seq_len() + model.first_position(),
        _ => 0,
    };
    let rows = model.vocab_size().max(positions);
    largest_layer(model).max(rows as f64 * model.d_model() as f64)
}

/// Elements of the weight of the largest linear layer of a block.
pub(super) fn largest_layer(model: &TransformerConfig) -> f64 {
    let linear = held_layers(model);
    linear.map(|layer| elements(&layer)).fold(0.0, f64::max)
}

/// The linear layers of a block of each kind that the model has.
fn held_layers(model: &TransformerConfig) -> impl Iterator<Item = LinearConfig> {
    let kinds = model.stacks().into_iter().flat_map(|stack| stack.kinds());
    let held = kinds.filter(|(blocks, _)| *blocks > 0);
    held.flat_map(|(_, block)| block.linear_layers())
}
