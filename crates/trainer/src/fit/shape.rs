//! The sizes of a model of any kind that its memory depends on.

use emberlm_kernels::cpu::head_loss::peak_elements;
use emberlm_model::config::Position;
use emberlm_model::encoder::EncoderHeadConfig;
use emberlm_model::nn::{BlockConfig, LinearConfig, StackConfig};
use emberlm_model::{EncoderDecoderConfig, count};

use super::block::{Block, BlockInput};
use crate::config::{ObjectiveConfig, TrainConfig};
use crate::error::TrainError;
use crate::objective::AnyConfig;

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
    pub fn of(model: AnyConfig<'_>, train: &TrainConfig) -> Result<Self, TrainError> {
        let (input, target) = match model {
            AnyConfig::Decoder(model) => (train.sequence_tokens(model.seq_len())?, 0),
            AnyConfig::Encoder(model) => (train.sequence_tokens(model.seq_len())?, 0),
            AnyConfig::EncoderDecoder(_) => {
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
            block: Block::of(&stack.block, input),
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

/// The stacks of a model for a batch, in the order of the forward pass.
pub(super) fn stacks(model: AnyConfig<'_>, batch: BatchShape) -> Vec<StackShape> {
    let sizes = batch.sizes;
    let input = BlockInput::new(batch.inputs as f64, sizes.input as f64);
    let mask = |dropout: f64| if dropout > 0.0 { 1.0 } else { 0.0 };
    match model {
        AnyConfig::Decoder(model) => {
            let embedding = f64::from(u8::from(model.norm_embedding()));
            vec![StackShape::of(&model.stack(), input, embedding)]
        }
        AnyConfig::Encoder(model) => {
            let norm = f64::from(u8::from(model.embeddings().norm.is_some()));
            let around = norm + mask(model.settings().dropout);
            vec![StackShape::of(&model.stack(), input, around)]
        }
        AnyConfig::EncoderDecoder(model) => {
            // Embeddings and final norm have dropout.
            let around = 2.0 * mask(model.settings().dropout);
            let encoder = BlockInput {
                biased: true,
                ..input
            };
            let decoder = BlockInput {
                tokens: batch.targets as f64,
                seq: sizes.target as f64,
                memory: input.tokens,
                biased: true,
            };
            vec![
                StackShape::of(&model.encoder(), encoder, around),
                StackShape::of(&model.decoder(), decoder, around),
            ]
        }
    }
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
    pub fn of(model: AnyConfig<'_>, batch: BatchShape) -> Self {
        let tokens = match model {
            AnyConfig::Decoder(_) | AnyConfig::Encoder(_) => batch.inputs,
            AnyConfig::EncoderDecoder(_) => batch.targets,
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
        match model {
            AnyConfig::Decoder(model) => of_vocabulary(model.d_model(), model.head().bias, 0.0),
            AnyConfig::EncoderDecoder(model) => {
                let settings = model.settings();
                of_vocabulary(settings.d_model, settings.head.bias, 0.0)
            }
            AnyConfig::Encoder(model) => match &model.settings().head {
                Some(EncoderHeadConfig::MaskedLm { .. }) => {
                    // The activation's slope and output, the norm's output, and it with a column of ones for the bias.
                    let kept = 4.0 * tokens as f64 * model.d_model() as f64;
                    of_vocabulary(model.d_model(), true, kept)
                }
                Some(EncoderHeadConfig::Token { labels, .. }) => Self {
                    temporaries: 2.0 * tokens as f64 * labels.len() as f64,
                    ..Self::default()
                },
                // Of the first token only.
                Some(EncoderHeadConfig::Pooler | EncoderHeadConfig::Sequence { .. }) | None => {
                    Self::default()
                }
            },
        }
    }
}

/// Elements of the matrices of linear layers, which some optimizers treat differently.
pub(super) fn matrices(model: AnyConfig<'_>) -> f64 {
    match model {
        AnyConfig::Decoder(model) => {
            let counted = count::parameters(model);
            counted.attention as f64 + counted.feed_forward as f64
        }
        AnyConfig::Encoder(model) => linear_layers(&[model.stack()]),
        AnyConfig::EncoderDecoder(model) => linear_layers(&both(model)),
    }
}

fn both(model: &EncoderDecoderConfig) -> [StackConfig; 2] {
    [model.encoder(), model.decoder()]
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

/// Elements of the largest parameter.
pub(super) fn largest(model: AnyConfig<'_>) -> f64 {
    let table = |rows: usize, columns: usize| rows as f64 * columns as f64;
    let (stacks, tables) = match model {
        AnyConfig::Decoder(model) => {
            let positions = match model.position() {
                Position::Learned => model.seq_len(),
                _ => 0,
            };
            let rows = model.vocab_size().max(positions);
            (vec![model.stack()], table(rows, model.d_model()))
        }
        AnyConfig::Encoder(model) => {
            let rows = model.vocab_size().max(model.settings().positions);
            (vec![model.stack()], table(rows, model.d_model()))
        }
        AnyConfig::EncoderDecoder(model) => (
            both(model).to_vec(),
            table(model.vocab_size(), model.settings().d_model),
        ),
    };
    let kinds = stacks.iter().flat_map(StackConfig::kinds);
    let linear = kinds.filter(|(blocks, _)| *blocks > 0);
    let linear = linear.flat_map(|(_, block)| block.linear_layers());
    linear.map(|layer| elements(&layer)).fold(tables, f64::max)
}
