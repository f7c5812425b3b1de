//! Ranks over TCP.
//!
//! | module | contents |
//! |---|---|
//! | `rendezvous` | the search of the ranks for each other |
//! | `greeting` | the messages of that |
//! | `links` | connections of this rank with the others |
//! | `job` | membership and exchanges |

mod greeting;
mod job;
mod links;
mod rendezvous;
#[cfg(test)]
mod tests;

pub use job::{TcpJob, TcpTransport};
pub use rendezvous::TcpJoinError;
