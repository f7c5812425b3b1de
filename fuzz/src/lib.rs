//! Entry functions over arbitrary bytes for every reader of untrusted input, shared by the fuzzers in `fuzz_targets/` and the
//! bounded tests in `tests/`. An entry panics where a reader breaks a promise; the readers themselves must not.
//!
//! | module | input |
//! |---|---|
//! | [`tokenizer`] | tokenizer files and chat templates |
//! | [`inputs`] | texts and tables for `prepare` |
//! | [`datasets`] | shards, masks and manifests |
//! | [`model`] | configurations, weights and indices of weights |
//! | [`bodies`] | HTTP request bodies |
//! | [`events`], [`followed_events`] | a run's `events.jsonl` |
//! | [`mutate`] | mutations of files, the same for the same seed |
//! | [`bounded`] | runs an entry over files and mutations of them, within bounds of time and memory |
//!
//! ```
//! use emberlm_fuzz::bounded;
//!
//! let seeds = [("good".to_owned(), b"[1, 2, 3]".to_vec())];
//! // The entry reads a list that still has its end.
//! bounded::run(&seeds, 50, |name| name == "good", |bytes| bytes.ends_with(b"]"));
//! ```

#![recursion_limit = "256"]
// A finding is a panic.
#![allow(clippy::unwrap_used)]

pub mod bodies;
pub mod bounded;
pub mod datasets;
pub mod events;
pub mod followed_events;
pub mod inputs;
pub mod model;
pub mod mutate;
pub mod tokenizer;
