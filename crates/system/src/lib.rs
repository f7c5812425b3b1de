//! The operating system's edges: files that somebody else may have put there, files that are written whole or not at
//! all, and text and numbers that are shown in a terminal. Below all other crates, it also has the shared generator of random
//! numbers.
//!
//! | module | contents |
//! |---|---|
//! | [`mod@read`] | opens regular files only, and reads a bounded number of bytes |
//! | [`lines`] | reads a file line by line, with a bound on a line's length |
//! | [`mod@write`] | writes a file beside its place, syncs it and renames it |
//! | [`mod@nearest`] | finds the name that a mistyped one most resembles |
//! | [`digits`] | writes numbers with their thousands apart |
//! | [`random`] | reproducible random numbers |
//! | [`text`] | makes control characters of a text harmless |
//!
//! ```
//! # fn main() -> std::io::Result<()> {
//! let folder = tempfile::tempdir()?;
//! let file = folder.path().join("config.json");
//! emberlm_system::write::write_whole(&file, b"{}")?;
//! assert_eq!(emberlm_system::read::read_text(&file, 1024)?, "{}");
//! assert_eq!(emberlm_system::text::escaped("a\u{1b}[2J"), "a\\u{1b}[2J");
//! # Ok(())
//! # }
//! ```

pub mod digits;
pub mod lines;
pub mod nearest;
pub mod random;
pub mod read;
pub mod text;
pub mod write;
