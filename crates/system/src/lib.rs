//! Operating system utilities: safe reads of untrusted files, atomic writes, and text and numbers for
//! terminals. This crate is below all others, so it also has the shared random number generator and
//! the record of benchmarks.
//!
//! | module | contents |
//! |---|---|
//! | [`mod@read`] | opens regular files only, and reads a bounded number of bytes |
//! | [`mod@file_kind`] | identifies files by their first bytes: archives, compressed files, UTF-16, Git LFS pointers, web pages and others |
//! | [`lines`] | reads a file line by line, with a maximum line length |
//! | [`mod@write`] | writes a file atomically: to a temporary file that is synced and renamed |
//! | [`fields`] | tables of the fields in files of other programs, with their treatment |
//! | [`measure`] | measured figures, interleaved comparisons and their record |
//! | [`mod@named`] | declares enums whose variants have names |
//! | [`mod@nearest`] | finds the best suggestion for a mistyped name |
//! | [`digits`] | formats numbers with thousands separators |
//! | [`random`] | reproducible random numbers |
//! | [`text`] | escapes control characters for terminals |
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
pub mod fields;
pub mod file_kind;
pub mod lines;
pub mod measure;
pub mod named;
pub mod nearest;
pub mod random;
pub mod read;
pub mod text;
pub mod write;
