//! Ranks over MPI.

mod job;
mod transport;

pub use job::{MpiJob, MpiJoinError};
pub use transport::MpiTransport;
