//! Gradients on the host, by parameter path.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};

use burn::module::{Module, ParamId};
use burn::tensor::{Tensor, TensorPrimitive};
use emberlm_kernels::TrainingBackend;
use emberlm_model::weights::{ParamVisitor, visit_params, whole_path};
use emberlm_model::{CompleteGradient, GradientSink};

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
pub fn by_path<B: TrainingBackend, M: Module<B>>(
    module: &M,
    from: &B::Gradients,
) -> BTreeMap<String, Vec<f32>> {
    let mut read = Read::<B> {
        from,
        grads: BTreeMap::new(),
    };
    visit_params(module, &mut read);
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

/// The gradients that a sink takes, by parameter path, each with the number of the call that handed it over. Each parameter
/// is handed over once.
pub fn streamed<B: TrainingBackend, M: Module<B>>(
    module: &M,
    pass: impl FnOnce(&GradientSink<B>),
) -> BTreeMap<String, (usize, Option<Vec<f32>>)> {
    let mut paths = Paths::default();
    visit_params(module, &mut paths);
    let (sender, arrived) = mpsc::channel();
    let sink = GradientSink::new(move |complete| sender.send(complete).unwrap());
    pass(&sink);
    sink.close();
    let mut all = BTreeMap::new();
    for (call, complete) in arrived.iter().enumerate() {
        for CompleteGradient { id, gradient } in complete {
            let gradient = gradient.map(TensorPrimitive::Float);
            let gradient =
                gradient.map(|it| host(Tensor::<B::InnerBackend, 1>::from_primitive(it)));
            let path = &paths.0[&id];
            let before = all.insert(path.clone(), (call, gradient));
            assert_eq!(before, None, "{path}");
        }
    }
    assert_eq!(all.len(), paths.0.len());
    all
}

#[derive(Default)]
struct Paths(HashMap<ParamId, String>);

impl<B: TrainingBackend> ParamVisitor<B> for Paths {
    fn visit<const D: usize>(&mut self, path: &str, id: ParamId, _value: Tensor<B, D>) {
        self.0.insert(id, path.to_owned());
    }
}
