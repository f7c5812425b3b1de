//! Entry functions that feed arbitrary bytes to every reader of untrusted input, shared by the fuzzers in
//! `fuzz_targets/` and the bounded tests in `tests/`. An entry panics if a reader violates its contract. The
//! readers themselves must not panic.
//!
//! | module | input |
//! |---|---|
//! | [`tokenizer`] | tokenizer files and chat templates |
//! | [`inputs`] | texts and tables for `prepare` |
//! | [`datasets`] | shards, masks and manifests |
//! | [`model`] | configurations, weights and indices of weights |
//! | [`adapter`] | the settings and weights of adapters |
//! | [`bodies`] | HTTP request bodies |
//! | [`events`], [`followed_events`] | a run's `events.jsonl` |
//! | [`mutate`] | reproducible mutations of files |
//! | [`bounded`] | runs an entry on files and mutations of them, within limits on time and memory |
//!
//! ```
//! use emberlm_fuzz::bounded;
//!
//! let seeds = [("good".to_owned(), b"[1, 2, 3]".to_vec())];
//! // This entry accepts a list that still has its closing bracket.
//! bounded::run(&seeds, 50, |name| name == "good", |bytes| bytes.ends_with(b"]"));
//! ```

#![recursion_limit = "256"]
// Findings are reported as panics.
#![allow(clippy::unwrap_used)]

pub mod adapter;
pub mod bodies;
pub mod bounded;
pub mod datasets;
pub mod events;
pub mod followed_events;
pub mod inputs;
pub mod model;
pub mod mutate;
pub mod tokenizer;
