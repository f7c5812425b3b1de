//! Objectives other than next-token prediction: against PyTorch and TRL, and whole runs.

mod grpo;
mod parity;
mod preferences;
mod runs;
