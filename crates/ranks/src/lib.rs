//! Data-parallel training on several ranks.
//!
//! A launcher starts one process per rank. [`Launch`] detects it, [`Job`] joins the others, and its [`JobTransport`]
//! exchanges the trainer's gradients.
//!
//! | item | purpose |
//! |---|---|
//! | [`Launch`] | the job that a launcher started this process for, from the environment |
//! | [`Job`] | this process's membership of the job: rank, host, end, abort |
//! | [`JobTransport`] | the exchanges of [`emberlm_trainer::OrderedPeers`] |
//! | `tcp` | ranks that find each other by the variables of `torchrun` and connect to each other |
//! | `mpi` | ranks of `mpirun` and `srun`, over the system's MPI library, behind the feature `mpi` |
//! | `nccl` | exchanges between NVIDIA's GPUs, behind the feature `cuda` |
//!
//! ```
//! use emberlm_ranks::Launch;
//!
//! let variables = [("RANK", "1"), ("WORLD_SIZE", "4"), ("MASTER_ADDR", "node7")];
//! let launch = Launch::from_variables(|name| {
//!     variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
//! })?;
//! assert_eq!(launch.map(|launch| launch.to_string()).as_deref(), Some("rank 1 of 4, at node7:29500"));
//! assert_eq!(Launch::from_variables(|_| None)?, None);
//! # Ok::<(), emberlm_ranks::LaunchError>(())
//! ```

mod job;
mod launch;
#[cfg(feature = "mpi")]
mod mpi;
#[cfg(feature = "cuda")]
mod nccl;
mod tcp;

pub use job::{DeviceExchangeError, Job, JobTransport, JoinError};
pub use launch::{Launch, LaunchError, MpiLaunch, TcpLaunch};
pub use tcp::TcpJoinError;
