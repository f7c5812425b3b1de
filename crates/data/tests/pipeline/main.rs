//! What `prepare` does beyond tokenizing: splits, duplicates, and going on where it was broken off.

#![allow(clippy::unwrap_used)] // A test that unwraps fails, as it should.

#[path = "../common/mod.rs"]
mod common;

mod chat;
mod records;
mod splits;
mod unfinished;
