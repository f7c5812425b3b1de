//! A causal convolution of each channel with a few taps, and its gradients.

use super::parallel::{self, Shared, rows_per_task};
use super::vector::wide;

/// The channels of a task of the backward pass, which goes through all tokens: whole cache lines.
const CHANNELS: usize = 64;

/// The inputs, in row-major order.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// The number of sequences, the tokens of each, and the channels.
    pub sizes: [usize; 3],
    /// `[batch, seq, channels]`.
    pub x: &'a [f32],
    /// `[taps, channels]`.
    pub weight: &'a [f32],
    /// `[batch, taps - 1, channels]`.
    pub past: Option<&'a [f32]>,
}

impl<'a> Inputs<'a> {
    fn taps(&self) -> usize {
        self.weight.len() / self.sizes[2].max(1)
    }

    fn check(&self) {
        let [batch, seq, channels] = self.sizes;
        let past = batch * (self.taps().max(1) - 1) * channels;
        assert!(
            self.x.len() == batch * seq * channels
                && self.weight.len() == self.taps() * channels
                && self.past.is_none_or(|of| of.len() == past),
            "the sizes do not fit"
        );
    }

    /// The channels of token `t` of a sequence; a negative one is of the past, and `None` if it is 0.
    #[inline(always)]
    fn token(&self, sequence: usize, t: isize) -> Option<&'a [f32]> {
        let [_, seq, channels] = self.sizes;
        let before = self.taps() - 1;
        let (rows, row) = match usize::try_from(t) {
            Ok(t) => (self.x, sequence * seq + t),
            Err(_) => (
                self.past?,
                sequence * before + (before as isize + t) as usize,
            ),
        };
        Some(&rows[row * channels..][..channels])
    }
}

/// Writes the output, `[batch, seq, channels]`.
///
/// # Panics
/// Panics if the sizes do not fit.
pub fn short_convolution(inputs: Inputs<'_>, output: &mut [f32]) {
    inputs.check();
    let [batch, seq, channels] = inputs.sizes;
    assert_eq!(output.len(), inputs.x.len(), "the sizes do not fit");
    let rows = batch * seq;
    let block = rows_per_task(rows, channels);
    let output = Shared::new(output);
    parallel::for_each(rows.div_ceil(block), |task| {
        let rows = task * block..rows.min((task + 1) * block);
        // SAFETY: each task has its own rows.
        let output = unsafe { output.part(rows.start * channels..rows.end * channels) };
        wide(
            #[inline(always)]
            || {
                for (row, output) in rows.zip(output.chunks_exact_mut(channels)) {
                    output.fill(0.0);
                    let (sequence, t) = (row / seq, row % seq);
                    for (tap, factors) in inputs.weight.chunks_exact(channels).enumerate() {
                        let t = (t + tap + 1) as isize - inputs.taps() as isize;
                        let Some(x) = inputs.token(sequence, t) else {
                            continue;
                        };
                        for (out, (x, factor)) in output.iter_mut().zip(x.iter().zip(factors)) {
                            *out += x * factor;
                        }
                    }
                }
            },
        );
    });
}

/// Writes the gradients of `x` and of the weight from that of the output.
///
/// # Panics
/// Panics if the sizes do not fit.
pub fn short_convolution_backward(
    inputs: Inputs<'_>,
    grad: &[f32],
    [x_grad, weight_grad]: [&mut [f32]; 2],
) {
    inputs.check();
    let [batch, seq, channels] = inputs.sizes;
    assert!(
        grad.len() == inputs.x.len()
            && x_grad.len() == grad.len()
            && weight_grad.len() == inputs.weight.len(),
        "the sizes do not fit"
    );
    let [x_grad, weight_grad] = [x_grad, weight_grad].map(Shared::new);
    let taps = inputs.taps();
    parallel::for_each(channels.div_ceil(CHANNELS), |task| {
        let own = task * CHANNELS..channels.min((task + 1) * CHANNELS);
        let at = |row: usize| row * channels + own.start..row * channels + own.end;
        let mut sums = vec![0.0; taps * own.len()];
        wide(
            #[inline(always)]
            || {
                for row in 0..batch * seq {
                    let (sequence, t) = (row / seq, row % seq);
                    let of_row = &grad[at(row)];
                    // SAFETY: each task has its own channels.
                    let out = unsafe { x_grad.part(at(row)) };
                    out.fill(0.0);
                    for (tap, sums) in sums.chunks_exact_mut(own.len()).enumerate() {
                        let later = taps - 1 - tap;
                        if t + later < seq {
                            let factors = &inputs.weight[at(tap)];
                            let grad = &grad[at(row + later)];
                            for (out, (grad, factor)) in
                                out.iter_mut().zip(grad.iter().zip(factors))
                            {
                                *out += grad * factor;
                            }
                        }
                        let Some(x) = inputs.token(sequence, t as isize - later as isize) else {
                            continue;
                        };
                        let x = &x[own.clone()];
                        for (sum, (x, grad)) in sums.iter_mut().zip(x.iter().zip(of_row)) {
                            *sum += x * grad;
                        }
                    }
                }
            },
        );
        for (tap, sums) in sums.chunks_exact(own.len()).enumerate() {
            // SAFETY: as above.
            unsafe { weight_grad.part(at(tap)) }.copy_from_slice(sums);
        }
    });
}
