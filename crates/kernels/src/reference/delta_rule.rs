//! The gated delta rule (Yang et al. 2024, [2412.06464](https://arxiv.org/abs/2412.06464)).
//!
//! A head has a memory `S` `[key_dim, value_dim]`, a linear map from keys to values. A token with the key `k`, the value `v`,
//! the decay `g` and the rate `β` replaces a share of what the memory has for its key, and then reads it for its query:
//!
//! ```text
//! S_t = e^{g_t} S_{t-1} + k_t β_t (v_t - e^{g_t} S_{t-1}ᵀ k_t)ᵀ,   o_t = S_tᵀ q_t
//! ```
//!
//! Keys have the norm 1, and queries `1/√key_dim`.
//!
//! The computation is chunked. With `G_i = Σ_{j≤i} g_j` over the tokens of a chunk and `S` before it, the values that the
//! tokens add to the memory are the solution `V` of a triangular system
//!
//! ```text
//! (I + A) V = B,   A_ij = β_i (k_i·k_j) e^{G_i - G_j} for j < i,   B_i = β_i (v_i - e^{G_i} Sᵀ k_i)
//! O_i = e^{G_i} Sᵀ q_i + Σ_{j≤i} (q_i·k_j) e^{G_i - G_j} V_j
//! S ← e^{G_n} S + Σ_j e^{G_n - G_j} k_j V_jᵀ
//! ```
//!
//! `I + A` is inverted by blocks: the inverses of two diagonal blocks `P` and `Q` are those of the first and the last rows of
//! `[[P, 0], [R, Q]]`, whose inverse has `-Q⁻¹ R P⁻¹` in place of `R`. From blocks of one row this takes a step for each
//! doubling. Unlike the series `Σ (-A)^n`, it does not cancel when many keys are alike.

use burn::tensor::ops::FloatTensor;
use burn::tensor::{Device, Tensor, TensorData};

use super::{matmul, primitive, typed};
use crate::cpu::delta_rule::EPSILON;
use crate::{BaseOps, DeltaRuleHeads, DeltaRuleInputs, DeltaRuleOutputs};

/// Computes the outputs and the memory after the tokens, in chunks of `chunk` tokens.
pub fn gated_delta_rule<B: BaseOps>(
    heads: DeltaRuleHeads,
    inputs: DeltaRuleInputs<B>,
    chunk: usize,
) -> DeltaRuleOutputs<B> {
    let [batch, seq, _] = typed::<B, 3>(inputs.qkv.clone()).dims();
    let sequences = Sequences::new(heads, &inputs);
    let mut memory = sequences.first_memory(heads, inputs.memory);
    let mut outputs = Vec::with_capacity(seq.div_ceil(chunk));
    let mut systems = Systems::default();
    for start in (0..seq).step_by(chunk) {
        let tokens = sequences.part(start, chunk.min(seq - start));
        let pass = tokens.pass(&memory, systems.of(&tokens));
        outputs.push(tokens.output(&memory, &pass));
        memory = tokens.after(memory, &pass);
    }
    let output = Tensor::cat(outputs, 2).swap_dims(1, 2);
    DeltaRuleOutputs {
        output: primitive(output.reshape([batch, seq, heads.values()])),
        memory: primitive(memory),
    }
}

/// The inputs by head.
pub(super) struct Sequences<B: BaseOps> {
    /// `[batch, heads, seq, key_dim]`, normalized.
    q: Tensor<B, 4>,
    k: Tensor<B, 4>,
    /// `[batch, heads, seq, value_dim]`.
    v: Tensor<B, 4>,
    /// `g` and `β`, `[batch, heads, seq, 1]`.
    decay: Tensor<B, 4>,
    rate: Tensor<B, 4>,
}

impl<B: BaseOps> Sequences<B> {
    pub(super) fn new(heads: DeltaRuleHeads, inputs: &DeltaRuleInputs<B>) -> Self {
        let qkv = typed::<B, 3>(inputs.qkv.clone());
        let [q, k, v] = by_head(heads, &qkv);
        let column = |x: &FloatTensor<B>| {
            let x = typed::<B, 3>(x.clone());
            x.swap_dims(1, 2).unsqueeze_dim::<4>(3)
        };
        Self {
            q: of_each_head(normalized(q) * query_norm(heads), heads.heads),
            k: of_each_head(normalized(k), heads.heads),
            v,
            decay: column(&inputs.decay),
            rate: column(&inputs.rate),
        }
    }

    /// The memory before the tokens.
    pub(super) fn first_memory(
        &self,
        heads: DeltaRuleHeads,
        given: Option<FloatTensor<B>>,
    ) -> Tensor<B, 4> {
        let zero = || {
            let shape = [
                self.v.dims()[0],
                heads.heads,
                heads.key_dim,
                heads.value_dim,
            ];
            Tensor::zeros(shape, &self.v.device())
        };
        given.map_or_else(zero, typed)
    }

    /// The chunk of `len` tokens from `start`.
    pub(super) fn part(&self, start: usize, len: usize) -> Tokens<B> {
        let part = |x: &Tensor<B, 4>| x.clone().narrow(2, start, len);
        Tokens {
            q: part(&self.q),
            k: part(&self.k),
            v: part(&self.v),
            decay: part(&self.decay).cumsum(2),
            rate: part(&self.rate),
        }
    }
}

/// Queries and keys `[batch, key_heads, seq, key_dim]`, and values `[batch, heads, seq, value_dim]`.
pub(super) fn by_head<B: BaseOps>(heads: DeltaRuleHeads, qkv: &Tensor<B, 3>) -> [Tensor<B, 4>; 3] {
    let [batch, seq, _] = qkv.dims();
    let (keys, key_dim) = (heads.key_heads, heads.key_dim);
    [
        (0, keys, key_dim),
        (heads.keys(), keys, key_dim),
        (2 * heads.keys(), heads.heads, heads.value_dim),
    ]
    .map(|(first, heads, width)| {
        let part = qkv.clone().narrow(2, first, heads * width);
        part.reshape([batch, seq, heads, width]).swap_dims(1, 2)
    })
}

/// The norm of queries.
pub(super) fn query_norm(heads: DeltaRuleHeads) -> f64 {
    (heads.key_dim as f64).powf(-0.5)
}

/// The factors that give rows `[…, width]` the norm 1, `[…, 1]`.
pub(super) fn norm_factors<B: BaseOps>(x: &Tensor<B, 4>) -> Tensor<B, 4> {
    let squares = (x.clone() * x.clone()).sum_dim(3) + f64::from(EPSILON);
    squares.powf_scalar(-0.5)
}

fn normalized<B: BaseOps>(x: Tensor<B, 4>) -> Tensor<B, 4> {
    let factors = norm_factors(&x);
    x * factors
}

/// Repeats each head of `[batch, key_heads, seq, width]` for the heads that it serves.
fn of_each_head<B: BaseOps>(x: Tensor<B, 4>, heads: usize) -> Tensor<B, 4> {
    let [batch, key_heads, seq, width] = x.dims();
    if key_heads == heads {
        return x;
    }
    let x = x.reshape([batch, key_heads, 1, seq * width]);
    let x = x.repeat_dim(2, heads / key_heads.max(1));
    x.reshape([batch, heads, seq, width])
}

/// The tokens of a chunk.
pub(super) struct Tokens<B: BaseOps> {
    /// `[batch, heads, len, key_dim]`.
    pub(super) q: Tensor<B, 4>,
    pub(super) k: Tensor<B, 4>,
    /// `[batch, heads, len, value_dim]`.
    pub(super) v: Tensor<B, 4>,
    /// `G`, `[batch, heads, len, 1]`.
    decay: Tensor<B, 4>,
    /// `β`, in the same shape.
    pub(super) rate: Tensor<B, 4>,
}

/// A chunk's pass over the memory `S` before it.
pub(super) struct Pass<B: BaseOps> {
    /// `F_ij = e^{G_i - G_j}` for `j ≤ i`, and 0 for later tokens: `[batch, heads, len, len]`.
    pub(super) faded: Tensor<B, 4>,
    /// `e^{G_i}` and `e^{G_n - G_i}`, `[batch, heads, len, 1]`, and `e^{G_n}`, `[batch, heads, 1, 1]`.
    pub(super) since_start: Tensor<B, 4>,
    pub(super) until_end: Tensor<B, 4>,
    pub(super) whole: Tensor<B, 4>,
    /// `k kᵀ`, `[batch, heads, len, len]`.
    pub(super) keys: Tensor<B, 4>,
    /// The values that the memory has for the keys, `k S`, `[batch, heads, len, value_dim]`.
    pub(super) known: Tensor<B, 4>,
    /// `(I + A)⁻¹`; `None` for a single token.
    pub(super) inverse: Option<Tensor<B, 4>>,
    /// The solution `V`, `[batch, heads, len, value_dim]`.
    pub(super) written: Tensor<B, 4>,
}

impl<B: BaseOps> Tokens<B> {
    pub(super) fn pass(&self, memory: &Tensor<B, 4>, system: &System<B>) -> Pass<B> {
        let [batch, heads, len, _] = self.v.dims();
        let faded = system.faded(self.decay.clone());
        let since_start = self.decay.clone().exp();
        let last = self.decay.clone().narrow(2, len - 1, 1); // [batch, heads, 1, 1]
        let until_end = last.clone().expand([batch, heads, len, 1]) - self.decay.clone();

        let keys = matmul(self.k.clone(), self.k.clone().transpose());
        let shared = keys.clone() * self.rate.clone() * faded.clone();
        let known = matmul(self.k.clone(), memory.clone());
        let right = (self.v.clone() - known.clone() * since_start.clone()) * self.rate.clone();
        let inverse = system.inverse(shared);
        let written = match &inverse {
            Some(inverse) => matmul(inverse.clone(), right),
            None => right,
        };
        Pass {
            faded,
            since_start,
            until_end: until_end.exp(),
            whole: last.exp(),
            keys,
            known,
            inverse,
            written,
        }
    }

    /// `(q_i·k_j) F_ij`, `[batch, heads, len, len]`.
    pub(super) fn within(&self, pass: &Pass<B>) -> Tensor<B, 4> {
        matmul(self.q.clone(), self.k.clone().transpose()) * pass.faded.clone()
    }

    /// The outputs, `[batch, heads, len, value_dim]`.
    fn output(&self, memory: &Tensor<B, 4>, pass: &Pass<B>) -> Tensor<B, 4> {
        let within = matmul(self.within(pass), pass.written.clone());
        let q = self.q.clone() * pass.since_start.clone();
        matmul(q, memory.clone()) + within
    }

    /// The memory after the chunk.
    pub(super) fn after(&self, memory: Tensor<B, 4>, pass: &Pass<B>) -> Tensor<B, 4> {
        let k = self.k.clone() * pass.until_end.clone();
        memory * pass.whole.clone() + matmul(k.transpose(), pass.written.clone())
    }
}

/// The constants of the last length of a chunk.
pub(super) struct Systems<B: BaseOps>(Option<System<B>>);

impl<B: BaseOps> Default for Systems<B> {
    fn default() -> Self {
        Self(None)
    }
}

impl<B: BaseOps> Systems<B> {
    pub(super) fn of(&mut self, tokens: &Tokens<B>) -> &System<B> {
        let len = tokens.v.dims()[2];
        let known = self.0.take().filter(|system| system.len == len);
        let made = known.unwrap_or_else(|| System::new(len, &tokens.v.device()));
        self.0.insert(made)
    }
}

/// The constants of the triangular systems of `len` tokens.
pub(super) struct System<B: BaseOps> {
    len: usize,
    /// The identity, `[1, 1, len, len]`.
    pub(super) identity: Tensor<B, 4>,
    /// For each doubling, 1 where a row of the second block of a pair meets a column of the first, `[1, 1, len, len]`.
    pairs: Vec<Tensor<B, 4>>,
    /// Minus infinity for later tokens, 0 for the others, `[1, 1, len, len]`.
    hidden: Tensor<B, 4>,
}

impl<B: BaseOps> System<B> {
    fn new(len: usize, device: &Device<B>) -> Self {
        let matrix = |element: &dyn Fn(usize, usize) -> f32| {
            let rows = (0..len).flat_map(|row| (0..len).map(move |column| (row, column)));
            let values: Vec<f32> = rows.map(|(row, column)| element(row, column)).collect();
            Tensor::from_data(TensorData::new(values, [1, 1, len, len]), device)
        };
        let sizes = (0..).map(|step| 1 << step).take_while(|&size| size < len);
        let pair = |size: usize| {
            matrix(&|row, column| {
                let meets = row / size % 2 == 1 && column / size + 1 == row / size;
                f32::from(u8::from(meets))
            })
        };
        Self {
            len,
            identity: matrix(&|row, column| f32::from(u8::from(row == column))),
            pairs: sizes.map(pair).collect(),
            hidden: matrix(&|row, column| match column > row {
                true => f32::NEG_INFINITY,
                false => 0.0,
            }),
        }
    }

    /// `e^{G_i - G_j}` for `j ≤ i`, and 0 for later tokens: `[batch, heads, len, len]`.
    fn faded(&self, decay: Tensor<B, 4>) -> Tensor<B, 4> {
        let [batch, heads, len, _] = decay.dims();
        // Repeated instead of broadcast, as in linear attention.
        let row = decay.clone().repeat_dim(3, len);
        let column = decay.reshape([batch, heads, 1, len]).repeat_dim(2, len);
        (row - column + self.hidden.clone()).exp()
    }

    /// `(I + A)⁻¹`, where `A` is the part of `shared` `[batch, heads, len, len]` below the diagonal; `None` for a single token.
    fn inverse(&self, shared: Tensor<B, 4>) -> Option<Tensor<B, 4>> {
        let (first, rest) = self.pairs.split_first()?;
        let identity = self.identity.clone().expand(shared.dims());
        let mut inverse = identity - shared.clone() * first.clone();
        for pair in rest {
            let between = shared.clone() * pair.clone();
            let change = matmul(matmul(inverse.clone(), between), inverse.clone());
            inverse = inverse - change;
        }
        Some(inverse)
    }
}
