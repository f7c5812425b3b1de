//! A backend and one of its devices.

use std::fmt;

#[cfg(feature = "gpu")]
use burn::tensor::Device;
use emberlm_kernels::memory::{keep_freed, large_pages};
use emberlm_trainer::Rank;

#[cfg(feature = "gpu")]
use super::failure;
#[cfg(feature = "gpu")]
use super::start::start;
#[cfg(feature = "gpu")]
use super::start::touch;
use super::{BackendName, Job, Products, devices};
#[cfg(feature = "gpu")]
use crate::ending;
use crate::error::CliError;

/// A compiled-in backend and one of its devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    pub backend: BackendName,
    /// The device's number. `None` selects the driver's default device.
    pub(super) device: Option<usize>,
    pub(super) products: Products,
}

impl Placement {
    /// The backend's name.
    pub fn name(self) -> &'static str {
        self.backend.name()
    }

    /// Returns true if the backend keeps packed weights packed.
    pub fn keeps_packed_weights(self) -> bool {
        self.backend != BackendName::Ndarray
    }

    /// Returns true if the backend unpacks a layer to f32 for a pass of many tokens, as GPUs do with packed weights.
    pub fn unpacks_layers(self) -> bool {
        !matches!(self.backend, BackendName::Flex | BackendName::Ndarray)
    }

    /// The backend's default device.
    pub fn of(backend: BackendName) -> Self {
        Self {
            backend,
            device: None,
            products: Products::default(),
        }
    }

    /// The device's name as reported by the driver. Returns `None` if the device is not listed.
    pub fn device_name(self) -> Option<String> {
        let mut listed = devices::of(self.backend);
        let number = self.device.or((listed.len() == 1).then_some(0))?;
        (number < listed.len()).then(|| listed.swap_remove(number).name)
    }

    /// The device's number. `None` means the driver's default device.
    pub fn number(self) -> Option<usize> {
        self.device
    }

    /// The placement of a rank among those of the same host: unless a device was selected, ranks take the devices in
    /// turn.
    pub fn of_local_rank(self, local_rank: Rank) -> Self {
        if self.device.is_some() || local_rank.world_size() == 1 {
            return self;
        }
        let count = devices::of(self.backend).len();
        let device = (count > 1).then(|| local_rank.index() % count);
        Self { device, ..self }
    }

    /// The command-line options that select this placement.
    pub fn options(self) -> Vec<String> {
        let mut words = vec!["--backend".to_owned(), self.name().to_owned()];
        if let Some(number) = self.device {
            words.extend(["--device".to_owned(), number.to_string()]);
        }
        if self.products != Products::default() {
            words.extend(["--products".to_owned(), self.products.name().to_owned()]);
        }
        words
    }

    /// Runs `job` on the device. What it frees is kept for its next pass.
    ///
    /// # Errors
    /// Returns an error if the device or its driver is missing.
    pub fn run<J: Job>(self, job: J) -> Result<J::Output, CliError> {
        /// Opens `$device` with `$start`, which panics if there is none, and runs the job.
        #[allow(unused_macros)]
        macro_rules! run_on {
            ($backend:ty, $device:expr, $start:expr) => {{
                let device: Device<$backend> = $device;
                start(self, || $start(&device))?;
                failure::exit_on_failure(self);
                ending::mark_gpu_used();
                Ok(job.run::<burn::backend::Autodiff<$backend>>(device))
            }};
        }
        /// Does the same for a graphics API.
        #[allow(unused_macros)]
        macro_rules! run_on_adapter {
            ($backend:ty, $api:ty) => {
                run_on!($backend, self.adapter::<$api>()?, |device: &WgpuDevice| {
                    init_setup::<$api>(device, Default::default());
                })
            };
        }
        #[cfg(feature = "adapters")]
        use burn::backend::wgpu::{WgpuDevice, graphics, init_setup};
        keep_freed();
        large_pages();
        match self.backend {
            #[cfg(feature = "flex")]
            BackendName::Flex => {
                Ok(job.run::<burn::backend::Autodiff<burn::backend::Flex>>(Default::default()))
            }
            #[cfg(feature = "ndarray")]
            BackendName::Ndarray => {
                Ok(job.run::<burn::backend::Autodiff<burn::backend::NdArray>>(Default::default()))
            }
            // There is no WebGPU implementation outside of browsers. Its shaders run on the system's graphics
            // API.
            #[cfg(feature = "wgpu")]
            BackendName::Wgpu => {
                run_on_adapter!(burn::backend::WebGpu, graphics::AutoGraphicsApi)
            }
            #[cfg(feature = "vulkan")]
            BackendName::Vulkan => run_on_adapter!(burn::backend::Vulkan, graphics::Vulkan),
            #[cfg(feature = "metal")]
            BackendName::Metal => run_on_adapter!(burn::backend::Metal, graphics::Metal),
            #[cfg(feature = "cuda")]
            BackendName::Cuda => {
                let number = self.device.unwrap_or(0);
                let device = burn::backend::cuda::CudaDevice::new(number);
                start(self, || touch::<burn::backend::Cuda>(&device))?;
                self.products.select(number)?;
                run_on!(burn::backend::Cuda, device, touch::<burn::backend::Cuda>)
            }
            #[cfg(feature = "rocm")]
            BackendName::Rocm => {
                let device = burn::backend::rocm::RocmDevice::new(self.device.unwrap_or(0));
                run_on!(burn::backend::Rocm, device, touch::<burn::backend::Rocm>)
            }
            #[allow(unreachable_patterns)]
            name => Err(name.not_compiled()),
        }
    }

    /// Runs `job` on the device with a backend that counts its work ([`emberlm_kernels::meter`]). A process runs either this
    /// or [`Self::run`].
    ///
    /// # Errors
    /// Returns an error if the device or its driver is missing, or the backend runs on the CPU.
    #[cfg(feature = "gpu")]
    pub fn run_metered<J: Job>(self, job: J) -> Result<J::Output, CliError> {
        #[allow(unused_macros)]
        macro_rules! run_on {
            ($backend:ident, $device:expr) => {{
                use emberlm_kernels::meter::$backend;
                let device: Device<$backend> = $device;
                start(self, || touch::<$backend>(&device))?;
                failure::exit_on_failure(self);
                ending::mark_gpu_used();
                Ok(job.run::<burn::backend::Autodiff<$backend>>(device))
            }};
        }
        #[cfg(feature = "adapters")]
        use burn::backend::wgpu::graphics;
        match self.backend {
            BackendName::Flex | BackendName::Ndarray => Err(self.without_kernels()),
            #[cfg(feature = "wgpu")]
            BackendName::Wgpu => run_on!(WebGpu, self.adapter::<graphics::AutoGraphicsApi>()?),
            #[cfg(feature = "vulkan")]
            BackendName::Vulkan => run_on!(Vulkan, self.adapter::<graphics::Vulkan>()?),
            #[cfg(feature = "metal")]
            BackendName::Metal => run_on!(Metal, self.adapter::<graphics::Metal>()?),
            #[cfg(feature = "cuda")]
            BackendName::Cuda => run_on!(
                Cuda,
                burn::backend::cuda::CudaDevice::new(self.device.unwrap_or(0))
            ),
            #[cfg(feature = "rocm")]
            BackendName::Rocm => run_on!(
                Rocm,
                burn::backend::rocm::RocmDevice::new(self.device.unwrap_or(0))
            ),
            #[allow(unreachable_patterns)]
            name => Err(name.not_compiled()),
        }
    }

    /// The error of a measurement of kernel launches on the CPU.
    pub fn without_kernels(self) -> CliError {
        CliError::usage(format!(
            "the {self} backend runs on the CPU, which launches no kernels"
        ))
        .hint(
            "choose a GPU backend, such as --backend vulkan, for which a software device suffices",
        )
    }

    /// Burn's handle of the selected device.
    #[cfg(feature = "adapters")]
    fn adapter<G: burn::backend::wgpu::graphics::GraphicsApi>(
        self,
    ) -> Result<burn::backend::wgpu::WgpuDevice, CliError> {
        let Some(number) = self.device else {
            return Ok(Default::default());
        };
        devices::adapters::by_number(G::backend(), number).ok_or_else(|| {
            self.backend
                .no_such_device(number, &devices::of(self.backend))
        })
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.backend.fmt(f)
    }
}
