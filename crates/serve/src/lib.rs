//! What emberlm shows and answers over HTTP.
//!
//! | file | what it holds |
//! |---|---|
//! | `server` | [`Server`]: an address that is listened on, until the program is told to stop |
//! | [`hosts`] | the hosts that a server answers for, and the pages that may ask it |
//! | `connection` | how long a client may read nothing, and which connection gives way to a new one |
//! | [`api`] | what a served model answers: OpenAI's API and the page's questions |
//! | [`model`], [`worker`] | a model that is served, and the thread that runs it |
//! | [`grammars`] | the grammars that texts are constrained to: vetted, compiled and cached |
//! | [`readable`] | tokens as text that may be shown, for the terminal too: only here both are known |
//! | [`limits`] | what a client may ask for |
//! | `metrics` | what is counted |
//! | `playground` | the page at `/` |
//! | `asset` | the pages' files, inside of the program, and what a browser may do with them |
//! | [`watch`] | a live page of runs |
//! | [`tail`] | what was added to a file of lines |
//! | `machine` | how busy this machine is |

pub mod api;
mod asset;
mod connection;
pub mod grammars;
pub mod hosts;
pub mod limits;
mod machine;
mod metrics;
pub mod model;
mod playground;
pub mod readable;
mod server;
pub mod tail;
pub mod watch;
pub mod worker;

pub use hosts::Hosts;
pub use limits::Limits;
pub use model::{Card, ServedModel};
pub use readable::Readable;
pub use server::{Server, ServerError};
pub use worker::{Replacer, Worker};
