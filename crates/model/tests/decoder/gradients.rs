//! Gradients on the host, by parameter path.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use burn::module::ParamId;
use burn::tensor::Tensor;
use emberlm_kernels::TrainingBackend;
use emberlm_model::Decoder;
use emberlm_model::weights::{ParamVisitor, visit_params, whole_path};

use crate::decoder::values::host;

/// Held by each test that computes gradients. The backends have one random state per process. And the clean-up of
/// Burn 0.21 after a backward pass (`GraphCleaner::cleanup_orphaned_entries`) visits the graphs of all threads and
/// occasionally removes nodes that another thread still builds on: a gradient was wrong or missing in one run of
/// thirty.
pub fn one_at_a_time() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the gradient of every parameter that has one. Gradients of a split table are concatenated.
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
            let whole = self.grads.entry(whole_path(path).to_owned()).or_default();
            whole.extend(host(grad));
        }
    }
}
