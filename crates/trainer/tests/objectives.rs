//! Encoders and encoder–decoders in training: against PyTorch, and whole runs.

mod parity;
mod runs;
