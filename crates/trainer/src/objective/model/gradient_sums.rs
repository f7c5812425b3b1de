//! The gradients of several backward passes, summed by parameter.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use burn::optim::GradientsParams;
use burn::tensor::{Tensor, TensorPrimitive};
use emberlm_kernels::{Backend, TrainingBackend};
use emberlm_model::{CompleteGradient, GradientSink};

/// The gradients of micro-batches, summed by parameter.
#[derive(Default)]
pub(crate) struct GradientSums(Arc<Mutex<GradientsParams>>);

impl GradientSums {
    /// A sink that adds the gradients of a micro-batch.
    pub(crate) fn sink<B: TrainingBackend>(&self) -> GradientSink<B> {
        let sums = Arc::clone(&self.0);
        GradientSink::new(move |complete| {
            let mut sums = locked(&sums);
            for gradient in complete {
                let CompleteGradient { id, gradient } = sum_with_earlier(&mut sums, gradient);
                if let Some(gradient) = gradient {
                    let gradient = TensorPrimitive::Float(gradient);
                    sums.register::<B::InnerBackend, 1>(id, Tensor::from_primitive(gradient));
                }
            }
        })
    }

    /// A sink that hands the sums with the gradients of the last micro-batch to `sink`.
    pub(crate) fn added_to<B: TrainingBackend>(&self, sink: &GradientSink<B>) -> GradientSink<B> {
        let (sums, sink) = (Arc::clone(&self.0), sink.clone());
        GradientSink::new(move |complete| {
            let mut sums = locked(&sums);
            let complete = complete.into_iter();
            let complete = complete.map(|gradient| sum_with_earlier(&mut sums, gradient));
            sink.take(complete.collect());
        })
    }

    /// The sums that were not handed over.
    pub(crate) fn into_gradients(self) -> GradientsParams {
        std::mem::take(&mut *locked(&self.0))
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes the gradient of a parameter from those of earlier micro-batches and adds that of the last one.
fn sum_with_earlier<B: Backend>(
    grads: &mut GradientsParams,
    CompleteGradient { id, gradient }: CompleteGradient<B>,
) -> CompleteGradient<B> {
    // The number of dimensions is only that of the Rust type, which is dropped at once.
    let earlier = grads.remove::<B, 1>(id);
    let earlier = earlier.map(|earlier| earlier.into_primitive().tensor());
    let gradient = match (earlier, gradient) {
        (Some(earlier), Some(gradient)) => Some(B::float_add(earlier, gradient)),
        (earlier, gradient) => earlier.or(gradient),
    };
    CompleteGradient { id, gradient }
}
