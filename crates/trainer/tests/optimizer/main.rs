//! The optimizers: ten updates against PyTorch's, what they carry restored to the bit, and their groups.

#![allow(clippy::print_stdout)]
#![recursion_limit = "256"]
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod burn_trait;
mod fixture;
mod groups;
mod parts;
mod restore;
mod updates;
