//! Matrix products by cuBLASLt, NVIDIA's library, which uses the tensor cores of Hopper better than CubeK's kernels.
//!
//! The library is loaded while the program runs: without it, and on other devices, products are those of `super::matmul`.
//! Not run on hardware yet. On each device, the first product is preceded by products that are compared with the CPU's
//! (`self_test`); after an error or a wrong product, the device does not use the library.
//!
//! CubeCL's stream of kernels is private, so a product starts when all work of the device is complete, and the host waits for
//! its result. Only large products save more time than that costs (`task`).
//!
//! | module | contents |
//! |---|---|
//! | `products` | the library of each device, or the reason why it is not used |
//! | `task` | sizes and memory layouts of a product |
//! | `library` | calls of cuBLASLt |
//! | `self_test` | the comparison with the CPU |

#[cfg(feature = "cuda")]
mod library;
#[cfg(feature = "cuda")]
mod products;
#[cfg(feature = "cuda")]
mod self_test;
mod task;

#[cfg(feature = "cuda")]
pub use products::{ProductLibrary, disable, library_of};

#[cfg(feature = "cuda")]
pub(super) use products::multiply;
