//! `prepare`: shards, splits, chats, tokenizer files, interrupted runs and errors.

mod chat;
mod common;
mod own_tokenizer;
mod records;
mod refusals;
mod shards;
mod splits;
mod unfinished;
