//! The library of each device, which is opened and tested before its first product, and products by it.

#![allow(unsafe_code)]

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use burn::cubecl::cuda::{CudaDevice, CudaRuntime};
use burn::tensor::{DType, Shape};
use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;

use super::library::Library;
use super::self_test;
use super::task::{Task, View};
use crate::gpu::launch::empty;

/// The kernels that multiply large matrices on a CUDA device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProductLibrary {
    /// NVIDIA's library.
    CublasLt {
        /// Its version, such as 12.8.4.
        version: String,
    },
    /// CubeK's kernels, as on other GPUs.
    CubeCl {
        /// The reason why cuBLASLt is not used.
        reason: String,
    },
}

/// The library of a device, if it was opened. After an error it is not used again.
type State = Arc<Mutex<Option<Result<Library, String>>>>;

static STATES: Mutex<BTreeMap<usize, State>> = Mutex::new(BTreeMap::new());

static IS_DISABLED: AtomicBool = AtomicBool::new(false);

/// Multiplies by CubeCL from now on, on every device.
pub fn disable() {
    IS_DISABLED.store(true, Ordering::Relaxed);
}

/// The kernels of the large products of CUDA device `number`. Opens and tests the library at the first call.
pub fn library_of(number: usize) -> ProductLibrary {
    let opened = with_library(&CudaDevice::new(number), |_| Ok(Library::version()));
    match opened {
        Ok(version) => ProductLibrary::CublasLt { version },
        Err(reason) => ProductLibrary::CubeCl { reason },
    }
}

/// `a b` in the type `kind`. Returns `None` if the device is no CUDA device, its library is not used, or CubeCL's kernels are
/// about as fast.
pub(in crate::gpu) fn multiply<R: CubeRuntime>(
    a: &CubeTensor<R>,
    b: &CubeTensor<R>,
    kind: DType,
) -> Option<CubeTensor<R>> {
    let [a, b] = [a, b].map(|of| (of as &dyn Any).downcast_ref::<CubeTensor<CudaRuntime>>());
    let (a, b) = (a?, b?);
    let task = task_of(a, b, kind).filter(Task::is_worthwhile)?;
    let product = with_library(&a.device, |library| run(library, &task, a, b)).ok()??;
    let product: Box<dyn Any> = Box::new(product);
    product.downcast().ok().map(|product| *product)
}

/// See [`Task::of`].
pub(super) fn task_of(
    a: &CubeTensor<CudaRuntime>,
    b: &CubeTensor<CudaRuntime>,
    kind: DType,
) -> Option<Task> {
    let [a, b] = [a, b].map(|of| View {
        shape: of.meta.shape(),
        strides: of.meta.strides(),
        kind: of.dtype,
    });
    Task::of(a, b, kind)
}

/// The product of operands that have the task's sizes and layouts, or `None` if the library does not support it.
///
/// # Errors
/// A call of CubeCL or the library fails.
pub(super) fn run(
    library: &mut Library,
    task: &Task,
    a: &CubeTensor<CudaRuntime>,
    b: &CubeTensor<CudaRuntime>,
) -> Result<Option<CubeTensor<CudaRuntime>>, String> {
    let batch = a.meta.num_dims().saturating_sub(2);
    let dims = a.meta.shape().iter().zip(b.meta.shape().iter());
    let mut shape: Vec<usize> = dims.take(batch).map(|(&a, &b)| a.max(b)).collect();
    shape.extend([task.rows, task.columns]);
    let output = empty(a, Shape::from(shape), task.output_kind);
    // Each call also waits until the device has been given the kernels that are queued before it. It returns the address of the
    // first element.
    let resource = |of: &CubeTensor<CudaRuntime>| {
        let resource = of.client.get_resource(of.handle.clone());
        resource.map_err(|error| format!("a tensor has no memory: {error:?}"))
    };
    let resources = [resource(a)?, resource(b)?, resource(&output)?];
    let addresses = [0, 1, 2].map(|n: usize| resources[n].resource().ptr);
    // SAFETY: the tensors have the shapes and strides that the task is made of, the output is contiguous, and `resources` keeps
    // their memory.
    let is_supported = unsafe { library.multiply(task, addresses)? };
    Ok(is_supported.then_some(output))
}

/// Runs `act` with the device's library. After an error, the library is not used on this device again.
///
/// # Errors
/// The library is not used, or `act` fails.
fn with_library<T>(
    device: &CudaDevice,
    act: impl FnOnce(&mut Library) -> Result<T, String>,
) -> Result<T, String> {
    if IS_DISABLED.load(Ordering::Relaxed) {
        return Err("it is not selected".to_owned());
    }
    let mut states = STATES.lock().unwrap_or_else(PoisonError::into_inner);
    let state = states.entry(device.index).or_default().clone();
    drop(states);
    let mut state = state.lock().map_err(|_| "a product panicked".to_owned())?;
    let library = state.get_or_insert_with(|| {
        let mut library = Library::open(device.index)?;
        self_test::run(&mut library, device)?;
        Ok(library)
    });
    let result = match library {
        Ok(library) => act(library),
        Err(reason) => return Err(reason.clone()),
    };
    if let Err(reason) = &result {
        *library = Err(reason.clone());
    }
    result
}
