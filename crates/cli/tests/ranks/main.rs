//! Training on several ranks, which find each other by the variables of `torchrun`. In `cargo xtask test --mpi`, `mpirun`
//! starts them.

#![allow(clippy::unwrap_used, clippy::expect_used)]
#![allow(clippy::print_stdout, clippy::print_stderr)]
#![allow(dead_code, reason = "the helpers of the tests of the command line")]

mod checkpoints;
mod evaluation;
mod faults;
mod launch;
mod memory;
mod preparation;
mod refusals;
mod results;
mod rewards;
mod soak;
#[path = "../cli/support/mod.rs"]
mod support;
mod unlike_devices;
