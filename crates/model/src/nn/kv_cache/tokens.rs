//! The keys or the values of a cache, in its format.

use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::{Device, Int, Tensor, TensorData};
use emberlm_kernels::{AttentionMask, AttentionOptions, Backend, PackedTokens, has_rows, ops};

use super::CacheFormat;

/// Keys or values `[batch, kv_heads, tokens, head_dim]`.
#[derive(Clone, Debug)]
pub(crate) enum CachedTokens<B: BurnBackend> {
    /// f32.
    Floats(Tensor<B, 4>),
    /// f16 or q8.
    Packed(PackedTokens<B>),
}

impl<B: Backend> CachedTokens<B> {
    /// Allocates zeros, `[batch, kv_heads, tokens, head_dim]`.
    pub fn zeros(shape: [usize; 4], format: CacheFormat, device: &Device<B>) -> Self {
        match format.packed() {
            None => Self::Floats(ops::zeros(shape, device)),
            Some(format) => Self::Packed(ops::empty_tokens(shape, format, device)),
        }
    }

    /// Converts keys or values to a format.
    pub fn of(x: Tensor<B, 4>, format: CacheFormat) -> Self {
        match format.packed() {
            None => Self::Floats(x),
            Some(format) => Self::Packed(ops::pack_tokens(x, format)),
        }
    }

    /// Number of tokens.
    pub fn len(&self) -> usize {
        match self {
            Self::Floats(floats) => floats.dims()[2],
            Self::Packed(packed) => packed.dims()[2],
        }
    }

    pub fn device(&self) -> Device<B> {
        match self {
            Self::Floats(floats) => floats.device(),
            Self::Packed(packed) => packed.device(),
        }
    }

    /// Size in memory, in bytes.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Floats(floats) => floats.shape().num_elements() * floats.dtype().size(),
            Self::Packed(packed) => packed.bytes(),
        }
    }

    /// Tokens `start..start + count`.
    pub fn narrow(self, start: usize, count: usize) -> Self {
        match self {
            Self::Floats(floats) => Self::Floats(floats.narrow(2, start, count)),
            Self::Packed(packed) => Self::Packed(packed.narrow(start, count)),
        }
    }

    /// The data of the tokens, as they are stored.
    pub fn into_data(self) -> TensorData {
        match self {
            Self::Floats(floats) => floats.into_data(),
            Self::Packed(packed) => packed.into_data(),
        }
    }

    /// Tokens of the same format, batch and heads from the data of [`CachedTokens::into_data`]. `None` if it is that of others,
    /// or of more tokens.
    pub fn like(&self, data: TensorData) -> Option<Self> {
        match self {
            Self::Floats(floats) => has_rows(&data, floats.dtype(), floats.dims())
                .then(|| Self::Floats(Tensor::from_data(data, &floats.device()))),
            Self::Packed(packed) => packed.like(data).map(Self::Packed),
        }
    }

    /// The sequences with the given numbers, `[selected]`.
    pub fn select(self, rows: &Tensor<B, 1, Int>) -> Self {
        match self {
            Self::Floats(floats) => Self::Floats(floats.select(0, rows.clone())),
            Self::Packed(packed) => Self::Packed(packed.select(rows)),
        }
    }

    /// The tokens followed by those of `other`, which has the same format.
    pub fn followed_by(self, other: Self) -> Self {
        match (self, other) {
            (Self::Floats(first), Self::Floats(second)) => {
                Self::Floats(Tensor::cat(vec![first, second], 2))
            }
            (Self::Packed(first), Self::Packed(second)) => Self::Packed(first.followed_by(second)),
            // Not reached: keys and values of one cache have one format.
            (first, _) => first,
        }
    }

    /// Writes the tokens of `new`, which has the same format, after the first `start` tokens.
    pub fn write(self, new: Self, start: usize) -> Self {
        match (self, new) {
            (Self::Floats(held), Self::Floats(new)) => {
                Self::Floats(ops::write_tokens(held, new, start))
            }
            (Self::Packed(held), Self::Packed(new)) => {
                Self::Packed(ops::write_packed_tokens(held, new, start))
            }
            // Not reached: keys and values of one cache have one format.
            (held, _) => held,
        }
    }

    /// The tokens in f32.
    pub fn floats(self) -> Tensor<B, 4> {
        match self {
            Self::Floats(floats) => floats,
            Self::Packed(packed) => ops::unpack_tokens(packed),
        }
    }
}

/// Attention of `q` `[batch, heads, q_len, head_dim]` over cached keys and values, to the shape of `q`.
pub(crate) fn cached_attention<B: Backend>(
    q: Tensor<B, 4>,
    keys: CachedTokens<B>,
    values: CachedTokens<B>,
    mask: AttentionMask<B>,
    options: AttentionOptions,
) -> Tensor<B, 4> {
    match (keys, values) {
        (CachedTokens::Packed(keys), CachedTokens::Packed(values)) => {
            ops::attention_packed(q, keys, values, mask, options)
        }
        (keys, values) => ops::attention(q, keys.floats(), values.floats(), mask, options),
    }
}
