//! The optimizers: ten updates against PyTorch's, what they carry restored to the bit, and their groups.

mod burn_trait;
mod fixture;
mod groups;
mod parts;
mod restore;
mod updates;
