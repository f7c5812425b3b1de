//! The gated delta rule. Its equations are those of [`crate::reference::gated_delta_rule`].
//!
//! Map: `chunk` has the keys and queries of a chunk of tokens and the fading between them; `forward` the passes over the memory
//! of a head; `backward` their gradients; `token` a single token, which reads and writes the memory once.
//!
//! The head of keys of one sequence is a task. It goes through the tokens in chunks, and in each through the heads of values
//! that share the keys.

mod backward;
mod chunk;
mod forward;
mod token;

use std::ops::Range;

use self::backward::Backward;
#[cfg(feature = "burn")]
pub(crate) use self::chunk::EPSILON;
use self::forward::Forward;
use super::parallel::{self, Shared};

/// The number of tokens that are processed at once.
pub const CHUNK: usize = 64;

/// The heads of the gated delta rule. Each head of queries and keys serves `heads / key_heads` consecutive heads of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeltaRuleHeads {
    /// Heads of values.
    pub heads: usize,
    /// Heads of queries and of keys.
    pub key_heads: usize,
    /// Width of a query or key.
    pub key_dim: usize,
    /// Width of a value.
    pub value_dim: usize,
}

impl DeltaRuleHeads {
    /// The width of the queries, or of the keys, of all heads.
    pub fn keys(self) -> usize {
        self.key_heads * self.key_dim
    }

    /// The width of the values of all heads.
    pub fn values(self) -> usize {
        self.heads * self.value_dim
    }

    /// The width of queries, keys and values side by side.
    pub fn channels(self) -> usize {
        2 * self.keys() + self.values()
    }

    /// The elements of a head's memory.
    pub(crate) fn memory(self) -> usize {
        self.key_dim * self.value_dim
    }

    /// The heads of values that a head of keys serves.
    fn served(self, key_head: usize) -> Range<usize> {
        let group = self.heads / self.key_heads;
        key_head * group..(key_head + 1) * group
    }

    /// The columns of a head's queries, and of its keys, among the channels.
    fn key_columns(self, key_head: usize) -> [Range<usize>; 2] {
        [0, self.keys()].map(|first| {
            let first = first + key_head * self.key_dim;
            first..first + self.key_dim
        })
    }

    /// The columns of a head's values among the channels.
    fn value_columns(self, head: usize) -> Range<usize> {
        let first = 2 * self.keys() + head * self.value_dim;
        first..first + self.value_dim
    }

    /// The columns of a head's outputs.
    fn output_columns(self, head: usize) -> Range<usize> {
        head * self.value_dim..(head + 1) * self.value_dim
    }
}

/// The inputs, in row-major order.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// The heads.
    pub heads: DeltaRuleHeads,
    /// The number of sequences, and of the tokens of each.
    pub tokens: [usize; 2],
    /// `[batch, seq, channels]`.
    pub qkv: &'a [f32],
    /// `[batch, seq, heads]`.
    pub decay: &'a [f32],
    /// `[batch, seq, heads]`.
    pub rate: &'a [f32],
    /// `[batch, heads, key_dim, value_dim]`.
    pub memory: Option<&'a [f32]>,
}

impl<'a> Inputs<'a> {
    fn check(&self) {
        let DeltaRuleHeads {
            heads, key_heads, ..
        } = self.heads;
        let [batch, seq] = self.tokens;
        let rows = batch * seq;
        assert!(
            key_heads > 0
                && heads.is_multiple_of(key_heads)
                && self.qkv.len() == rows * self.heads.channels()
                && self.decay.len() == rows * heads
                && self.rate.len() == rows * heads
                && self
                    .memory
                    .is_none_or(|memory| memory.len() == batch * heads * self.heads.memory()),
            "the sizes do not fit"
        );
    }

    /// The tasks: a sequence and a head of keys each.
    fn task(&self, number: usize) -> Task {
        Task {
            sequence: number / self.heads.key_heads,
            key_head: number % self.heads.key_heads,
        }
    }

    fn tasks(&self) -> usize {
        self.tokens[0] * self.heads.key_heads
    }

    /// A token's queries, keys and values.
    #[inline(always)]
    fn channels(&self, row: usize) -> &'a [f32] {
        let channels = self.heads.channels();
        &self.qkv[row * channels..][..channels]
    }

    /// A token's rate of a head.
    #[inline(always)]
    fn rate(&self, row: usize, head: usize) -> f32 {
        self.rate[row * self.heads.heads + head]
    }

    /// A token's decay of a head.
    #[inline(always)]
    fn decay(&self, row: usize, head: usize) -> f32 {
        self.decay[row * self.heads.heads + head]
    }

    /// The rows of a sequence's tokens.
    fn rows(&self, sequence: usize) -> Range<usize> {
        sequence * self.tokens[1]..(sequence + 1) * self.tokens[1]
    }

    /// Writes the memory before the tokens.
    fn start(&self, sequence: usize, head: usize, memory: &mut [f32]) {
        match self.memory {
            Some(given) => memory.copy_from_slice(&given[self.memory_of(sequence, head)]),
            None => memory.fill(0.0),
        }
    }

    /// The range of a head's memory.
    fn memory_of(&self, sequence: usize, head: usize) -> Range<usize> {
        let first = sequence * self.heads.heads + head;
        first * self.heads.memory()..(first + 1) * self.heads.memory()
    }
}

#[derive(Clone, Copy, Debug)]
struct Task {
    sequence: usize,
    key_head: usize,
}

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
                // SAFETY: as above; the matrix has the columns of the head.
                unsafe {
                    let memory = memory.part(inputs.memory_of(task.sequence, head));
                    pass.head(head, memory);
                    let first = inputs.rows(task.sequence).start + rows.start;
                    let first = first * heads.values() + heads.output_columns(head).start;
                    pass.output(memory, output.at(first));
                }
                // SAFETY: as above.
                pass.advance(unsafe { memory.part(inputs.memory_of(task.sequence, head)) });
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
