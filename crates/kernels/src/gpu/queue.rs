//! Own kernels in Burn's queue of operations.
//!
//! The GPU backends record operations and run them later, fused where Burn's fusion knows how. An operation that is
//! registered here runs as it is, between those.

use std::fmt;
use std::sync::Arc;

use burn::tensor::{DType, Shape};
use burn_cubecl::fusion::FusionCubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use burn_cubecl::{CubeBackend, CubeRuntime};
use burn_fusion::FusionTensor;
use burn_fusion::stream::{Operation, OperationStreams};
use burn_ir::{BackendIr, CustomOpIr, HandleContainer, OperationIr, OperationOutput, TensorIr};

use crate::BaseOps;

/// A tensor of a backend on the runtime `R`, computed or still queued.
pub type Queued<R> = FusionTensor<FusionCubeRuntime<R>>;

/// A backend of the runtime without a queue; all of them have the same tensor type.
pub type Unfused<R> = CubeBackend<R, f32, i32, u8>;

/// A backend whose tensors are queued on the runtime `R`.
pub trait OnRuntime<R: CubeRuntime>:
    BaseOps<
        Device = R::CubeDevice,
        FloatTensorPrimitive = Queued<R>,
        IntTensorPrimitive = Queued<R>,
        BoolTensorPrimitive = Queued<R>,
    >
{
}

impl<R: CubeRuntime, B> OnRuntime<R> for B where
    B: BaseOps<
            Device = R::CubeDevice,
            FloatTensorPrimitive = Queued<R>,
            IntTensorPrimitive = Queued<R>,
            BoolTensorPrimitive = Queued<R>,
        >
{
}

/// Adds an operation to the queue. `run` receives the inputs in memory, of any element type and memory layout, and
/// returns tensors of the shapes and types `outputs`. An input that nothing else uses may be overwritten
/// (`CubeTensor::can_mut`).
pub fn queue<R: CubeRuntime, const INPUTS: usize, const OUTPUTS: usize>(
    name: &'static str,
    inputs: [Queued<R>; INPUTS],
    outputs: [(Shape, DType); OUTPUTS],
    run: impl Fn([CubeTensor<R>; INPUTS]) -> [CubeTensor<R>; OUTPUTS] + Send + Sync + 'static,
) -> [Queued<R>; OUTPUTS] {
    queue_many(name, inputs.into(), outputs, move |inputs| {
        // The queue keeps the number of inputs.
        <[CubeTensor<R>; INPUTS]>::try_from(inputs).ok().map(&run)
    })
}

/// As [`queue`], of any number of inputs, of which there is at least one.
pub fn queue_many<R: CubeRuntime, const OUTPUTS: usize>(
    name: &'static str,
    inputs: Vec<Queued<R>>,
    outputs: [(Shape, DType); OUTPUTS],
    run: impl Fn(Vec<CubeTensor<R>>) -> Option<[CubeTensor<R>; OUTPUTS]> + Send + Sync + 'static,
) -> [Queued<R>; OUTPUTS] {
    let run = move |inputs| run(inputs).into_iter().flatten().collect();
    queue_all(name, inputs, outputs.into(), run).outputs()
}

/// As [`queue_many`], with any number of outputs.
pub fn queue_all<R: CubeRuntime>(
    name: &'static str,
    inputs: Vec<Queued<R>>,
    outputs: Vec<(Shape, DType)>,
    run: impl Fn(Vec<CubeTensor<R>>) -> Vec<CubeTensor<R>> + Send + Sync + 'static,
) -> Vec<Queued<R>> {
    let client = inputs[0].client.clone();
    let streams = OperationStreams::with_inputs(&inputs);
    let output = |(shape, kind)| TensorIr::uninit(client.create_empty_handle(), shape, kind);
    let outputs: Vec<TensorIr> = outputs.into_iter().map(output).collect();
    let inputs: Vec<TensorIr> = inputs.into_iter().map(FusionTensor::into_ir).collect();
    let description = CustomOpIr::new(name, &inputs, &outputs);
    let operation = Own {
        description: description.clone(),
        run: Arc::new(run),
    };
    client.register(streams, OperationIr::Custom(description), operation)
}

/// The computation of an operation.
type Run<R> = dyn Fn(Vec<CubeTensor<R>>) -> Vec<CubeTensor<R>> + Send + Sync;

/// An operation in the queue.
struct Own<R: CubeRuntime> {
    description: CustomOpIr,
    run: Arc<Run<R>>,
}

impl<R: CubeRuntime> fmt::Debug for Own<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.description.fmt(f)
    }
}

impl<R: CubeRuntime> Operation<FusionCubeRuntime<R>> for Own<R> {
    fn execute(&self, handles: &mut HandleContainer<<Unfused<R> as BackendIr>::Handle>) {
        // The handle of a tensor of another element type is the same.
        let inputs = self.description.inputs.iter();
        let inputs = inputs.map(|input| handles.get_float_tensor::<Unfused<R>>(input));
        let outputs = (self.run)(inputs.collect());
        for (output, tensor) in self.description.outputs.iter().zip(outputs) {
            handles.register_float_tensor::<Unfused<R>>(&output.id, tensor);
        }
    }
}
