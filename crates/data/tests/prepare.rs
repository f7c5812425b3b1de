//! `prepare`: shards, splits, chats, tokenizer files, interrupted runs and errors.

mod chat;
mod common;
mod conversations;
mod errors;
mod own_tokenizer;
mod ranks;
mod records;
mod shards;
mod splits;
mod unfinished;
