//! The real server, for the tasks that ask it: its process, requests over HTTP, and a small model for it.
//!
//! Map: `process` starts and ends it and reads what the system knows of it, `http` asks by hand, so that requests can be
//! broken and connections cut on purpose, `events` reads streamed answers, `small_model` makes a model in seconds.

pub mod events;
pub mod http;
pub mod process;
pub mod small_model;
