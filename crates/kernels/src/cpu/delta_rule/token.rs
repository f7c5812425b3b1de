//! A single token, as in decoding: the memory is read twice and written once.

use super::chunk::{key_scale, norm_factor};
use super::inputs::{Inputs, Task};
use crate::cpu::reduce::add_scaled;
use crate::cpu::vector::wide;

/// Writes a head's memory after the token, and its output.
pub(super) fn pass(
    inputs: Inputs<'_>,
    task: Task,
    head: usize,
    memory: &mut [f32],
    output: &mut [f32],
) {
    let row = task.sequence;
    let width = inputs.heads.value_dim;
    let channels = inputs.channels(row);
    let [q, k] = inputs.heads.key_columns(task.key_head);
    let [q, k] = [&channels[q], &channels[k]];
    let v = &channels[inputs.heads.value_columns(head)];
    let before = inputs
        .memory
        .map(|memory| &memory[inputs.memory_of(task.sequence, head)]);
    let (fading, rate) = (inputs.decay(row, head).exp(), inputs.rate(row, head));
    let mut added = vec![0.0; width];
    wide(
        #[inline(always)]
        || {
            let of_query = key_scale(q.len()) * norm_factor(q);
            let of_key = norm_factor(k);
            if let Some(before) = before {
                for (k, memory) in k.iter().zip(before.chunks_exact(width)) {
                    add_scaled(&mut added, memory, -fading * of_key * k);
                }
            }
            for (added, v) in added.iter_mut().zip(v) {
                *added = rate * (*added + v);
            }
            output.fill(0.0);
            for (row, memory) in memory.chunks_exact_mut(width).enumerate() {
                let key = of_key * k[row];
                match before {
                    Some(before) => {
                        let before = &before[row * width..][..width];
                        for (memory, (before, added)) in
                            memory.iter_mut().zip(before.iter().zip(&added))
                        {
                            *memory = fading * before + key * added;
                        }
                    }
                    None => {
                        for (memory, added) in memory.iter_mut().zip(&added) {
                            *memory = key * added;
                        }
                    }
                }
                add_scaled(output, memory, of_query * q[row]);
            }
        },
    );
}
