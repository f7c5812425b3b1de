//! A meter of the work that a GPU is given: kernel launches, synchronizations, bytes, and matrix products.
//!
//! [`Metered`] is a CubeCL runtime that counts what passes through it and leaves the work to another runtime. The counts
//! depend on the program, the model and the sizes, hardly on the device. The cost of a training step can therefore be
//! compared, and bounded by tests, on a software device. On CUDA, products that cuBLASLt would compute are CubeCL's.
//!
//! | module | contents |
//! |---|---|
//! | `backends` | the metered form of each GPU backend |
//! | `runtime` | the runtime, and its compiler, which sees the buffers that a kernel writes |
//! | `server` | the server, which sees launches, reads and synchronizations |
//! | `counts` | the counters of the process |

mod backends;
mod counts;
mod runtime;
mod server;

pub use backends::*;
pub(super) use counts::record_product;
pub use counts::{Costs, KernelCosts, ProductCosts, measure};
pub use runtime::{Meterable, Metered};
