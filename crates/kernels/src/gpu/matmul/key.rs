//! Keys that group products for kernel selection.

use std::fmt;

use burn_cubecl::CubeRuntime;
use burn_cubecl::cubecl::tune::AutotuneKey;
use burn_cubecl::tensor::CubeTensor;
use cubek::matmul::definition::MatmulKind;
use cubek::matmul::launch::{MatmulAutotuneKey, MatmulGlobalScale};
use serde::{Deserialize, Serialize};

use super::few_rows;

/// A depth in whole multiples of this has an even number of stages in every kernel: stages are powers of two and
/// at most half as long.
const TWO_STAGES: usize = 256;

/// A class of products that share one choice of kernel.
#[derive(Clone, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
pub(super) struct Key {
    /// Sizes rounded up to powers of two, element types, and memory layouts of the operands.
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

    /// Returns true if the left operand has so few rows that reading the right one takes most of the time.
    pub(super) fn has_few_rows(&self) -> bool {
        self.product.definition.m <= few_rows::MOST_ROWS
    }

    /// Returns true if the operands are 16 bits wide.
    pub(super) fn is_narrow(&self) -> bool {
        self.product.definition.elem_lhs.size() == 2
    }

    /// Returns true if the number of stages is even for every kernel's stage length.
    pub(super) fn has_even_stages(&self) -> bool {
        self.even_stages
    }
}
