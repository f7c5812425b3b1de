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

/// A tensor of a backend on the runtime `R`, computed or still queued.
pub type Queued<R> = FusionTensor<FusionCubeRuntime<R>>;

/// A backend of the runtime; all of them have the same tensor type.
type OnRuntime<R> = CubeBackend<R, f32, i32, u8>;

/// Adds an operation to the queue. `run` receives the inputs in memory, of any element type and memory layout, and
/// returns tensors of the shapes and types `outputs`. An input that nothing else uses may be overwritten
/// (`CubeTensor::can_mut`).
pub fn queue<R: CubeRuntime, const INPUTS: usize, const OUTPUTS: usize>(
    name: &'static str,
    inputs: [Queued<R>; INPUTS],
    outputs: [(Shape, DType); OUTPUTS],
    run: impl Fn([CubeTensor<R>; INPUTS]) -> [CubeTensor<R>; OUTPUTS] + Send + Sync + 'static,
) -> [Queued<R>; OUTPUTS] {
    let client = inputs[0].client.clone();
    let streams = OperationStreams::with_inputs(&inputs);
    let outputs =
        outputs.map(|(shape, kind)| TensorIr::uninit(client.create_empty_handle(), shape, kind));
    let description = CustomOpIr::new(name, &inputs.map(FusionTensor::into_ir), &outputs);
    let operation = Own {
        description: description.clone(),
        run: Arc::new(run),
    };
    client
        .register(streams, OperationIr::Custom(description), operation)
        .outputs()
}

/// The computation of an operation.
type Run<R, const INPUTS: usize, const OUTPUTS: usize> =
    dyn Fn([CubeTensor<R>; INPUTS]) -> [CubeTensor<R>; OUTPUTS] + Send + Sync;

/// An operation in the queue.
struct Own<R: CubeRuntime, const INPUTS: usize, const OUTPUTS: usize> {
    description: CustomOpIr,
    run: Arc<Run<R, INPUTS, OUTPUTS>>,
}

impl<R: CubeRuntime, const INPUTS: usize, const OUTPUTS: usize> fmt::Debug
    for Own<R, INPUTS, OUTPUTS>
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.description.fmt(f)
    }
}

impl<R: CubeRuntime, const INPUTS: usize, const OUTPUTS: usize> Operation<FusionCubeRuntime<R>>
    for Own<R, INPUTS, OUTPUTS>
{
    fn execute(&self, handles: &mut HandleContainer<<OnRuntime<R> as BackendIr>::Handle>) {
        let (inputs, outputs) = self.description.as_fixed::<INPUTS, OUTPUTS>();
        // The handle of a tensor of another element type is the same.
        let inputs = inputs
            .each_ref()
            .map(|input| handles.get_float_tensor::<OnRuntime<R>>(input));
        for (output, tensor) in outputs.iter().zip((self.run)(inputs)) {
            handles.register_float_tensor::<OnRuntime<R>>(&output.id, tensor);
        }
    }
}
