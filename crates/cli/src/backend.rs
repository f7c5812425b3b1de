//! Selection of the compute backend by name.
//!
//! A [`Placement`] is a backend and one of its devices, with the library of its products. Only [`Placement`] and [`devices`]
//! name concrete backends in this binary. `start` opens a GPU, `cache` configures the runtime's caches, and `quiet` and
//! `failure` turn the runtime's panics into errors.

#[cfg(feature = "gpu")]
mod cache;
pub mod devices;
#[cfg(feature = "gpu")]
mod failure;
pub mod machine;
mod placement;
mod products;
mod quiet;
#[cfg(feature = "gpu")]
mod start;

use std::fmt;

use burn::tensor::Device;
use clap::{Args, ValueEnum};
use emberlm_kernels::TrainingBackend;

pub use self::placement::Placement;
use self::products::Products;
pub use self::quiet::quietly;
use crate::error::CliError;

emberlm_system::named! {
    /// A backend, by its name on the command line and its Cargo feature. All are known, whichever are compiled in.
    #[derive(ValueEnum)]
    pub enum BackendName {
        /// Burn's fast CPU backend
        Flex = "flex",
        /// The CPU, through ndarray
        Ndarray = "ndarray",
        /// The system's graphics interface, with WebGPU's shaders
        Wgpu = "wgpu",
        /// GPUs through Vulkan
        Vulkan = "vulkan",
        /// Apple's GPUs
        Metal = "metal",
        /// NVIDIA's GPUs
        Cuda = "cuda",
        /// AMD's GPUs
        Rocm = "rocm",
    }
}

/// The option `--backend` and those of its device, for every command that computes.
#[derive(Clone, Copy, Debug, Args)]
pub struct BackendArg {
    #[arg(long, value_enum, value_name = "NAME", hide_possible_values = true, help = help(), help_heading = "Backend")]
    backend: Option<BackendName>,
    /// The device's number in `emberlm devices` [default: the fastest one according to its driver]
    #[arg(long, value_name = "N", help_heading = "Backend")]
    device: Option<usize>,
    /// The kernels of large matrix products on CUDA devices
    #[arg(
        long,
        value_enum,
        value_name = "LIBRARY",
        default_value_t,
        help_heading = "Backend"
    )]
    products: Products,
}

impl BackendArg {
    /// Returns the requested backend and device. The default is the first compiled-in backend.
    ///
    /// # Errors
    /// Returns an error if the backend is not compiled in or has no such device.
    pub fn choose(self) -> Result<Placement, CliError> {
        let backend = match (self.backend, COMPILED.first()) {
            (Some(name), _) if name.is_compiled() => name,
            (Some(name), _) => return Err(name.not_compiled()),
            (None, Some(&first)) => first,
            (None, None) => return Err(BackendName::Flex.not_compiled()),
        };
        let Self {
            device, products, ..
        } = self;
        products.check(backend)?;
        if let Some(number) = device.filter(|_| backend.numbers_devices()) {
            let found = devices::of(backend);
            if number >= found.len() {
                return Err(backend.no_such_device(number, &found));
            }
        }
        Ok(Placement {
            backend,
            device,
            products,
        })
    }
}

/// Compiled-in backends, the default first.
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

/// Work that is generic over the backend, which is only known at run time.
pub trait Job {
    /// The result of the job.
    type Output;

    /// Runs the job on `B`. Jobs without gradients use `B::InnerBackend`.
    fn run<B: TrainingBackend>(self, device: Device<B>) -> Self::Output;
}

impl BackendName {
    /// All backends, including those that are not compiled in.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::value_variants().iter().copied()
    }

    /// Returns true if the backend is compiled in.
    pub fn is_compiled(self) -> bool {
        COMPILED.contains(&self)
    }

    /// Returns true if [`devices::of`] lists every device of the backend.
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
        "The backend: {}; this binary has {} [default: {}]",
        listed(BackendName::value_variants()),
        listed(COMPILED),
        COMPILED.first().map_or("none", |first| first.name()),
    )
}
