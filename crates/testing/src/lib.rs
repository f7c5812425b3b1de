//! What the tests of several crates share: mutated files, within bounds of time and memory. Only a dev-dependency.
//!
//! | module | contents |
//! |---|---|
//! | [`mutate`] | files made of other files, the same for the same seed |
//! | [`bounded`] | runs an entry function over files and mutations of them |
//!
//! ```
//! use emberlm_testing::bounded;
//!
//! let seeds = [("good".to_owned(), b"[1, 2, 3]".to_vec())];
//! // What is read here is a list that still has its end.
//! bounded::run(&seeds, 50, |name| name == "good", |bytes| bytes.ends_with(b"]"));
//! ```

pub mod bounded;
pub mod mutate;
