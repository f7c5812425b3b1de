//! Objectives other than next-token prediction: against PyTorch and TRL, and whole runs.

mod adapters;
mod fixture;
mod grpo;
mod grpo_parity;
mod parity;
mod preferences;
mod runs;
mod whole_run;
