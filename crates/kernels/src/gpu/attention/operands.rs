//! The tensors and numbers of an attention, as the kernels receive them.

use burn::tensor::DType;
use burn_cubecl::CubeRuntime;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::scores::NumbersLaunch;
use super::task::Task;
use super::tile::Lines;
use crate::gpu::launch::with_contiguous_rows;
use crate::reference::attention_dropout;
use crate::{AttentionOptions, Reach};

/// The memory of vectors: the first, and the distances between sequences, heads and tokens.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub struct Vectors {
    first: usize,
    sequence: usize,
    head: usize,
    token: usize,
}

#[cube]
impl Vectors {
    /// The vectors of a head of a sequence with `tokens` vectors, as tiles that begin at `start` and end at `end`.
    pub fn lines(
        &self,
        sequence: usize,
        head: usize,
        tokens: usize,
        start: usize,
        end: usize,
    ) -> Lines {
        Lines {
            first: self.first + sequence * self.sequence + head * self.head,
            head: self.head,
            token: self.token,
            tokens,
            start,
            end,
        }
    }
}

/// [`Vectors`] on the host.
#[derive(Clone, Copy, Debug)]
pub(super) struct VectorStrides {
    pub first: usize,
    pub sequence: usize,
    pub head: usize,
    pub token: usize,
}

impl VectorStrides {
    /// A contiguous tensor `[batch, heads, tokens, head_dim]`.
    pub fn by_heads(heads: usize, tokens: usize, head_dim: usize) -> Self {
        Self {
            first: 0,
            sequence: heads * tokens * head_dim,
            head: tokens * head_dim,
            token: head_dim,
        }
    }

    /// The heads from `first` on of a tensor `[batch, tokens, all · head_dim]` with these strides.
    pub fn by_tokens(first: usize, head_dim: usize, strides: [usize; 2]) -> Self {
        Self {
            first: first * head_dim,
            sequence: strides[0],
            head: head_dim,
            token: strides[1],
        }
    }

    /// Of a tensor `[batch, heads, tokens, head_dim]`, or of the heads from `first` on of a tensor
    /// `[batch, tokens, all · head_dim]`.
    pub fn of<R: CubeRuntime>(tensor: &CubeTensor<R>, first: usize, head_dim: usize) -> Self {
        match *tensor.meta.strides().as_ref() {
            [sequence, head, token, _] => Self {
                first: 0,
                sequence,
                head,
                token,
            },
            [sequence, token, _] => Self::by_tokens(first, head_dim, [sequence, token]),
            _ => Self::by_tokens(first, head_dim, [0, 0]),
        }
    }

    pub fn launch<R: Runtime>(self) -> VectorsLaunch<R> {
        VectorsLaunch::new(self.first, self.sequence, self.head, self.token)
    }
}

/// The tensors of an attention. Vectors are contiguous.
pub(super) struct Operands<R: CubeRuntime> {
    pub task: Task,
    pub q: CubeTensor<R>,
    pub k: CubeTensor<R>,
    pub v: CubeTensor<R>,
    /// The layouts of queries, keys and values.
    pub strides: [VectorStrides; 3],
    bias: Option<CubeTensor<R>>,
    words: Option<CubeTensor<R>>,
}

impl<R: CubeRuntime> Operands<R> {
    /// `inputs` are queries, keys and values `[batch, heads, tokens, head_dim]`, or three times the output of a fused
    /// projection. Bias and words may be anything if there are none.
    pub fn new(task: Task, inputs: [CubeTensor<R>; 3], masks: [CubeTensor<R>; 2]) -> Self {
        let [q, k, v] = inputs.map(with_contiguous_rows);
        let strides = [(&q, 0), (&k, task.heads), (&v, task.heads + task.kv_heads)];
        let strides = strides.map(|(x, first)| VectorStrides::of(x, first, task.head_dim));
        let [bias, words] = masks;
        let has_words = task.documents || task.padding || task.dropout;
        Self {
            task,
            q,
            k,
            v,
            strides,
            bias: task.bias.then(|| into_contiguous(bias)),
            words: has_words.then(|| into_contiguous(words)),
        }
    }

    /// The bias, or another tensor that is not read.
    pub fn bias(&self) -> CubeTensor<R> {
        self.bias.as_ref().unwrap_or(&self.q).clone()
    }

    /// The words, or another tensor that is not read.
    pub fn words(&self) -> CubeTensor<R> {
        self.words.as_ref().unwrap_or(&self.q).clone()
    }

    /// The address type for these tensors and `others`.
    pub fn address<const N: usize>(&self, others: [&CubeTensor<R>; N]) -> AddressType {
        let own = [&self.q, &self.k, &self.v].into_iter();
        let masks = self.bias.iter().chain(&self.words);
        let all = own.chain(masks).chain(others);
        let needed = all.map(CubeTensor::required_address_type).max();
        needed.unwrap_or_default()
    }

    /// The types of inputs, of operands of products, of outputs and of words.
    pub fn kinds(&self, output: DType) -> [StorageType; 4] {
        let operands = self.task.options.precision.kind();
        let words = self.words.as_ref().map_or(DType::I32, |of| of.dtype);
        [self.q.dtype, operands, output, words].map(Into::into)
    }

    pub fn numbers(&self) -> NumbersLaunch<R> {
        let task = &self.task;
        let AttentionOptions {
            reach,
            scale,
            soft_cap,
            dropout,
            ..
        } = task.options;
        let (window, global_tokens) = match reach {
            Reach::Window {
                tokens,
                global_tokens,
            } => (tokens, global_tokens),
            Reach::Local { distance } => (distance, 0),
            Reach::Causal | Reach::Full => (0, 0),
        };
        let [documents, padding, draws] = task.word_counts();
        NumbersLaunch::new(
            task.q_len,
            task.k_len,
            task.k_len.saturating_sub(task.q_len),
            task.heads,
            task.heads / task.kv_heads,
            window.min(task.k_len),
            global_tokens.min(task.k_len),
            0,
            documents,
            documents + padding,
            documents + padding + draws,
            attention_dropout::bound(dropout) as u32,
            attention_dropout::kept_factor(dropout) as f32,
            scale as f32,
            soft_cap.unwrap_or(1.0) as f32,
        )
    }
}
