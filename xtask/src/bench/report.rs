//! The tables of tasks.

pub use emberlm_system::measure::{Column, Table};
