//! The real server, for the tasks that test it: its process, HTTP requests, and a small model.
//!
//! Map: `process` starts and stops the server and reads its memory and open files, `http` sends requests
//! without a client library, so that requests can be malformed and connections cut, `events` parses streamed
//! answers, `percentile` summarizes their times, and `small_model` trains a model in seconds.

pub mod events;
pub mod http;
pub mod percentile;
pub mod process;
pub mod small_model;
