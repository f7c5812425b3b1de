//! The gradients of the gated delta rule, with the equations of the CPU's kernel (`crate::cpu::delta_rule`).

use burn::tensor::Tensor;
use burn::tensor::ops::FloatTensor;

use super::delta_rule::{
    Pass, Sequences, System, Systems, Tokens, by_head, norm_factors, query_norm,
};
use super::{matmul, primitive, typed};
use crate::{BaseOps, DeltaRuleGradients, DeltaRuleHeads, DeltaRuleInputs};

/// The gradients of [`super::gated_delta_rule`] from that of its output. The memory before each chunk is computed again.
pub fn gated_delta_rule_backward<B: BaseOps>(
    heads: DeltaRuleHeads,
    inputs: DeltaRuleInputs<B>,
    grad: FloatTensor<B>,
    chunk: usize,
) -> DeltaRuleGradients<B> {
    let qkv = typed::<B, 3>(inputs.qkv.clone());
    let [batch, seq, _] = qkv.dims();
    let grad = typed::<B, 3>(grad);
    let by_value = [batch, seq, heads.heads, heads.value_dim];
    let grad = grad.reshape(by_value).swap_dims(1, 2);
    let sequences = Sequences::new(heads, &inputs);
    let has_memory = inputs.memory.is_some();
    let mut memory = sequences.first_memory(heads, inputs.memory);
    let mut systems = Systems::default();
    let mut chunks = Vec::with_capacity(seq.div_ceil(chunk));
    for start in (0..seq).step_by(chunk) {
        let tokens = sequences.part(start, chunk.min(seq - start));
        let pass = tokens.pass(&memory, systems.of(&tokens));
        let next = tokens.after(memory.clone(), &pass);
        chunks.push((start, tokens, memory));
        memory = next;
    }
    let mut of_memory = memory.zeros_like();
    let mut parts = Vec::with_capacity(chunks.len());
    for (start, tokens, memory) in chunks.into_iter().rev() {
        let system = systems.of(&tokens);
        let grad = grad.clone().narrow(2, start, tokens.v.dims()[2]);
        let pass = tokens.pass(&memory, system);
        let (made, before) = tokens.gradients(&pass, system, memory, grad, of_memory);
        parts.push(made);
        of_memory = before;
    }
    parts.reverse();
    let joined = |of: fn(&ChunkGradients<B>) -> &Tensor<B, 4>| {
        Tensor::cat(parts.iter().map(|part| of(part).clone()).collect(), 2)
    };
    let [q, k, _] = by_head(heads, &qkv);
    let columns = |x: Tensor<B, 4>| {
        let [batch, heads, seq, width] = x.dims();
        x.swap_dims(1, 2).reshape([batch, seq, heads * width])
    };
    let of_qkv = [
        of_normalized(q, joined(|part| &part.q), query_norm(heads)),
        of_normalized(k, joined(|part| &part.k), 1.0),
        joined(|part| &part.v),
    ];
    DeltaRuleGradients {
        qkv: primitive(Tensor::cat(of_qkv.map(columns).to_vec(), 2)),
        decay: primitive(columns(joined(|part| &part.decay))),
        rate: primitive(columns(joined(|part| &part.rate))),
        memory: has_memory.then(|| primitive(of_memory)),
    }
}

/// The gradient of `x` `[batch, key_heads, seq, width]` from that of its rows with the norm `scale`, repeated for the heads that
/// they serve.
fn of_normalized<B: BaseOps>(x: Tensor<B, 4>, grad: Tensor<B, 4>, scale: f64) -> Tensor<B, 4> {
    let [batch, key_heads, seq, width] = x.dims();
    let group = grad.dims()[1] / key_heads.max(1);
    let grad = grad
        .reshape([batch, key_heads, group, seq * width])
        .sum_dim(2);
    let grad = grad.reshape([batch, key_heads, seq, width]);
    let factors = norm_factors(&x);
    let along = (x.clone() * grad.clone()).sum_dim(3) * factors.clone() * factors.clone();
    (grad - x * along) * factors * scale
}

/// The gradients of a chunk, in the shapes of its tokens.
struct ChunkGradients<B: BaseOps> {
    q: Tensor<B, 4>,
    k: Tensor<B, 4>,
    v: Tensor<B, 4>,
    decay: Tensor<B, 4>,
    rate: Tensor<B, 4>,
}

impl<B: BaseOps> Tokens<B> {
    /// The chunk's gradients and that of the memory before it, from those of its output and of the memory after it.
    fn gradients(
        &self,
        pass: &Pass<B>,
        system: &System<B>,
        memory: Tensor<B, 4>,
        output: Tensor<B, 4>,
        after: Tensor<B, 4>,
    ) -> (ChunkGradients<B>, Tensor<B, 4>) {
        let (q, k, rate) = (&self.q, &self.k, &self.rate);
        let (since, until, whole) = (&pass.since_start, &pass.until_end, &pass.whole);
        let rows = |x: Tensor<B, 4>| x.sum_dim(3); // [batch, heads, len, 1]
        // What pairs `[batch, heads, len, len]` contribute to G: `G_i - G_j` is in the exponents.
        let of_pairs = |x: Tensor<B, 4>| rows(x.clone()) - x.sum_dim(2).transpose();

        let within = self.within(pass);
        let scaled = k.clone() * until.clone();
        let of_written = matmul(within.clone().transpose(), output.clone())
            + matmul(scaled.clone(), after.clone());

        let taken = matmul(pass.written.clone(), after.clone().transpose());
        let term = rows(scaled * taken.clone());
        let of_whole = (memory.clone() * after.clone()).sum_dim(3).sum_dim(2) * whole.clone();
        let of_end = term.clone().sum_dim(2) + of_whole;

        let of_within = matmul(output.clone(), pass.written.clone().transpose());
        let sums = of_pairs(of_within.clone() * within) - term;
        let of_within = of_within * pass.faded.clone();

        let read = matmul(output.clone(), memory.clone().transpose()) * since.clone();
        let sums = sums + rows(q.clone() * read.clone());
        let q_gradient = matmul(of_within.clone(), k.clone()) + read;
        let k_gradient = matmul(of_within.transpose(), q.clone()) + taken * until.clone();
        let before =
            after * whole.clone() + matmul((q.clone() * since.clone()).transpose(), output);

        let right = match &pass.inverse {
            Some(inverse) => matmul(inverse.clone().transpose(), of_written),
            None => of_written,
        };
        // The fading between different tokens.
        let below = pass.faded.clone() - system.identity.clone();
        let of_system = matmul(right.clone(), pass.written.clone().transpose()).neg() * below;
        let of_rate = of_system.clone() * pass.keys.clone();
        let sums = sums + of_pairs(of_rate.clone() * rate.clone());
        let of_keys = of_system * rate.clone();
        let of_keys = of_keys.clone() + of_keys.transpose();

        let remaining = self.v.clone() - pass.known.clone() * since.clone();
        let rate_gradient = rows(of_rate) + rows(right.clone() * remaining);
        let v_gradient = right * rate.clone();
        let of_known = (v_gradient.clone() * since.clone()).neg();
        let sums = sums + rows(of_known.clone() * pass.known.clone());
        let k_gradient =
            k_gradient + matmul(of_keys, k.clone()) + matmul(of_known.clone(), memory.transpose());
        let before = before + matmul(k.clone().transpose(), of_known);

        let later = sums.flip([2]).cumsum(2).flip([2]);
        let [batch, heads, len, _] = later.dims();
        let made = ChunkGradients {
            q: q_gradient,
            k: k_gradient,
            v: v_gradient,
            decay: later + of_end.expand([batch, heads, len, 1]),
            rate: rate_gradient,
        };
        (made, before)
    }
}
