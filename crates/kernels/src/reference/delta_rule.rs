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

use burn::tensor::{Device, Tensor, TensorData};

use super::matmul;
use crate::{BaseOps, DeltaRuleInputs};

/// Added to the squared norm of queries and keys.
const EPSILON: f64 = 1e-6;

/// Returns the outputs `[batch, heads, seq, value_dim]` and the memory `[batch, heads, key_dim, value_dim]` after the tokens,
/// which continue the memory `past`; without it, it is zero.
pub fn gated_delta_rule<B: BaseOps>(
    inputs: DeltaRuleInputs<B>,
    past: Option<Tensor<B, 4>>,
    chunk: usize,
) -> (Tensor<B, 4>, Tensor<B, 4>) {
    let [batch, heads, seq, value_dim] = inputs.v.dims();
    let key_dim = inputs.k.dims()[3];
    let device = inputs.v.device();
    let scale = (key_dim as f64).powf(-0.5);
    let q = of_each_head(normalized(inputs.q) * scale, heads);
    let k = of_each_head(normalized(inputs.k), heads);
    let column = |x: Tensor<B, 3>| x.reshape([batch, heads, seq, 1]);
    let (decay, rate) = (column(inputs.decay), column(inputs.rate));
    let mut memory = past.unwrap_or_else(|| {
        let shape = [batch, heads, key_dim, value_dim];
        Tensor::zeros(shape, &device)
    });
    let mut outputs = Vec::with_capacity(seq.div_ceil(chunk));
    let mut system = System::new(chunk.min(seq), &device);
    for start in (0..seq).step_by(chunk) {
        let len = chunk.min(seq - start);
        if len != system.len {
            system = System::new(len, &device);
        }
        let part = |x: &Tensor<B, 4>| x.clone().narrow(2, start, len);
        let tokens = Tokens {
            q: part(&q),
            k: part(&k),
            v: part(&inputs.v),
            decay: part(&decay).cumsum(2),
            rate: part(&rate),
        };
        let (output, next) = tokens.pass(memory, &system);
        outputs.push(output);
        memory = next;
    }
    (Tensor::cat(outputs, 2), memory)
}

/// Divides rows by their norm.
fn normalized<B: BaseOps>(x: Tensor<B, 4>) -> Tensor<B, 4> {
    let squares = (x.clone() * x.clone()).sum_dim(3) + EPSILON;
    x * squares.powf_scalar(-0.5)
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
struct Tokens<B: BaseOps> {
    /// `[batch, heads, len, key_dim]`.
    q: Tensor<B, 4>,
    k: Tensor<B, 4>,
    /// `[batch, heads, len, value_dim]`.
    v: Tensor<B, 4>,
    /// `G`, `[batch, heads, len, 1]`.
    decay: Tensor<B, 4>,
    /// `β`, in the same shape.
    rate: Tensor<B, 4>,
}

impl<B: BaseOps> Tokens<B> {
    /// Returns the outputs and the memory after the chunk.
    fn pass(self, memory: Tensor<B, 4>, system: &System<B>) -> (Tensor<B, 4>, Tensor<B, 4>) {
        let Self {
            q,
            k,
            v,
            decay,
            rate,
        } = self;
        let [batch, heads, len, _] = v.dims();
        let faded = system.faded(decay.clone());
        let keys = k.clone().transpose();
        let since_start = decay.clone().exp();

        let shared = matmul(k.clone() * rate.clone(), keys.clone()) * faded.clone();
        let known = matmul(k.clone(), memory.clone()) * since_start.clone();
        let written = system.solved(shared, (v - known) * rate);

        let within = matmul(matmul(q.clone(), keys) * faded, written.clone());
        let output = matmul(q * since_start, memory.clone()) + within;

        let last = decay.clone().narrow(2, len - 1, 1); // [batch, heads, 1, 1]
        let until_end = (last.clone().expand([batch, heads, len, 1]) - decay).exp();
        let added = matmul((k * until_end).transpose(), written);
        (output, memory * last.exp() + added)
    }
}

/// The constants of the triangular systems of `len` tokens.
struct System<B: BaseOps> {
    len: usize,
    /// The identity, `[1, 1, len, len]`.
    identity: Tensor<B, 4>,
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

    /// The solution of `(I + A) V = right`, where `A` is the part of `shared` `[batch, heads, len, len]` below the diagonal.
    fn solved(&self, shared: Tensor<B, 4>, right: Tensor<B, 4>) -> Tensor<B, 4> {
        let Some((first, rest)) = self.pairs.split_first() else {
            return right;
        };
        let identity = self.identity.clone().expand(shared.dims());
        let mut inverse = identity - shared.clone() * first.clone();
        for pair in rest {
            let between = shared.clone() * pair.clone();
            let change = matmul(matmul(inverse.clone(), between), inverse.clone());
            inverse = inverse - change;
        }
        matmul(inverse, right)
    }
}
