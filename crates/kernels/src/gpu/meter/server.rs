//! The metered server.

#![allow(unsafe_code)]

use std::fmt;
use std::sync::Arc;

use cubecl::bytes::Bytes;
use cubecl::device::{DeviceId, DeviceService, DeviceServiceStage, ServerUtilitiesHandle};
use cubecl::future::DynFut;
use cubecl::ir::ElemType;
use cubecl::profile::ProfileDuration;
use cubecl::server::{
    Binding, ComputeServer, CopyDescriptor, CubeCount, ExecutionMode, Handle, KernelArguments,
    MemoryLayout, MemoryLayoutDescriptor, MemoryLayoutPolicy, ProfileError, ProfilingToken,
    ReduceOperation, ServerCommunication, ServerError, ServerUtilities,
};
use cubecl::stream_id::StreamId;
use cubecl::{CubeTask, MemoryUsage};
use cubecl_runtime::kernel::KernelMetadata;
use cubecl_runtime::logging::ServerLogger;
use cubecl_runtime::memory_management::{ManagedMemoryHandle, MemoryAllocationMode};
use cubecl_runtime::storage::{ComputeStorage, ManagedResource};

use super::counts::{record_launch, record_synchronization, record_uploads};
use super::runtime::{Inner, Meterable, MeteredCompiler};

/// The server of `R` with counters.
pub struct MeteredServer<R: Meterable> {
    inner: R::Server,
    utilities: Arc<ServerUtilities<Self>>,
}

impl<R: Meterable> fmt::Debug for MeteredServer<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MeteredServer").field(&self.inner).finish()
    }
}

/// The utilities of the inner server, of which only the type differs.
pub struct InnerUtilities<S: ComputeServer>(pub(super) Arc<ServerUtilities<S>>);

impl<S: ComputeServer> fmt::Debug for InnerUtilities<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.info.fmt(f)
    }
}

impl<S: ComputeServer> MemoryLayoutPolicy for InnerUtilities<S> {
    fn apply(
        &self,
        stream: StreamId,
        descriptors: &[MemoryLayoutDescriptor],
    ) -> (Handle, Vec<MemoryLayout>) {
        self.0.layout_policy.apply(stream, descriptors)
    }
}

impl<R: Meterable> DeviceService for MeteredServer<R> {
    fn init(device: DeviceId) -> Self {
        let inner = R::Server::init(device);
        let of_inner = ComputeServer::utilities(&inner);
        let utilities = ServerUtilities::new(
            of_inner.properties.clone(),
            of_inner.logger.clone(),
            InnerUtilities(of_inner.clone()),
            InnerUtilities(of_inner),
        );
        Self {
            inner,
            utilities: Arc::new(utilities),
        }
    }

    fn utilities(&self) -> ServerUtilitiesHandle {
        self.utilities.clone()
    }

    fn stage() -> DeviceServiceStage {
        R::Server::stage()
    }
}

impl<R: Meterable> ComputeServer for MeteredServer<R> {
    type Kernel = Box<dyn CubeTask<MeteredCompiler<R::Compiler>>>;
    type Info = InnerUtilities<R::Server>;
    type MemoryLayoutPolicy = InnerUtilities<R::Server>;
    type Storage = <R::Server as ComputeServer>::Storage;

    fn initialize_memory(&mut self, memory: ManagedMemoryHandle, size: u64, stream: StreamId) {
        self.inner.initialize_memory(memory, size, stream);
    }

    fn staging(&mut self, sizes: &[usize], stream: StreamId) -> Result<Vec<Bytes>, ServerError> {
        self.inner.staging(sizes, stream)
    }

    fn logger(&self) -> Arc<ServerLogger> {
        self.inner.logger()
    }

    fn utilities(&self) -> Arc<ServerUtilities<Self>> {
        self.utilities.clone()
    }

    fn read(
        &mut self,
        descriptors: Vec<CopyDescriptor>,
        stream: StreamId,
    ) -> DynFut<Result<Vec<Bytes>, ServerError>> {
        record_synchronization();
        self.inner.read(descriptors, stream)
    }

    fn write(&mut self, descriptors: Vec<(CopyDescriptor, Bytes)>, stream: StreamId) {
        record_uploads(descriptors.len());
        self.inner.write(descriptors, stream);
    }

    fn sync(&mut self, stream: StreamId) -> DynFut<Result<(), ServerError>> {
        record_synchronization();
        self.inner.sync(stream)
    }

    fn get_resource(
        &mut self,
        binding: Binding,
        stream: StreamId,
    ) -> Result<ManagedResource<<Self::Storage as ComputeStorage>::Resource>, ServerError> {
        self.inner.get_resource(binding, stream)
    }

    unsafe fn launch(
        &mut self,
        kernel: Self::Kernel,
        count: CubeCount,
        bindings: KernelArguments,
        kind: ExecutionMode,
        stream: StreamId,
    ) {
        let (id, name) = (kernel.id(), kernel.name());
        let size = |of: &Binding| {
            let outside = of.offset_start.unwrap_or(0) + of.offset_end.unwrap_or(0);
            of.size.saturating_sub(outside)
        };
        let maps = bindings.tensor_maps.iter().map(|map| &map.binding);
        let sizes: Vec<u64> = bindings.buffers.iter().chain(maps).map(size).collect();
        // SAFETY: the caller upholds the conditions, which are those of the inner server.
        unsafe {
            self.inner
                .launch(Box::new(Inner::<R>(kernel)), count, bindings, kind, stream);
        }
        // After the launch, which compiles the kernel if it is new.
        record_launch(&id, name, &sizes);
    }

    fn flush(&mut self, stream: StreamId) -> Result<(), ServerError> {
        self.inner.flush(stream)
    }

    fn memory_usage(&mut self, stream: StreamId) -> Result<MemoryUsage, ServerError> {
        self.inner.memory_usage(stream)
    }

    fn memory_cleanup(&mut self, stream: StreamId) {
        self.inner.memory_cleanup(stream);
    }

    fn start_profile(&mut self, stream: StreamId) -> Result<ProfilingToken, ServerError> {
        self.inner.start_profile(stream)
    }

    fn end_profile(
        &mut self,
        stream: StreamId,
        token: ProfilingToken,
    ) -> Result<ProfileDuration, ProfileError> {
        self.inner.end_profile(stream, token)
    }

    fn allocation_mode(&mut self, mode: MemoryAllocationMode, stream: StreamId) {
        self.inner.allocation_mode(mode, stream);
    }
}

/// Exchanges between devices are not counted.
impl<R: Meterable> ServerCommunication for MeteredServer<R> {
    const SERVER_COMM_ENABLED: bool = R::Server::SERVER_COMM_ENABLED;

    fn sync_collective(&mut self, stream: StreamId) -> Result<(), ServerError> {
        self.inner.sync_collective(stream)
    }

    fn comm_init(&mut self, devices: Vec<DeviceId>) -> Result<(), ServerError> {
        self.inner.comm_init(devices)
    }

    fn all_reduce(
        &mut self,
        src: Binding,
        dst: Binding,
        dtype: ElemType,
        stream: StreamId,
        op: ReduceOperation,
        devices: Vec<DeviceId>,
    ) -> Result<(), ServerError> {
        self.inner.all_reduce(src, dst, dtype, stream, op, devices)
    }

    fn send(
        &mut self,
        desc: CopyDescriptor,
        dtype: ElemType,
        stream: StreamId,
        to: DeviceId,
    ) -> Result<(), ServerError> {
        self.inner.send(desc, dtype, stream, to)
    }

    fn recv(
        &mut self,
        handle: Handle,
        dtype: ElemType,
        stream: StreamId,
        from: DeviceId,
    ) -> Result<(), ServerError> {
        self.inner.recv(handle, dtype, stream, from)
    }
}
