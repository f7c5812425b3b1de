//! `prepare`: shards, splits, chats, tokenizers of files, interrupted runs and refusals.

mod chat;
mod common;
mod own_tokenizer;
mod records;
mod refusals;
mod shards;
mod splits;
mod unfinished;
