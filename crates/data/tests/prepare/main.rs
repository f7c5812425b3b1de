//! `prepare`: shards, splits, chats, tokenizers of files, interrupted runs and refusals.

#![allow(clippy::unwrap_used)] // A test that unwraps fails, as it should.

mod chat;
mod common;
mod own_tokenizer;
mod records;
mod refusals;
mod shards;
mod splits;
mod unfinished;
