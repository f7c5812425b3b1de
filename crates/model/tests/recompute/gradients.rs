//! Gradients as numbers, by the parameters' paths.

use std::collections::BTreeMap;

use burn::module::ParamId;
use burn::tensor::Tensor;
use emberlm_kernels::TrainingBackend;
use emberlm_model::Decoder;
use emberlm_model::weights::{ParamVisitor, visit_params};

/// Of every parameter that has one.
pub fn by_path<B: TrainingBackend>(
    decoder: &Decoder<B>,
    from: &B::Gradients,
) -> BTreeMap<String, Vec<f32>> {
    let mut read = Read::<B> {
        from,
        grads: BTreeMap::new(),
    };
    visit_params(decoder, &mut read);
    read.grads
}

struct Read<'a, B: TrainingBackend> {
    from: &'a B::Gradients,
    grads: BTreeMap<String, Vec<f32>>,
}

impl<B: TrainingBackend> ParamVisitor<B> for Read<'_, B> {
    fn visit<const D: usize>(&mut self, path: &str, _id: ParamId, value: Tensor<B, D>) {
        if let Some(grad) = value.grad(self.from) {
            assert_eq!(grad.dims(), value.dims(), "{path}");
            self.grads.insert(path.to_owned(), host(grad));
        }
    }
}

pub fn host<B: burn::tensor::backend::Backend, const D: usize>(tensor: Tensor<B, D>) -> Vec<f32> {
    tensor.into_data().iter::<f32>().collect()
}
