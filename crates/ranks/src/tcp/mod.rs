//! Ranks over TCP.
//!
//! | module | contents |
//! |---|---|
//! | `launch` | the variables that say where rank 0 is |
//! | `rendezvous` | how the ranks find each other |
//! | `greeting` | the messages of that |
//! | `links` | connections of this rank with the others |
//! | `job` | membership and exchanges |

mod greeting;
mod job;
mod launch;
mod links;
mod rendezvous;
#[cfg(test)]
mod tests;

pub use job::{TcpJob, TcpTransport};
pub use launch::TcpLaunch;
pub use rendezvous::TcpJoinError;
