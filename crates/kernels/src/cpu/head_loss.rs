//! The language-model head with its cross-entropy.
//!
//! With `x = hidden Wᵀ` the logits and `L = ln Σ exp x`, the gradient by the logits is
//! `g = (1 + 2zL) · p - (1 - ε) · y - ε/V` ([`HeadLossOptions`] names the letters), and `dhidden = g W`, `dW = gᵀ hidden`.
//! It takes three products and little else:
//!
//! 1. A sweep over the vocabulary in tiles ([`block`]): a tile's logits become `exp(x - reference)` while they are in the
//!    cache ([`tile`]), and at once are multiplied with the tile's weights into a sum for `dhidden`. The reference follows
//!    the largest logit so far, as in the online softmax (Milakov and Gimelshein 2018). The exponentials of a block of
//!    rows are kept: without their rows' sums, which nobody knows before the end, they cannot be summed for `dW`.
//! 2. `dhidden` is those sums times a number for each row ([`rows`]), less the target's row of `W`.
//! 3. `dW` is the exponentials, transposed, times the hidden states, each times its row's number for the tile, less the
//!    hidden states of the targets in the order of the tokens.
//!
//! Tokens that are ignored are left out before all that. A soft cap with label smoothing takes a sweep more: its even part
//! is no row that could be subtracted at the end, since the cap's slope multiplies it.

pub mod block;
pub mod cut;
pub mod rows;
pub mod tile;

use std::borrow::Cow;
use std::mem::MaybeUninit;

use self::block::{Block, Kept, add_scaled};
use self::cut::Cut;
pub use self::cut::most_held;
use super::parallel::{Shared, for_each, ranges};
use super::product::Output;
use super::vector::wide;
use crate::{HeadLossOptions, Precision};

/// The head on some tokens.
#[derive(Clone, Copy, Debug)]
pub struct HeadLossTask<'a> {
    /// The hidden states, `[tokens, width]`.
    pub hidden: &'a [f32],
    /// W, `[vocab, width]`.
    pub weight: &'a [f32],
    /// The targets, `[tokens]`; one below 0 is ignored.
    pub targets: &'a [i32],
    /// `d_model`.
    pub width: usize,
    /// The number of tokens that the vocabulary has.
    pub vocab: usize,
    /// The terms of the loss.
    pub options: HeadLossOptions,
    /// Of the products.
    pub precision: Precision,
}

/// The loss of [`HeadLossOptions`], summed over the tokens that are not ignored. Logits are made in tiles and not kept.
///
/// # Panics
/// Panics if the slices' lengths are not those of the shapes, `width` is 0, or a target is not below `vocab`.
pub fn head_loss(task: &HeadLossTask<'_>) -> f64 {
    head_loss_cut(task, |rows| Cut::new(rows, task.width, task.vocab))
}

/// [`head_loss`] cut otherwise, by how many rows are learnt.
///
/// # Panics
/// As there.
pub fn head_loss_cut(task: &HeadLossTask<'_>, cut: impl Fn(usize) -> Cut) -> f64 {
    let learnt = Learnt::new(task);
    if learnt.rows.is_empty() {
        return 0.0;
    }
    let block = Block {
        task,
        cut: cut(learnt.rows.len()),
        hidden: &learnt.hidden,
        targets: &learnt.targets,
    };
    let rows = block.finished(&block.sweep(None));
    rows.iter().map(|row| row.loss).sum()
}

/// [`head_loss`] with its gradients: `hidden_grad` `[tokens, width]`, 0 for what is ignored, and `weight_grad`
/// `[vocab, width]`, both overwritten.
///
/// # Panics
/// Panics if the slices' lengths are not those of the shapes, `width` is 0, or a target is not below `vocab`.
pub fn head_loss_gradients(
    task: &HeadLossTask<'_>,
    hidden_grad: &mut [f32],
    weight_grad: &mut [f32],
) -> f64 {
    let cut = |rows| Cut::new(rows, task.width, task.vocab);
    head_loss_gradients_cut(task, cut, hidden_grad, weight_grad)
}

/// [`head_loss_gradients`] cut otherwise, by how many rows are learnt.
///
/// # Panics
/// As there.
pub fn head_loss_gradients_cut(
    task: &HeadLossTask<'_>,
    cut: impl Fn(usize) -> Cut,
    hidden_grad: &mut [f32],
    weight_grad: &mut [f32],
) -> f64 {
    let HeadLossTask {
        width,
        vocab,
        options,
        ..
    } = *task;
    let learnt = Learnt::new(task);
    assert!(
        hidden_grad.len() == task.hidden.len() && weight_grad.len() == task.weight.len(),
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
    if learnt.rows.is_empty() {
        weight_grad.fill(0.0);
        return 0.0;
    }
    let cut = cut(learnt.rows.len());
    let smoothed = options.label_smoothing != 0.0;
    // The even part as a constant row each for dhidden and dW, or in the gradient by the logits.
    let whole = smoothed && options.soft_cap > 0.0;
    let constant = smoothed && !whole;
    let even = options.label_smoothing / vocab as f64;
    let even_weight = constant.then(|| sum_of_rows(task.weight, width, even));
    let hidden_grad = Shared::new(hidden_grad);
    let weight_grad = Shared::new(weight_grad);

    let most = cut.block.min(learnt.rows.len());
    let mut exponentials = Box::new_uninit_slice(most * vocab);
    let mut loss = 0.0;
    for range in ranges(learnt.rows.len(), cut.block) {
        let block = Block {
            task,
            cut,
            hidden: &learnt.hidden[range.start * width..range.end * width],
            targets: &learnt.targets[range.clone()],
        };
        let known = whole.then(|| block.finished(&block.sweep(None)));
        let exponentials = &mut exponentials[..range.len() * vocab];
        let mut references = vec![0.0; block.tile_count() * range.len()];
        let mut sums = Box::new_uninit_slice(block.chunk_count() * range.len() * width);
        let kept = Kept {
            exponentials: Shared::new(exponentials),
            references: Shared::new(&mut references),
            hidden: Shared::new(&mut sums),
            known: known.as_deref(),
        };
        let states = block.sweep(Some(&kept));
        // SAFETY: the sweep has written every tile's rows and every chunk's.
        let (exponentials, sums) = unsafe { (initialised(exponentials), initialised(&sums)) };

        let states = (!whole).then_some(&states[..]);
        let references = (!whole).then_some(&references[..]);
        let rows = match (known, states) {
            (None, Some(states)) => block.finished(states),
            (known, _) => known.unwrap_or_default(),
        };
        loss = rows.iter().fold(loss, |loss, row| loss + row.loss);

        let place = |row: usize| learnt.rows[range.start + row];
        block.hidden_grad(
            &rows,
            states,
            sums,
            even_weight.as_deref(),
            place,
            &hidden_grad,
        );
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
            &weight_grad,
            output,
        );
    }
    loss
}

/// The tokens that are not ignored.
struct Learnt<'a> {
    /// Which they are.
    rows: Vec<usize>,
    /// Their hidden states, `[rows, width]`.
    hidden: Cow<'a, [f32]>,
    /// Their targets.
    targets: Vec<usize>,
}

impl<'a> Learnt<'a> {
    fn new(task: &HeadLossTask<'a>) -> Self {
        let HeadLossTask { width, vocab, .. } = *task;
        let tokens = task.targets.len();
        assert!(width > 0, "the head's width");
        assert!(
            task.hidden.len() == tokens * width && task.weight.len() == vocab * width,
            "the head's sizes"
        );
        let learnt = |(row, target): (usize, &i32)| Some((row, usize::try_from(*target).ok()?));
        let all = task.targets.iter().enumerate();
        let (rows, targets): (Vec<_>, Vec<_>) = all.filter_map(learnt).unzip();
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
        // SAFETY: each part has its own row.
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

/// The same memory.
///
/// # Safety
/// All of it has been written.
unsafe fn initialised(memory: &[MaybeUninit<f32>]) -> &[f32] {
    // SAFETY: by the caller's promise; the layouts are the same.
    unsafe { std::slice::from_raw_parts(memory.as_ptr().cast(), memory.len()) }
}
