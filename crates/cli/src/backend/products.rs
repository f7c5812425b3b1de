//! The option `--products`: the library of large matrix products on CUDA devices.

use clap::ValueEnum;

use super::BackendName;
use crate::error::CliError;

emberlm_system::named! {
    /// The kernels of large matrix products on CUDA devices.
    #[derive(Default, ValueEnum)]
    pub enum Products {
        /// cuBLASLt if it is installed and agrees with the CPU
        #[default]
        Auto = "auto",
        /// CubeCL's kernels
        Cubecl = "cubecl",
        /// cuBLASLt
        Cublas = "cublas",
    }
}

impl Products {
    /// Checks that `backend` can use the library.
    ///
    /// # Errors
    /// cuBLASLt is selected, and the backend is another one than CUDA.
    pub fn check(self, backend: BackendName) -> Result<(), CliError> {
        match self == Self::Cublas && backend != BackendName::Cuda {
            true => Err(not_usable(&format!(
                "the {backend} backend does not use NVIDIA's libraries"
            ))
            .hint("or use an NVIDIA GPU: --backend cuda")),
            false => Ok(()),
        }
    }

    /// Applies the choice to this process, before its first product on CUDA device `number`.
    ///
    /// # Errors
    /// cuBLASLt is selected, and is missing or wrong.
    #[cfg(feature = "cuda")]
    pub fn select(self, number: usize) -> Result<(), CliError> {
        use emberlm_kernels::cublas::{ProductLibrary, disable, library_of};

        match self {
            Self::Auto => {}
            Self::Cubecl => disable(),
            Self::Cublas => {
                if let ProductLibrary::CubeCl { reason } = library_of(number) {
                    return Err(not_usable(&reason));
                }
            }
        }
        Ok(())
    }
}

fn not_usable(reason: &str) -> CliError {
    CliError::usage(format!(
        "--products must be auto or cubecl here (got cublas): {reason}"
    ))
    .hint("leave out --products, or multiply by CubeCL's kernels: --products cubecl")
}
