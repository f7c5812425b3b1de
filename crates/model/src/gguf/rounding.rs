//! Rounds the matrices of a file to blocks.

use std::borrow::Cow;

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

    /// Packs the rows of a tensor that belong to the layer at `path`, if it is that of a linear layer. `order` has the layer's input
    /// for each input of the tensor, if they have another order.
    pub(crate) fn pack(
        &mut self,
        format: PackedFormat,
        w: Matrix<'_>,
        path: Option<&str>,
        order: Option<&[usize]>,
    ) -> PackedMatrix {
        let importance = path.and_then(|path| self.importance?.of_layer(path));
        let importance = importance.map(|of| match order {
            Some(order) => Cow::from_iter(order.iter().map(|&input| of[input])),
            None => Cow::from(of),
        });
        let mut packed = pack_by_importance(format, w, importance.as_deref());
        if let Some(gptq) = path.and_then(|path| self.gptq(path, order)) {
            gptq.choose(w, &mut packed);
        }
        packed
    }

    fn gptq(&mut self, path: &str, order: Option<&[usize]>) -> Option<&Gptq> {
        let products = self.products?;
        if self.last.as_ref().is_none_or(|(last, _)| last != path) {
            let products = products.of_layer(path).map(|of| match order {
                Some(order) => order
                    .iter()
                    .flat_map(|row| {
                        order
                            .iter()
                            .map(move |column| of[row * order.len() + column])
                    })
                    .collect(),
                None => Cow::from(of),
            });
            let gptq = products.and_then(|products| Gptq::new(&products));
            self.last = Some((path.to_owned(), gptq));
        }
        self.last.as_ref()?.1.as_ref()
    }
}
