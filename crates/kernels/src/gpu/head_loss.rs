//! The language model head with its cross-entropy, in few passes over blocks of logits.
//!
//! For each block of rows, a matrix product writes the logits, one kernel ([`rows`]) reduces them to the losses and
//! overwrites them by their gradient `g`, and two products result in `dhidden = g W` and `dW += gᵀ hidden`. In 16-bit
//! precisions, hidden states, the weight and `g` are rounded, and the sums of the products stay in f32.
//!
//! The vocabulary is padded to a multiple of 64, so that the rows of the logits are aligned: the products use a copy of
//! the weight with rows of zeros at its end.

mod padded;
mod rows;

use burn::tensor::ops::FloatTensorOps;
use burn::tensor::{DType, Shape, TensorMetadata};
use burn_cubecl::CubeRuntime;
use burn_cubecl::cubecl::client::ComputeClient;
use burn_cubecl::kernel::{cast, into_contiguous, slice};
use burn_cubecl::ops::numeric::{add, mul_scalar, zeros};
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::InputScalar;

use self::padded::padded;
use self::rows::LogitGradients;
use super::launch::empty;
use super::matmul::product;
use super::queue::{OnRuntime, Queued, Unfused, queue};
use super::squares::sum;
use super::{block_bytes, largest_buffer};
use crate::base_ops::usable;
use crate::{HeadLossGradients, HeadLossInputs, HeadLossOptions, reference};

/// The multiple that the vocabulary is padded to.
const SIDE: usize = 64;

/// The most rows of a block, a multiple of 64 within the limit of cubes in a dimension.
const MOST_ROWS: usize = 65_472;

/// The most units of a cube.
const MOST_UNITS: u32 = 512;

/// The factor of `g` in f16, in which most elements would lose precision or underflow: they are probabilities of about
/// `1/V` or less. Their magnitude is at most 1, and with z-loss `1 + 2zL`, so `g` stays within f16's range of 65,504.
/// The sums of the products do not need to, as they are in f32.
const F16_SCALE: f64 = 2048.0;

/// See [`crate::Backend::head_loss`].
pub fn head_loss<B: OnRuntime<R>, R: CubeRuntime>(inputs: HeadLossInputs<B>) -> Queued<R> {
    match Task::of(inputs) {
        Ok((task, inputs)) => {
            let outputs = [(Shape::new([1]), DType::F32)];
            let [loss] = queue("head_loss", inputs, outputs, move |inputs| {
                [sum(task.run(inputs, None).losses)]
            });
            loss
        }
        Err(inputs) => {
            let (inputs, rows) = reference::in_blocks::<B>(inputs);
            reference::head_loss::<B>(inputs, rows)
        }
    }
}

/// See [`crate::Backend::head_losses`].
pub fn head_losses<B: OnRuntime<R>, R: CubeRuntime>(inputs: HeadLossInputs<B>) -> Queued<R> {
    match Task::of(inputs) {
        Ok((task, inputs)) => {
            let outputs = [(Shape::new([task.tokens]), DType::F32)];
            let [losses] = queue("head_losses", inputs, outputs, move |inputs| {
                [task.run(inputs, None).losses]
            });
            losses
        }
        Err(inputs) => {
            let (inputs, rows) = reference::in_blocks::<B>(inputs);
            reference::head_losses::<B>(inputs, rows)
        }
    }
}

/// The loss with its gradients, those of the weights only if `trains_weights`. With `row_grads` `[tokens]`, the gradients
/// are those of the sum of the tokens' losses, each times its element. See [`crate::Backend::head_loss_gradients`] and
/// [`crate::Backend::head_losses_backward`].
pub fn head_loss_gradients<B: OnRuntime<R>, R: CubeRuntime>(
    inputs: HeadLossInputs<B>,
    row_grads: Option<Queued<R>>,
    trains_weights: bool,
) -> HeadLossGradients<B> {
    match Task::of(inputs) {
        Ok((task, inputs)) => task.gradients::<B, R>(inputs, row_grads, trains_weights),
        Err(inputs) => {
            let (inputs, rows) = reference::in_blocks::<B>(inputs);
            match row_grads {
                Some(grads) => {
                    reference::head_losses_backward::<B>(inputs, grads, trains_weights, rows)
                }
                None => reference::head_loss_gradients::<B>(inputs, rows),
            }
        }
    }
}

/// The settings and sizes of a call.
#[derive(Clone, Copy)]
struct Task {
    options: HeadLossOptions,
    /// The type of the products' operands.
    kind: DType,
    tokens: usize,
    width: usize,
    vocab_size: usize,
    /// The padded vocabulary size.
    columns: usize,
    /// The rows of a block.
    rows: usize,
}

/// The results of [`Task::run`].
struct Made<R: CubeRuntime> {
    /// `[tokens]`.
    losses: CubeTensor<R>,
    /// The gradient of each block of hidden states, `[rows, d_model]`, times [`Task::scale`].
    hidden: Vec<CubeTensor<R>>,
    /// The gradient of the padded weight, `[columns, d_model]`, times [`Task::scale`].
    weight: Option<CubeTensor<R>>,
}

/// The gradients that [`Task::run`] computes.
struct Wanted<R: CubeRuntime> {
    weight: bool,
    /// The hidden states in the product for the weight's gradient, if they differ from those of the logits.
    scaled_hidden: Option<CubeTensor<R>>,
}

impl Task {
    /// The task with the hidden states, the weight and the targets.
    ///
    /// # Errors
    /// Returns the inputs if the reference implementation has to compute them: weights in several parts, which together
    /// may exceed the largest buffer, and other types than f32.
    #[allow(clippy::type_complexity)]
    fn of<B: OnRuntime<R>, R: CubeRuntime>(
        inputs: HeadLossInputs<B>,
    ) -> Result<(Self, [Queued<R>; 3]), HeadLossInputs<B>> {
        let (hidden, [weight]) = (&inputs.hidden, inputs.weights.as_slice()) else {
            return Err(inputs);
        };
        let ([tokens, width], vocab_size) = (hidden.shape().dims(), weight.shape()[0]);
        let is_empty = tokens * width * vocab_size == 0;
        if is_empty || hidden.dtype() != DType::F32 || weight.dtype() != DType::F32 {
            return Err(inputs);
        }
        let device = B::float_device(hidden);
        let padded = vocab_size.next_multiple_of(SIDE);
        let fits = (padded * width * size_of::<f32>()) as u64 <= largest_buffer::<R>(&device);
        let columns = if fits { padded } else { vocab_size };
        let rows = reference::rows_per_block(columns, block_bytes::<R>(&device));
        let task = Self {
            options: inputs.options,
            kind: usable::<B>(inputs.precision, hidden).kind(),
            tokens,
            width,
            vocab_size,
            columns,
            rows: rows.min(MOST_ROWS),
        };
        let weight = weight.clone();
        Ok((task, [inputs.hidden, weight, inputs.targets]))
    }

    /// See [`head_loss_gradients`].
    fn gradients<B: OnRuntime<R>, R: CubeRuntime>(
        self,
        [hidden, weight, targets]: [Queued<R>; 3],
        row_grads: Option<Queued<R>>,
        trains_weights: bool,
    ) -> HeadLossGradients<B> {
        // In 16 bits, gradients of any magnitude are outside of what is rounded to `g`.
        let shape = Shape::new([self.tokens, 1]);
        let row_grads = row_grads.map(|grads| B::float_reshape(grads, shape));
        let has_row_grads = row_grads.is_some();
        let scaled = match &row_grads {
            Some(grads) if trains_weights => B::float_mul(hidden.clone(), grads.clone()),
            _ => hidden.clone(),
        };
        let like = |shape: Shape| (shape, DType::F32);
        let outputs = [Shape::new([1]), hidden.shape(), weight.shape()].map(like);
        let inputs = [hidden, weight, targets, scaled];
        let run = move |[hidden, weight, targets, scaled]: [CubeTensor<R>; 4]| {
            let wanted = Wanted {
                weight: trains_weights,
                scaled_hidden: has_row_grads.then_some(scaled),
            };
            self.run([hidden, weight, targets], Some(wanted))
        };
        let (loss, hidden, weights) = match trains_weights {
            true => {
                let [loss, hidden, weight] =
                    queue("head_loss_gradients", inputs, outputs, move |inputs| {
                        let made = run(inputs);
                        let weight = self.weight_grad(made.weight, &made.losses);
                        [sum(made.losses), self.hidden_grad(made.hidden), weight]
                    });
                (loss, hidden, vec![weight])
            }
            false => {
                let [of_loss, of_hidden, _] = outputs;
                let outputs = [of_loss, of_hidden];
                let [loss, hidden] = queue(
                    "head_loss_hidden_gradient",
                    inputs,
                    outputs,
                    move |inputs| {
                        let made = run(inputs);
                        [sum(made.losses), self.hidden_grad(made.hidden)]
                    },
                );
                (loss, hidden, Vec::new())
            }
        };
        HeadLossGradients {
            loss,
            hidden: match row_grads {
                Some(grads) => B::float_mul(hidden, grads),
                None => hidden,
            },
            weights,
        }
    }

    /// Computes the losses, and the gradients that are `wanted`, block by block.
    fn run<R: CubeRuntime>(
        self,
        [hidden, weight, targets]: [CubeTensor<R>; 3],
        wanted: Option<Wanted<R>>,
    ) -> Made<R> {
        let mut made = Made {
            losses: empty(&hidden, Shape::new([self.tokens]), DType::F32),
            hidden: Vec::new(),
            weight: None,
        };
        let targets = into_contiguous(targets);
        let weight = padded(weight, self.columns, self.kind);
        let hidden = cast(hidden, self.kind);
        let gradients = wanted.as_ref().map(|_| LogitGradients {
            kind: self.kind,
            scale: self.scale(),
        });
        // The hidden states in the product for the weight's gradient.
        let of_weight = wanted.filter(|wanted| wanted.weight).map(|wanted| {
            let scaled = wanted.scaled_hidden;
            scaled.map_or_else(|| hidden.clone(), |scaled| cast(scaled, self.kind))
        });
        for first in (0..self.tokens).step_by(self.rows) {
            let rows = first..self.tokens.min(first + self.rows);
            let block = |of: &CubeTensor<R>| slice(of.clone(), &[rows.clone(), 0..self.width]);
            let logits = product(block(&hidden), transposed(&weight), DType::F32);
            let grads = rows::losses(
                logits,
                &targets,
                &made.losses,
                first,
                self.vocab_size,
                self.options,
                gradients,
            );
            let Some(grads) = grads else {
                continue;
            };
            if let Some(of_weight) = &of_weight {
                let part = product(transposed(&grads), block(of_weight), DType::F32);
                made.weight = Some(match made.weight.take() {
                    Some(sum) => add(sum, part),
                    None => part,
                });
            }
            made.hidden.push(product(grads, weight.clone(), DType::F32));
        }
        made
    }

    /// The factor of `g`.
    fn scale(self) -> f64 {
        match self.kind {
            DType::F16 => F16_SCALE,
            _ => 1.0,
        }
    }

    /// Divides by [`Task::scale`].
    fn unscaled<R: CubeRuntime>(self, x: CubeTensor<R>) -> CubeTensor<R> {
        match self.scale() {
            1.0 => x,
            scale => {
                let kind = x.dtype;
                mul_scalar(x, InputScalar::new(1.0 / scale, kind))
            }
        }
    }

    /// The gradient of the hidden states from those of the blocks.
    fn hidden_grad<R: CubeRuntime>(self, blocks: Vec<CubeTensor<R>>) -> CubeTensor<R> {
        self.unscaled(match <[_; 1]>::try_from(blocks) {
            Ok([block]) => block,
            Err(blocks) => <Unfused<R> as FloatTensorOps<_>>::float_cat(blocks, 0),
        })
    }

    /// The gradient of the weight from that of the padded weight, or zeros on the device of `like` without one.
    fn weight_grad<R: CubeRuntime>(
        self,
        padded: Option<CubeTensor<R>>,
        like: &CubeTensor<R>,
    ) -> CubeTensor<R> {
        match padded {
            Some(padded) => {
                let cut = slice(padded, &[0..self.vocab_size, 0..self.width]);
                self.unscaled(cut)
            }
            None => {
                let shape = Shape::new([self.vocab_size, self.width]);
                zeros(like.device.clone(), shape, DType::F32)
            }
        }
    }
}

fn transposed<R: CubeRuntime>(matrix: &CubeTensor<R>) -> CubeTensor<R> {
    let mut matrix = matrix.clone();
    matrix.meta.swap(0, 1);
    matrix
}

/// The units of a cube, a power of two.
fn units<R: CubeRuntime>(client: &ComputeClient<R>) -> usize {
    let units = client.properties().hardware.max_units_per_cube;
    1 << units.clamp(1, MOST_UNITS).ilog2()
}
