//! The language model head with its cross-entropy.
//!
//! With the logits `x = hidden Wᵀ` and `L = ln Σ exp x`, the gradient of the logits is
//! `g = (1 + 2zL) · p - (1 - ε) · y - ε/V` ([`HeadLossOptions`] defines the symbols), and `dhidden = g W`,
//! `dW = gᵀ hidden`. The cost is dominated by three matrix products:
//!
//! 1. A sweep over the vocabulary in tiles ([`block`]). While a tile's logits are in the cache ([`tile`]), they
//!    become `exp(x - reference)` and are multiplied with the tile's weights, accumulating `dhidden`. The
//!    reference follows the running maximum of the logits, as in the online softmax (Milakov and Gimelshein 2018).
//!    The exponentials of a block of rows are stored: `dW` needs the sums of their rows, which are only known at
//!    the end of the sweep.
//! 2. `dhidden` is the accumulated sums times a factor per row ([`rows`]), minus the target's row of `W`.
//! 3. `dW` is the transposed exponentials times the hidden states, which are scaled by a factor per row and tile,
//!    minus the hidden states of the targets in token order.
//!
//! Ignored tokens are removed first. A soft cap combined with label smoothing needs another sweep: the cap's
//! derivative multiplies the contribution of `ε/V`, so it is not a constant row that can be subtracted at the
//! end.

pub mod block;
pub mod rows;
pub mod tile;
pub mod tiling;

use std::borrow::Cow;
use std::mem::MaybeUninit;

use self::block::{Block, SweepOutput};
use self::tiling::Tiling;
pub use self::tiling::peak_elements;
use super::parallel::{Shared, for_each, ranges};
use super::product::Output;
use super::reduce::add_scaled;
use super::vector::wide;
use crate::{HeadLossOptions, Precision};

/// The inputs of the head for some tokens.
#[derive(Clone, Copy, Debug)]
pub struct HeadLossTask<'a> {
    /// The hidden states, `[tokens, width]`.
    pub hidden: &'a [f32],
    /// W, `[vocab, width]`.
    pub weight: &'a [f32],
    /// The targets, `[tokens]`; negative ones are ignored.
    pub targets: &'a [i32],
    /// `d_model`.
    pub width: usize,
    /// The size of the vocabulary.
    pub vocab: usize,
    /// The terms of the loss.
    pub options: HeadLossOptions,
    /// The precision of the products.
    pub precision: Precision,
}

/// The loss of [`HeadLossOptions`], summed over the tokens that are not ignored. The logits are computed in tiles
/// and not stored.
///
/// # Panics
/// Panics if the lengths of the slices do not match the shapes, `width` is 0, or a target is not below `vocab`.
pub fn head_loss(task: &HeadLossTask<'_>) -> f64 {
    head_loss_tiled(task, |rows| Tiling::new(rows, task.width, task.vocab))
}

/// [`head_loss`] with a custom tiling, given the number of tokens that are not ignored.
///
/// # Panics
/// See [`head_loss`].
pub fn head_loss_tiled(task: &HeadLossTask<'_>, tiling: impl Fn(usize) -> Tiling) -> f64 {
    let active = ActiveTokens::new(task);
    if active.rows.is_empty() {
        return 0.0;
    }
    let block = Block {
        task,
        tiling: tiling(active.rows.len()),
        hidden: &active.hidden,
        targets: &active.targets,
    };
    let rows = block.final_rows(&block.sweep(None));
    rows.iter().map(|row| row.loss).sum()
}

/// [`head_loss`] with its gradients `hidden_grad` `[tokens, width]`, 0 for ignored tokens, and `weight_grad`
/// `[vocab, width]`. Both are overwritten.
///
/// # Panics
/// Panics if the lengths of the slices do not match the shapes, `width` is 0, or a target is not below `vocab`.
pub fn head_loss_gradients(
    task: &HeadLossTask<'_>,
    hidden_grad: &mut [f32],
    weight_grad: &mut [f32],
) -> f64 {
    let tiling = |rows| Tiling::new(rows, task.width, task.vocab);
    head_loss_gradients_tiled(task, tiling, hidden_grad, weight_grad)
}

/// [`head_loss_gradients`] with a custom tiling, given the number of tokens that are not ignored.
///
/// # Panics
/// See [`head_loss_gradients`].
pub fn head_loss_gradients_tiled(
    task: &HeadLossTask<'_>,
    tiling: impl Fn(usize) -> Tiling,
    hidden_grad: &mut [f32],
    weight_grad: &mut [f32],
) -> f64 {
    gradients(task, tiling, hidden_grad, Some(weight_grad))
}

/// [`head_loss_gradients`] with the gradient of the hidden states only: for a weight that is not trained.
///
/// # Panics
/// See [`head_loss_gradients`].
pub fn head_loss_hidden_gradient(task: &HeadLossTask<'_>, hidden_grad: &mut [f32]) -> f64 {
    let tiling = |rows| Tiling::new(rows, task.width, task.vocab);
    gradients(task, tiling, hidden_grad, None)
}

fn gradients(
    task: &HeadLossTask<'_>,
    tiling: impl Fn(usize) -> Tiling,
    hidden_grad: &mut [f32],
    weight_grad: Option<&mut [f32]>,
) -> f64 {
    let HeadLossTask {
        width,
        vocab,
        options,
        ..
    } = *task;
    let active = ActiveTokens::new(task);
    let weight_len = weight_grad
        .as_ref()
        .map_or(task.weight.len(), |grad| grad.len());
    assert!(
        hidden_grad.len() == task.hidden.len() && weight_len == task.weight.len(),
        "the gradients' sizes"
    );
    let ignored = task
        .targets
        .iter()
        .enumerate()
        .filter(|(_, target)| **target < 0);
    for (token, _) in ignored {
        hidden_grad[token * width..(token + 1) * width].fill(0.0);
    }
    if active.rows.is_empty() {
        if let Some(weight_grad) = weight_grad {
            weight_grad.fill(0.0);
        }
        return 0.0;
    }
    let tiling = tiling(active.rows.len());
    let smoothed = options.label_smoothing != 0.0;
    // The contribution of ε/V is a constant row each for dhidden and dW, or part of the gradient of the logits.
    let whole = smoothed && options.soft_cap > 0.0;
    let constant = smoothed && !whole;
    let even = options.label_smoothing / vocab as f64;
    let even_weight = constant.then(|| sum_of_rows(task.weight, width, even));
    let hidden_grad = Shared::new(hidden_grad);
    let weight_grad = weight_grad.map(Shared::new);

    let most = tiling.block.min(active.rows.len());
    let mut exponentials = Box::new_uninit_slice(most * vocab);
    let mut loss = 0.0;
    for range in ranges(active.rows.len(), tiling.block) {
        let block = Block {
            task,
            tiling,
            hidden: &active.hidden[range.start * width..range.end * width],
            targets: &active.targets[range.clone()],
        };
        let final_rows = whole.then(|| block.final_rows(&block.sweep(None)));
        let exponentials = &mut exponentials[..range.len() * vocab];
        let mut references = vec![0.0; block.tile_count() * range.len()];
        let mut sums = Box::new_uninit_slice(block.chunk_count() * range.len() * width);
        let sweep_output = SweepOutput {
            exponentials: Shared::new(exponentials),
            references: Shared::new(&mut references),
            hidden: Shared::new(&mut sums),
            final_rows: final_rows.as_deref(),
        };
        let states = block.sweep(Some(&sweep_output));
        // SAFETY: the sweep has written the rows of every tile and of every chunk.
        let (exponentials, sums) = unsafe { (assume_init(exponentials), assume_init(&sums)) };

        let states = (!whole).then_some(&states[..]);
        let references = (!whole).then_some(&references[..]);
        let rows = match (final_rows, states) {
            (None, Some(states)) => block.final_rows(states),
            (final_rows, _) => final_rows.unwrap_or_default(),
        };
        loss = rows.iter().fold(loss, |loss, row| loss + row.loss);

        let token = |row: usize| active.rows[range.start + row];
        block.hidden_grad(
            &rows,
            states,
            sums,
            even_weight.as_deref(),
            token,
            &hidden_grad,
        );
        let Some(weight_grad) = &weight_grad else {
            continue;
        };
        let even_hidden = constant.then(|| sum_of_rows(block.hidden, width, even));
        let output = match range.start {
            0 => Output::Overwrite,
            _ => Output::Accumulate,
        };
        block.weight_grad(
            &rows,
            exponentials,
            references,
            even_hidden.as_deref(),
            weight_grad,
            output,
        );
    }
    loss
}

/// The tokens that are not ignored.
struct ActiveTokens<'a> {
    /// Their indices.
    rows: Vec<usize>,
    /// Their hidden states, `[rows, width]`.
    hidden: Cow<'a, [f32]>,
    /// Their targets.
    targets: Vec<usize>,
}

impl<'a> ActiveTokens<'a> {
    fn new(task: &HeadLossTask<'a>) -> Self {
        let HeadLossTask { width, vocab, .. } = *task;
        let tokens = task.targets.len();
        assert!(width > 0, "the head's width");
        assert!(
            task.hidden.len() == tokens * width && task.weight.len() == vocab * width,
            "the head's sizes"
        );
        let active = |(row, target): (usize, &i32)| Some((row, usize::try_from(*target).ok()?));
        let all = task.targets.iter().enumerate();
        let (rows, targets): (Vec<_>, Vec<_>) = all.filter_map(active).unzip();
        assert!(
            targets.iter().all(|target| *target < vocab),
            "a target is not in the vocabulary"
        );
        let hidden = if rows.len() == tokens {
            Cow::Borrowed(task.hidden)
        } else {
            let row = |row: &usize| &task.hidden[row * width..(row + 1) * width];
            Cow::Owned(rows.iter().map(row).collect::<Vec<_>>().concat())
        };
        Self {
            rows,
            hidden,
            targets,
        }
    }
}

/// `factor · Σ rows` of `[rows, width]`, summed in parts of fixed size.
fn sum_of_rows(matrix: &[f32], width: usize, factor: f64) -> Vec<f32> {
    const ROWS: usize = 256;
    let parts: Vec<_> = matrix.chunks(ROWS * width).collect();
    let mut sums = vec![0.0; parts.len() * width];
    let shared = Shared::new(&mut sums);
    for_each(parts.len(), |part| {
        // SAFETY: each part has its own row of the sums.
        let sum = unsafe { shared.part(part * width..(part + 1) * width) };
        wide(
            #[inline(always)]
            || {
                for row in parts[part].chunks_exact(width) {
                    add_scaled(sum, row, 1.0);
                }
            },
        );
    });
    let mut total = vec![0.0; width];
    for sum in sums.chunks_exact(width) {
        for (total, sum) in total.iter_mut().zip(sum) {
            *total += f64::from(*sum);
        }
    }
    total.iter().map(|x| (x * factor) as f32).collect()
}

/// Returns uninitialized memory as initialized.
///
/// # Safety
/// All of it has been written.
unsafe fn assume_init(memory: &[MaybeUninit<f32>]) -> &[f32] {
    // SAFETY: initialized, as the caller guarantees; the layouts are the same.
    unsafe { std::slice::from_raw_parts(memory.as_ptr().cast(), memory.len()) }
}
