//! Rounds the matrices of a file to blocks.

use emberlm_kernels::PackedFormat;
use emberlm_kernels::cpu::gptq::Gptq;
use emberlm_kernels::cpu::matrix::Matrix;
use emberlm_kernels::cpu::packed::{PackedMatrix, pack_by_importance};

use crate::transformer::calibration::{InputImportance, InputProducts};

/// The statistics of a text by which matrices are rounded.
pub(crate) struct Rounding<'a> {
    importance: Option<&'a InputImportance>,
    products: Option<&'a InputProducts>,
    /// The layer that was rounded last. Queries, keys and values are one layer but several tensors.
    last: Option<(String, Option<Gptq>)>,
}

impl<'a> Rounding<'a> {
    pub(crate) const fn new(
        importance: Option<&'a InputImportance>,
        products: Option<&'a InputProducts>,
    ) -> Self {
        Self {
            importance,
            products,
            last: None,
        }
    }

    /// Packs the rows of a tensor that belong to the layer at `path`, if it is that of a linear layer.
    pub(crate) fn pack(
        &mut self,
        format: PackedFormat,
        w: Matrix<'_>,
        path: Option<&str>,
    ) -> PackedMatrix {
        let importance = path.and_then(|path| self.importance?.of_layer(path));
        let mut packed = pack_by_importance(format, w, importance);
        if let Some(gptq) = path.and_then(|path| self.gptq(path)) {
            gptq.choose(w, &mut packed);
        }
        packed
    }

    fn gptq(&mut self, path: &str) -> Option<&Gptq> {
        let products = self.products?;
        if self.last.as_ref().is_none_or(|(last, _)| last != path) {
            let gptq = products.of_layer(path).and_then(Gptq::new);
            self.last = Some((path.to_owned(), gptq));
        }
        self.last.as_ref()?.1.as_ref()
    }
}
