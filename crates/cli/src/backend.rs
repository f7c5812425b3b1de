//! Which backend computes: the only place of the binary that names a concrete one.

pub mod devices;

use std::any::Any;
use std::fmt;
use std::panic::{self, AssertUnwindSafe};
use std::sync::OnceLock;

use burn::tensor::Device;
use clap::{Args, ValueEnum};
use emberlm_kernels::TrainingBackend;

use crate::error::CliError;

/// A backend's name on the command line. All are known, whichever are compiled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BackendName {
    /// Burn's fast CPU backend
    Flex,
    /// The CPU, through ndarray
    Ndarray,
    /// The system's graphics interface, with WebGPU's shaders
    Wgpu,
    /// GPUs through Vulkan
    Vulkan,
    /// Apple's GPUs
    Metal,
    /// NVIDIA's GPUs
    Cuda,
    /// AMD's GPUs
    Rocm,
}

/// The option `--backend`, for every command that computes.
#[derive(Clone, Copy, Debug, Args)]
pub struct BackendArg {
    #[arg(long, value_enum, value_name = "NAME", hide_possible_values = true, help = help())]
    backend: Option<BackendName>,
    /// Which of its devices, by the number in `emberlm devices` [default: the quickest by its driver]
    #[arg(long, value_name = "N")]
    device: Option<usize>,
}

/// Where to compute: a backend that is compiled in, and one of its devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The backend.
    pub backend: BackendName,
    /// The device's number; none for the one that its driver prefers.
    device: Option<usize>,
}

impl BackendArg {
    /// The backend asked for, or the first one compiled in, and the device asked for.
    ///
    /// # Errors
    /// It is not compiled in, or has no such device.
    pub fn choose(self) -> Result<Placement, CliError> {
        let backend = match (self.backend, COMPILED.first()) {
            (Some(name), _) if name.is_compiled() => name,
            (Some(name), _) => return Err(name.not_compiled()),
            (None, Some(&first)) => first,
            (None, None) => return Err(BackendName::Flex.not_compiled()),
        };
        let device = self.device;
        if let Some(number) = device.filter(|_| backend.numbers_devices()) {
            let found = devices::of(backend);
            if number >= found.len() {
                return Err(backend.no_such_device(number, &found));
            }
        }
        Ok(Placement { backend, device })
    }
}

/// What is compiled in, the default first.
const COMPILED: &[BackendName] = &[
    #[cfg(feature = "flex")]
    BackendName::Flex,
    #[cfg(feature = "ndarray")]
    BackendName::Ndarray,
    #[cfg(feature = "wgpu")]
    BackendName::Wgpu,
    #[cfg(feature = "vulkan")]
    BackendName::Vulkan,
    #[cfg(feature = "metal")]
    BackendName::Metal,
    #[cfg(feature = "cuda")]
    BackendName::Cuda,
    #[cfg(feature = "rocm")]
    BackendName::Rocm,
];

/// Something done on a backend that is known when the program runs.
pub trait Job {
    /// What comes out of it.
    type Output;

    /// Does it on `B`; what needs no gradients uses `B::InnerBackend`.
    fn run<B: TrainingBackend>(self, device: Device<B>) -> Self::Output;
}

impl Placement {
    /// The backend's name.
    pub fn name(self) -> &'static str {
        self.backend.name()
    }

    /// A backend's default device.
    pub fn of(backend: BackendName) -> Self {
        Self {
            backend,
            device: None,
        }
    }

    /// What its driver calls the device, where it is known which one it is.
    pub fn device_name(self) -> Option<String> {
        let mut listed = devices::of(self.backend);
        let number = self.device.or((listed.len() == 1).then_some(0))?;
        (number < listed.len()).then(|| listed.swap_remove(number).name)
    }

    /// The options that ask for it.
    pub fn options(self) -> Vec<String> {
        let mut words = vec!["--backend".to_owned(), self.name().to_owned()];
        if let Some(number) = self.device {
            words.extend(["--device".to_owned(), number.to_string()]);
        }
        words
    }

    /// Runs `job` on the device.
    ///
    /// # Errors
    /// This machine has no such device, or no driver for it.
    pub fn run<J: Job>(self, job: J) -> Result<J::Output, CliError> {
        /// Starts `$device` with `$start`, which panics where there is none, then runs the job.
        #[allow(unused_macros)]
        macro_rules! run_on {
            ($backend:ty, $device:expr, $start:expr) => {{
                let device: Device<$backend> = $device;
                start(self.backend, || $start(&device))?;
                Ok(job.run::<burn::backend::Autodiff<$backend>>(device))
            }};
        }
        /// The same for a graphics interface.
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
        match self.backend {
            #[cfg(feature = "flex")]
            BackendName::Flex => {
                Ok(job.run::<burn::backend::Autodiff<burn::backend::Flex>>(Default::default()))
            }
            #[cfg(feature = "ndarray")]
            BackendName::Ndarray => {
                Ok(job.run::<burn::backend::Autodiff<burn::backend::NdArray>>(Default::default()))
            }
            // Outside of browsers there is no WebGPU to ask for: its shaders run on what the system has.
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
                let device = burn::backend::cuda::CudaDevice::new(self.device.unwrap_or(0));
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

    /// The adapter of the device's number.
    #[cfg(feature = "adapters")]
    fn adapter<G: burn::backend::wgpu::graphics::GraphicsApi>(
        self,
    ) -> Result<burn::backend::wgpu::WgpuDevice, CliError> {
        let Some(number) = self.device else {
            return Ok(Default::default());
        };
        devices::adapters::place(G::backend(), number).ok_or_else(|| {
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

impl BackendName {
    /// Its name, which is its Cargo feature's too.
    pub fn name(self) -> &'static str {
        match self {
            Self::Flex => "flex",
            Self::Ndarray => "ndarray",
            Self::Wgpu => "wgpu",
            Self::Vulkan => "vulkan",
            Self::Metal => "metal",
            Self::Cuda => "cuda",
            Self::Rocm => "rocm",
        }
    }

    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::value_variants().iter().copied()
    }

    /// Whether it is compiled in.
    pub fn is_compiled(self) -> bool {
        COMPILED.contains(&self)
    }

    /// Whether [`devices::of`] knows all its devices.
    fn numbers_devices(self) -> bool {
        self != Self::Rocm
    }

    fn no_such_device(self, number: usize, found: &[devices::DeviceInfo]) -> CliError {
        let names: Vec<String> = found
            .iter()
            .map(|device| format!("{} is {}", device.number, device.name))
            .collect();
        let found = match names.is_empty() {
            true => "it finds none".to_owned(),
            false => names.join(", "),
        };
        CliError::usage(format!(
            "the {self} backend has no device {number}: {found}"
        ))
        .hint("list all devices: emberlm devices")
    }

    fn not_compiled(self) -> CliError {
        CliError::usage(format!("this binary was built without the {self} backend"))
            .hint(format!(
                "build with: cargo run --release --features {self} -- …"
            ))
            .hint(format!(
                "or choose one that is there: --backend {}",
                listed(COMPILED)
            ))
    }
}

impl fmt::Display for BackendName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

fn listed(names: &[BackendName]) -> String {
    let names: Vec<&str> = names.iter().map(|name| name.name()).collect();
    names.join("|")
}

fn help() -> String {
    format!(
        "Where to compute: {}; this binary has {} [default: {}]",
        listed(BackendName::value_variants()),
        listed(COMPILED),
        COMPILED.first().map_or("none", |first| first.name()),
    )
}

/// Starts the process's one GPU with `start`, the first time only.
///
/// Where a machine has no such device or driver, Burn's runtimes panic: here that becomes an error.
fn start(name: BackendName, start: impl FnOnce()) -> Result<(), CliError> {
    static STARTED: OnceLock<Result<(), String>> = OnceLock::new();
    STARTED
        .get_or_init(|| quietly(start))
        .clone()
        .map_err(|reason| {
            CliError::new(format!(
                "the {name} backend finds no device it can use: {reason}"
            ))
            .hint("see what this machine has: emberlm devices")
            .hint("check that the machine's GPU driver is installed")
            .hint("or compute on the CPU: --backend flex")
        })
}

/// Makes the runtime open its device.
#[cfg(any(feature = "cuda", feature = "rocm"))]
fn touch<B: burn::tensor::backend::Backend>(device: &B::Device) {
    if let Err(error) = B::sync(device) {
        panic::panic_any(error.to_string());
    }
}

/// What `run` makes, or why it panicked, which nobody else is told.
pub fn quietly<R>(run: impl FnOnce() -> R) -> Result<R, String> {
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    let result = panic::catch_unwind(AssertUnwindSafe(run));
    panic::set_hook(hook);
    result.map_err(|payload| reason(payload.as_ref()))
}

fn reason(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
    let text = text.unwrap_or("its runtime gave no reason");
    // What follows the first brace is a runtime's own data.
    let said = text.split('{').next().unwrap_or(text);
    said.trim_end().to_owned()
}
