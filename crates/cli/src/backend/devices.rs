//! Lists the devices of a backend with number, name and memory.

use serde::Serialize;
use sysinfo::{CpuRefreshKind, MemoryRefreshKind, RefreshKind, System};

use super::BackendName;

/// A device of a backend.
#[derive(Clone, Debug, Serialize)]
pub struct DeviceInfo {
    /// The device's number for `--device`.
    pub number: usize,
    /// The device's name as reported by the driver.
    pub name: String,
    pub kind: Kind,
    /// The driver's name and version, if reported.
    pub driver: Option<String>,
    /// Device memory in bytes. Graphics APIs do not report it.
    pub memory_bytes: Option<u64>,
    /// The largest supported buffer in bytes, if there is a limit.
    pub largest_buffer_bytes: Option<u64>,
    /// The means of matrix products: on the CPU the instructions of each type, on CUDA the library; see [`with_products`].
    pub products: Option<String>,
}

emberlm_system::named! {
    /// The kind of a device.
    #[derive(Serialize)]
    #[serde(rename_all = "kebab-case")]
    // A CPU-only build does not construct all variants.
    #[cfg_attr(not(all(feature = "adapters", feature = "cuda")), allow(dead_code))]
    pub enum Kind {
        /// A GPU with its own memory.
        DiscreteGpu = "discrete GPU",
        /// A GPU that shares the CPU's memory.
        IntegratedGpu = "integrated GPU",
        /// A GPU provided by a virtual machine.
        VirtualGpu = "virtual GPU",
        /// The CPU, or a GPU emulated on it.
        Cpu = "CPU",
        /// A device of an unreported kind.
        Other = "other",
    }
}

impl Kind {
    /// Returns true if the device shares the CPU's memory.
    pub fn shares_memory(self) -> bool {
        matches!(self, Self::IntegratedGpu | Self::Cpu)
    }
}

/// Returns the backend's devices in the order of their numbers. The list is empty if the backend is not
/// compiled in or no driver is found.
pub fn of(backend: BackendName) -> Vec<DeviceInfo> {
    match backend {
        BackendName::Flex | BackendName::Ndarray => vec![cpu()],
        #[cfg(feature = "wgpu")]
        BackendName::Wgpu => adapters::of::<burn::backend::wgpu::graphics::AutoGraphicsApi>(),
        #[cfg(feature = "vulkan")]
        BackendName::Vulkan => adapters::of::<burn::backend::wgpu::graphics::Vulkan>(),
        #[cfg(feature = "metal")]
        BackendName::Metal => adapters::of::<burn::backend::wgpu::graphics::Metal>(),
        #[cfg(feature = "cuda")]
        BackendName::Cuda => cuda::list(),
        // HIP only exposes device names through its C API, so its devices are not listed.
        #[allow(unreachable_patterns)]
        _ => Vec::new(),
    }
}

fn cpu() -> DeviceInfo {
    let system = System::new_with_specifics(
        RefreshKind::nothing()
            .with_cpu(CpuRefreshKind::nothing())
            .with_memory(MemoryRefreshKind::nothing().with_ram()),
    );
    let brand = system.cpus().first().map(|cpu| cpu.brand().trim());
    let brand = brand.filter(|brand| !brand.is_empty());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    DeviceInfo {
        number: 0,
        name: format!(
            "{}, {threads} threads",
            brand.unwrap_or(std::env::consts::ARCH)
        ),
        kind: Kind::Cpu,
        driver: None,
        memory_bytes: Some(system.total_memory()).filter(|&bytes| bytes > 0),
        largest_buffer_bytes: None,
        products: None,
    }
}

/// Returns [`of`] with the means of matrix products, which opens and tests libraries.
pub fn with_products(backend: BackendName) -> Vec<DeviceInfo> {
    let mut listed = of(backend);
    if backend == BackendName::Flex {
        for device in &mut listed {
            device.products = Some(emberlm_kernels::cpu::instructions::of_products());
        }
    }
    #[cfg(feature = "cuda")]
    if backend == BackendName::Cuda {
        for device in &mut listed {
            device.products = Some(cuda::products(device.number));
        }
    }
    listed
}

/// Devices of the graphics APIs.
#[cfg(feature = "adapters")]
pub(super) mod adapters {
    use burn::backend::wgpu::{WgpuDevice, graphics};
    use wgpu::{Adapter, Backend, DeviceType, Instance, InstanceDescriptor};

    use super::{DeviceInfo, Kind};

    /// Returns the devices of an API, in the order the API lists them.
    pub fn of<G: graphics::GraphicsApi>() -> Vec<DeviceInfo> {
        let found = enumerate(G::backend()).into_iter().enumerate();
        found
            .map(|(number, adapter)| info(number, &adapter))
            .collect()
    }

    /// Returns Burn's handle of device `number`, or `None` if there is no such device. Burn identifies a
    /// device by its kind and its index among the devices of that kind.
    pub fn by_number(api: Backend, number: usize) -> Option<WgpuDevice> {
        let kinds: Vec<DeviceType> = enumerate(api)
            .iter()
            .map(|adapter| adapter.get_info().device_type)
            .collect();
        let kind = *kinds.get(number)?;
        let before = kinds[..number]
            .iter()
            .filter(|&&other| other == kind)
            .count();
        Some(match kind {
            DeviceType::DiscreteGpu => WgpuDevice::DiscreteGpu(before),
            DeviceType::IntegratedGpu => WgpuDevice::IntegratedGpu(before),
            DeviceType::VirtualGpu => WgpuDevice::VirtualGpu(before),
            DeviceType::Cpu => WgpuDevice::Cpu,
            DeviceType::Other => WgpuDevice::DefaultDevice,
        })
    }

    fn enumerate(api: Backend) -> Vec<Adapter> {
        let instance = Instance::new(InstanceDescriptor {
            backends: api.into(),
            ..InstanceDescriptor::new_without_display_handle()
        });
        futures_lite::future::block_on(instance.enumerate_adapters(api.into()))
    }

    fn info(number: usize, adapter: &Adapter) -> DeviceInfo {
        let info = adapter.get_info();
        let driver = format!("{} {}", info.driver, info.driver_info);
        DeviceInfo {
            number,
            name: info.name,
            kind: match info.device_type {
                DeviceType::DiscreteGpu => Kind::DiscreteGpu,
                DeviceType::IntegratedGpu => Kind::IntegratedGpu,
                DeviceType::VirtualGpu => Kind::VirtualGpu,
                DeviceType::Cpu => Kind::Cpu,
                DeviceType::Other => Kind::Other,
            },
            driver: Some(driver.trim().to_owned()).filter(|driver| !driver.is_empty()),
            memory_bytes: None,
            largest_buffer_bytes: Some(adapter.limits().max_storage_buffer_binding_size),
            products: None,
        }
    }
}

/// NVIDIA devices.
#[cfg(feature = "cuda")]
pub(super) mod cuda {
    use cudarc::driver::CudaContext;
    use emberlm_kernels::cublas::{ProductLibrary, library_of};

    use super::{DeviceInfo, Kind};

    /// Lists the CUDA devices. The driver library is loaded on first use, and panics if it is absent.
    pub fn list() -> Vec<DeviceInfo> {
        crate::backend::quietly(|| {
            let count = CudaContext::device_count().map_or(0, |count| count.max(0) as usize);
            (0..count).filter_map(info).collect()
        })
        .unwrap_or_default()
    }

    fn info(number: usize) -> Option<DeviceInfo> {
        let context = CudaContext::new(number).ok()?;
        let capability = context.compute_capability().ok();
        Some(DeviceInfo {
            number,
            name: context.name().ok()?,
            kind: Kind::DiscreteGpu,
            driver: capability.map(|(major, minor)| format!("compute capability {major}.{minor}")),
            memory_bytes: context.total_mem().ok().map(|bytes| bytes as u64),
            largest_buffer_bytes: None,
            products: None,
        })
    }

    /// Describes what computes the large products of device `number`.
    pub fn products(number: usize) -> String {
        let reason = match crate::backend::quietly(|| library_of(number)) {
            Ok(ProductLibrary::CublasLt { version }) => return format!("cuBLASLt {version}"),
            Ok(ProductLibrary::CubeCl { reason }) | Err(reason) => reason,
        };
        format!("CubeCL, since cuBLASLt is not used: {reason}")
    }
}
