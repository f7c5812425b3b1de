//! Which backend computes: the only place of the binary that names a concrete one.

use std::fmt;

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
}

impl BackendArg {
    /// The backend asked for, or the first one compiled in.
    ///
    /// # Errors
    /// It is not compiled in.
    pub fn choose(self) -> Result<BackendName, CliError> {
        match (self.backend, COMPILED.first()) {
            (Some(name), _) if COMPILED.contains(&name) => Ok(name),
            (Some(name), _) => Err(name.not_compiled()),
            (None, Some(&first)) => Ok(first),
            (None, None) => Err(BackendName::Flex.not_compiled()),
        }
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

    /// Runs `job` on this backend's default device.
    ///
    /// # Errors
    /// The backend is not compiled in, or this machine has no device for it.
    pub fn run<J: Job>(self, job: J) -> Result<J::Output, CliError> {
        /// Starts the device with `$start`, which panics where there is none, then runs the job.
        #[allow(unused_macros)]
        macro_rules! run_on {
            ($backend:ty, $start:expr) => {{
                let device = Device::<$backend>::default();
                device::start(self, || $start(&device))?;
                Ok(job.run::<burn::backend::Autodiff<$backend>>(device))
            }};
        }
        #[cfg(any(feature = "wgpu", feature = "vulkan", feature = "metal"))]
        use burn::backend::wgpu::{WgpuDevice, graphics, init_setup};
        match self {
            #[cfg(feature = "flex")]
            Self::Flex => run_on!(burn::backend::Flex, |_| ()),
            #[cfg(feature = "ndarray")]
            Self::Ndarray => run_on!(burn::backend::NdArray, |_| ()),
            // Outside of browsers there is no WebGPU to ask for: its shaders run on what the system has.
            #[cfg(feature = "wgpu")]
            Self::Wgpu => run_on!(burn::backend::WebGpu, |device: &WgpuDevice| {
                init_setup::<graphics::AutoGraphicsApi>(device, Default::default());
            }),
            #[cfg(feature = "vulkan")]
            Self::Vulkan => run_on!(burn::backend::Vulkan, |device: &WgpuDevice| {
                init_setup::<graphics::Vulkan>(device, Default::default());
            }),
            #[cfg(feature = "metal")]
            Self::Metal => run_on!(burn::backend::Metal, |device: &WgpuDevice| {
                init_setup::<graphics::Metal>(device, Default::default());
            }),
            #[cfg(feature = "cuda")]
            Self::Cuda => run_on!(burn::backend::Cuda, device::touch::<burn::backend::Cuda>),
            #[cfg(feature = "rocm")]
            Self::Rocm => run_on!(burn::backend::Rocm, device::touch::<burn::backend::Rocm>),
            #[allow(unreachable_patterns)]
            name => Err(name.not_compiled()),
        }
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

/// Starting a device.
mod device {
    use std::any::Any;
    use std::panic::{self, AssertUnwindSafe};
    use std::sync::OnceLock;

    use super::BackendName;
    use crate::error::CliError;

    /// Starts the process's one device with `start`, the first time only.
    ///
    /// Where a machine has no such device or driver, Burn's runtimes panic: here that becomes an error.
    pub fn start(name: BackendName, start: impl FnOnce()) -> Result<(), CliError> {
        static STARTED: OnceLock<Result<(), String>> = OnceLock::new();
        let started = STARTED.get_or_init(|| {
            let hook = panic::take_hook();
            panic::set_hook(Box::new(|_| {}));
            let result = panic::catch_unwind(AssertUnwindSafe(start));
            panic::set_hook(hook);
            result.map_err(|payload| reason(payload.as_ref()))
        });
        started.clone().map_err(|reason| {
            CliError::new(format!(
                "the {name} backend finds no device it can use: {reason}"
            ))
            .hint("check that the machine's GPU driver is installed")
            .hint("or compute on the CPU: --backend flex")
        })
    }

    /// Makes the runtime open its device.
    #[cfg(any(feature = "cuda", feature = "rocm"))]
    pub fn touch<B: burn::tensor::backend::Backend>(device: &B::Device) {
        if let Err(error) = B::sync(device) {
            panic::panic_any(error.to_string());
        }
    }

    fn reason(payload: &(dyn Any + Send)) -> String {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
        let text = text.unwrap_or("its runtime gave no reason");
        // What follows the first brace is a runtime's own data.
        let said = text.split('{').next().unwrap_or(text);
        said.trim_end().to_owned()
    }
}
