//! Where a published checkpoint holds a parameter, and how it is laid out there.

/// Where to find a parameter: the tensors of these names, put together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// One tensor as it is.
    AsIs(String),
    /// Matrices stored `[out, in]`, as PyTorch's `Linear` does: each transposed, then joined along `out`.
    Transposed(Vec<String>),
}

impl Source {
    /// One tensor as it is.
    pub fn as_is(name: impl Into<String>) -> Self {
        Self::AsIs(name.into())
    }

    /// One matrix stored `[out, in]`.
    pub fn transposed(name: impl Into<String>) -> Self {
        Self::Transposed(vec![name.into()])
    }

    /// Several matrices stored `[out, in]`, joined along `out`.
    pub fn transposed_each(names: impl IntoIterator<Item = String>) -> Self {
        Self::Transposed(names.into_iter().collect())
    }

    /// The names of the tensors it is made of.
    pub fn names(&self) -> &[String] {
        match self {
            Self::AsIs(name) => std::slice::from_ref(name),
            Self::Transposed(names) => names,
        }
    }
}

/// The block's number and the rest of a path `blocks.N.rest`.
pub fn block_path(path: &str) -> Option<(usize, &str)> {
    let (number, rest) = path.strip_prefix("blocks.")?.split_once('.')?;
    Some((number.parse().ok()?, rest))
}
