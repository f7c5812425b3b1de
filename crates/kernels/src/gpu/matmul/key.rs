//! The kinds of products that one choice of a kernel is made for.

use std::fmt;

use burn_cubecl::CubeRuntime;
use burn_cubecl::cubecl::tune::AutotuneKey;
use burn_cubecl::tensor::CubeTensor;
use cubek::matmul::definition::MatmulKind;
use cubek::matmul::launch::{MatmulAutotuneKey, MatmulGlobalScale};
use serde::{Deserialize, Serialize};

/// No kernel's stage is longer than half of it, nor other than a power of two.
const TWO_STAGES: usize = 256;

/// The kinds of products that one choice is made for.
#[derive(Clone, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
pub(super) struct Key {
    /// Sizes up to the next power of two, types, how the factors lie.
    product: MatmulAutotuneKey,
    even_stages: bool,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, even stages: {}", self.product, self.even_stages)
    }
}

impl AutotuneKey for Key {}

impl Key {
    pub(super) fn between<R: CubeRuntime>(
        a: &CubeTensor<R>,
        b: &CubeTensor<R>,
        output: &CubeTensor<R>,
    ) -> Self {
        let (a_shape, b_shape) = (a.meta.shape(), b.meta.shape());
        let depth = a_shape.iter().next_back().copied().unwrap_or(0);
        Self {
            product: MatmulAutotuneKey::generate(
                &a.client,
                a_shape,
                b_shape,
                a.meta.strides(),
                b.meta.strides(),
                a.dtype.into(),
                b.dtype.into(),
                output.dtype.into(),
                None,
                None,
            ),
            even_stages: depth.is_multiple_of(TWO_STAGES),
        }
    }

    pub(super) fn kind(&self) -> &MatmulKind {
        &self.product.analysis.kind
    }

    pub(super) fn scale(&self) -> &MatmulGlobalScale {
        &self.product.analysis.scale_global
    }

    /// Returns true for factors of 16 bits.
    pub(super) fn is_narrow(&self) -> bool {
        self.product.definition.elem_lhs.size() == 2
    }

    /// Returns true if every kernel has an even number of stages, whatever the stage's length.
    pub(super) fn has_even_stages(&self) -> bool {
        self.even_stages
    }
}
