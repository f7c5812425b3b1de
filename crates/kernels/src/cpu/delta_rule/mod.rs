//! The gated delta rule. Its equations are those of [`crate::reference::gated_delta_rule`].
//!
//! Map: `inputs` has the sizes and the places of a head; `chunk` the keys and queries of a chunk of tokens and the fading between them; `forward` the passes over the memory
//! of a head; `backward` their gradients; `token` a single token, which reads and writes the memory once.
//!
//! The head of keys of one sequence is a task. It goes through the tokens in chunks, and in each through the heads of values
//! that share the keys.

mod backward;
mod chunk;
mod forward;
mod inputs;
mod token;

use self::backward::Backward;
#[cfg(feature = "burn")]
pub(crate) use self::chunk::EPSILON;
use self::forward::Forward;
pub use self::inputs::{CHUNK, DeltaRuleHeads, Inputs};
use super::parallel::{self, Shared};

/// Computes the outputs `[batch, seq, heads · value_dim]` and the memory `[batch, heads, key_dim, value_dim]` after the tokens.
///
/// # Panics
/// Panics if the sizes do not fit.
pub fn gated_delta_rule(inputs: Inputs<'_>, output: &mut [f32], memory: &mut [f32]) {
    inputs.check();
    let [batch, seq] = inputs.tokens;
    let heads = inputs.heads;
    assert!(
        output.len() == batch * seq * heads.values()
            && memory.len() == batch * heads.heads * heads.memory(),
        "the sizes do not fit"
    );
    let (output, memory) = (Shared::new(output), Shared::new(memory));
    parallel::for_each(inputs.tasks(), |number| {
        let task = inputs.task(number);
        if seq == 1 {
            for head in heads.served(task.key_head) {
                let own = inputs.memory_of(task.sequence, head);
                let first = task.sequence * heads.values();
                let columns = heads.output_columns(head);
                // SAFETY: a head of a sequence belongs to one task.
                let (memory, output) = unsafe {
                    let columns = first + columns.start..first + columns.end;
                    (memory.part(own), output.part(columns))
                };
                token::pass(inputs, task, head, memory, output);
            }
            return;
        }
        let mut pass = Forward::new(inputs, task);
        for head in heads.served(task.key_head) {
            // SAFETY: as above.
            let memory = unsafe { memory.part(inputs.memory_of(task.sequence, head)) };
            inputs.start(task.sequence, head, memory);
        }
        for rows in parallel::ranges(seq, CHUNK) {
            pass.load(rows.clone());
            for head in heads.served(task.key_head) {
                let first = inputs.rows(task.sequence).start + rows.start;
                let first = first * heads.values() + heads.output_columns(head).start;
                // SAFETY: as above; the outputs are written to the columns of the head.
                unsafe {
                    let memory = memory.part(inputs.memory_of(task.sequence, head));
                    pass.head(head, memory);
                    pass.output(memory, output.at(first));
                    pass.advance(memory);
                }
            }
        }
    });
}

/// The gradients of the inputs, in their shapes.
#[derive(Debug)]
pub struct Gradients<'a> {
    /// Of queries, keys and values.
    pub qkv: &'a mut [f32],
    /// Of the decays.
    pub decay: &'a mut [f32],
    /// Of the rates.
    pub rate: &'a mut [f32],
    /// Of the memory before the tokens.
    pub memory: Option<&'a mut [f32]>,
}

/// Computes the gradients of [`gated_delta_rule`] from that of its outputs, `grad`.
///
/// # Panics
/// Panics if the sizes do not fit.
pub fn gated_delta_rule_backward(inputs: Inputs<'_>, grad: &[f32], gradients: Gradients<'_>) {
    inputs.check();
    let [batch, seq] = inputs.tokens;
    let heads = inputs.heads;
    let of_memory = batch * heads.heads * heads.memory();
    assert!(
        grad.len() == batch * seq * heads.values()
            && gradients.qkv.len() == inputs.qkv.len()
            && gradients.decay.len() == inputs.decay.len()
            && gradients.rate.len() == inputs.rate.len()
            && gradients
                .memory
                .as_ref()
                .is_none_or(|memory| memory.len() == of_memory),
        "the sizes do not fit"
    );
    let shared = backward::Shares {
        qkv: Shared::new(gradients.qkv),
        decay: Shared::new(gradients.decay),
        rate: Shared::new(gradients.rate),
    };
    let memory = gradients.memory.map(Shared::new);
    parallel::for_each(inputs.tasks(), |number| {
        let task = inputs.task(number);
        let mut pass = Backward::new(inputs, task, grad);
        let chunks: Vec<_> = parallel::ranges(seq, CHUNK).collect();
        for rows in chunks.iter().cloned() {
            pass.again(rows);
        }
        for (number, rows) in chunks.iter().enumerate().rev() {
            // SAFETY: the columns of a head of keys, and of those that it serves, belong to one task.
            unsafe { pass.chunk(number, rows.clone(), &shared) };
        }
        let Some(memory) = memory else { return };
        for head in heads.served(task.key_head) {
            // SAFETY: as above.
            let own = unsafe { memory.part(inputs.memory_of(task.sequence, head)) };
            own.copy_from_slice(pass.memory(head));
        }
    });
}
