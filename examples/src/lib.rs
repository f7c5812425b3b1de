//! The backend of the examples, selected by a Cargo feature. The default is `flex`; for another, pass
//! `--no-default-features --features vulkan`, for example.

use cfg_if::cfg_if;

cfg_if! {
    if #[cfg(feature = "flex")] {
        /// The backend of the examples.
        pub type Backend = emberlm::burn::backend::Flex;
    } else if #[cfg(feature = "ndarray")] {
        /// The backend of the examples.
        pub type Backend = emberlm::burn::backend::NdArray;
    } else if #[cfg(feature = "vulkan")] {
        /// The backend of the examples.
        pub type Backend = emberlm::burn::backend::Vulkan;
    } else if #[cfg(feature = "wgpu")] {
        /// The backend of the examples.
        pub type Backend = emberlm::burn::backend::WebGpu;
    } else if #[cfg(feature = "metal")] {
        /// The backend of the examples.
        pub type Backend = emberlm::burn::backend::Metal;
    } else if #[cfg(feature = "cuda")] {
        /// The backend of the examples.
        pub type Backend = emberlm::burn::backend::Cuda;
    } else if #[cfg(feature = "rocm")] {
        /// The backend of the examples.
        pub type Backend = emberlm::burn::backend::Rocm;
    } else {
        compile_error!("the examples need a backend: --features flex, ndarray, vulkan, …");
    }
}
