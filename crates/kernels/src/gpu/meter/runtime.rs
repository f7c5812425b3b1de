//! The metered runtime and its compiler.

use std::marker::PhantomData;

use cubecl::client::ComputeClient;
use cubecl::device::DeviceId;
use cubecl::ir::{ElemType, StorageType, TargetProperties};
use cubecl::server::ExecutionMode;
use cubecl::zspace::{Shape, Strides};
use cubecl::{CompilationError, Compiler, CubeTask, Runtime};
use cubecl_runtime::id::KernelId;
use cubecl_runtime::kernel::{CompiledKernel, KernelDefinition, KernelMetadata, Visibility};

use super::counts::record_compilation;
use super::server::{InnerUtilities, MeteredServer};

/// The runtime `R` with counters; see [`super::measure`].
#[derive(Clone, Debug)]
pub struct Metered<R>(PhantomData<R>);

/// A runtime that can be metered.
pub trait Meterable: Runtime {
    /// A compiler of the same target. Each kernel has its own, so the state of `like` does not matter.
    fn compiler(like: &Self::Compiler) -> Self::Compiler {
        like.clone()
    }
}

#[cfg(any(feature = "wgpu", feature = "vulkan", feature = "metal"))]
impl Meterable for cubecl::wgpu::WgpuRuntime {
    fn compiler(like: &Self::Compiler) -> Self::Compiler {
        match like {
            // A clone of an unused one panics.
            #[cfg(feature = "vulkan")]
            cubecl::wgpu::AutoCompiler::SpirV(_) => {
                cubecl::wgpu::AutoCompiler::SpirV(Default::default())
            }
            _ => like.clone(),
        }
    }
}

#[cfg(feature = "cuda")]
impl Meterable for cubecl::cuda::CudaRuntime {}

#[cfg(feature = "rocm")]
impl Meterable for cubecl::hip::HipRuntime {}

impl<R: Meterable> Runtime for Metered<R> {
    type Compiler = MeteredCompiler<R::Compiler>;
    type Server = MeteredServer<R>;
    type Device = R::Device;

    fn client(device: &Self::Device) -> ComputeClient<Self> {
        ComputeClient::load(device)
    }

    fn name(_: &ComputeClient<Self>) -> &'static str {
        "metered"
    }

    fn require_array_lengths() -> bool {
        R::require_array_lengths()
    }

    fn max_cube_count() -> (u32, u32, u32) {
        R::max_cube_count()
    }

    fn can_read_tensor(shape: &Shape, strides: &Strides) -> bool {
        R::can_read_tensor(shape, strides)
    }

    fn target_properties() -> TargetProperties {
        R::target_properties()
    }

    fn enumerate_devices(type_id: u16, info: &InnerUtilities<R::Server>) -> Vec<DeviceId> {
        R::enumerate_devices(type_id, &info.0.info)
    }

    fn enumerate_all_devices(info: &InnerUtilities<R::Server>) -> Vec<DeviceId> {
        R::enumerate_all_devices(&info.0.info)
    }
}

/// The compiler `C`, which also sees the buffers of a kernel.
#[derive(Clone, Debug)]
pub struct MeteredCompiler<C> {
    inner: C,
    /// Of the last compiled kernel: whether it may write each buffer.
    writes: Vec<bool>,
}

impl<C: Compiler> Compiler for MeteredCompiler<C> {
    type Representation = C::Representation;
    type CompilationOptions = C::CompilationOptions;

    fn compile(
        &mut self,
        kernel: KernelDefinition,
        options: &Self::CompilationOptions,
        mode: ExecutionMode,
        addresses: StorageType,
    ) -> Result<Self::Representation, CompilationError> {
        let writes = kernel
            .buffers
            .iter()
            .map(|buffer| buffer.visibility == Visibility::ReadWrite);
        self.writes = writes.collect();
        self.inner.compile(kernel, options, mode, addresses)
    }

    fn elem_size(&self, elem: ElemType) -> usize {
        self.inner.elem_size(elem)
    }

    fn extension(&self) -> &'static str {
        self.inner.extension()
    }
}

/// A kernel of the metered runtime as one of the runtime `R`.
pub(super) struct Inner<R: Meterable>(pub(super) Box<dyn CubeTask<MeteredCompiler<R::Compiler>>>);

impl<R: Meterable> KernelMetadata for Inner<R> {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn id(&self) -> KernelId {
        self.0.id()
    }

    fn address_type(&self) -> StorageType {
        self.0.address_type()
    }
}

impl<R: Meterable> CubeTask<R::Compiler> for Inner<R> {
    fn compile(
        &self,
        compiler: &mut R::Compiler,
        options: &<R::Compiler as Compiler>::CompilationOptions,
        mode: ExecutionMode,
        addresses: StorageType,
    ) -> Result<CompiledKernel<R::Compiler>, CompilationError> {
        let mut metered = MeteredCompiler {
            inner: R::compiler(compiler),
            writes: Vec::new(),
        };
        let compiled = self.0.compile(&mut metered, options, mode, addresses)?;
        record_compilation(self.0.id(), metered.writes);
        Ok(CompiledKernel {
            entrypoint_name: compiled.entrypoint_name,
            debug_name: compiled.debug_name,
            source: compiled.source,
            repr: compiled.repr,
            cube_dim: compiled.cube_dim,
            debug_info: compiled.debug_info,
        })
    }
}
