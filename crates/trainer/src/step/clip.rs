//! Gradient clipping by the global norm.

use burn::module::{Module, ParamId};
use burn::optim::GradientsParams;
use burn::tensor::Tensor;
use burn::tensor::ops::FloatTensor;
use emberlm_kernels::{TrainingBackend, ops};
use emberlm_model::weights::{ParamVisitor, visit_params};

/// The global gradient norm `√Σ g²`, computed on the device, `[1]`. `None` if there are no gradients.
pub fn global_norm<B: TrainingBackend, M: Module<B>>(
    module: &M,
    grads: &GradientsParams,
) -> Option<Tensor<B::InnerBackend, 1>> {
    let mut of = Gradients::<'_, B> {
        grads,
        tensors: Vec::new(),
    };
    visit_params(module, &mut of);
    ops::total_sum_of_squares::<B::InnerBackend>(of.tensors).map(Tensor::sqrt)
}

/// The gradients in the order of the parameters.
struct Gradients<'a, B: TrainingBackend> {
    grads: &'a GradientsParams,
    tensors: Vec<FloatTensor<B::InnerBackend>>,
}

impl<B: TrainingBackend> ParamVisitor<B> for Gradients<'_, B> {
    fn visit<const D: usize>(&mut self, _path: &str, id: ParamId, _value: Tensor<B, D>) {
        if let Some(grad) = self.grads.get::<B::InnerBackend, D>(id) {
            self.tensors.push(grad.into_primitive().tensor());
        }
    }
}

/// The clipping factor for every gradient, `[1]`: `min(1, limit / (norm + 1e-6))`, as in PyTorch's
/// `clip_grad_norm_`. `None` if `limit` is 0, which disables clipping.
pub fn clip_factor<B: burn::tensor::backend::Backend>(
    norm: Tensor<B, 1>,
    limit: f64,
) -> Option<Tensor<B, 1>> {
    (limit > 0.0).then(|| ((norm + 1e-6).recip() * limit).clamp_max(1.0))
}
