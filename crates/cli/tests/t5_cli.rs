//! Development target.
#![allow(clippy::unwrap_used, missing_docs)]
mod cli { pub mod encoder_decoder; }
