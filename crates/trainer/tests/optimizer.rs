//! The optimizers: ten updates compared with PyTorch, bit-exact restoration, and parameter groups.

mod burn_trait;
mod fixture;
mod groups;
mod parts;
mod restore;
mod size;
mod updates;
mod variants;
