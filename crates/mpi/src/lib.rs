//! Data-parallel training over MPI.
//!
//! A launcher (`mpirun`, `srun`) starts one process per rank. [`Launch`] detects the launcher. `MpiJob` joins the
//! job, and its `transport` exchanges the trainer's gradients.
//!
//! | item | purpose |
//! |---|---|
//! | [`Launch`] | the job that a launcher started this process for, from the environment |
//! | `MpiJob` | this process's membership of the job: rank, host, end, abort |
//! | `MpiTransport` | the exchanges of [`emberlm_trainer::OrderedPeers`] and [`emberlm_trainer::DeviceMemoryPeers`] |
//!
//! `MpiJob` and `MpiTransport` need the feature `mpi`, which links the system's MPI library. Without it, this crate
//! only detects launchers.
//!
//! ```
//! use emberlm_mpi::Launch;
//!
//! let launch = Launch::from_variables(|name| (name == "OMPI_COMM_WORLD_SIZE").then(|| "4".to_owned()));
//! assert_eq!(launch.map(|launch| launch.to_string()).as_deref(), Some("OMPI_COMM_WORLD_SIZE = 4"));
//! assert_eq!(Launch::from_variables(|_| None), None);
//! ```

#[cfg(feature = "mpi")]
mod job;
mod launch;
#[cfg(feature = "mpi")]
mod transport;

#[cfg(feature = "mpi")]
pub use job::{JoinError, MpiJob};
pub use launch::Launch;
#[cfg(feature = "mpi")]
pub use transport::MpiTransport;
