//! What emberlm shows and answers over HTTP.
//!
//! | file | what it holds |
//! |---|---|
//! | `server` | [`Server`]: an address that is listened on, until the program is told to stop |
//! | `asset` | the pages' files, inside of the program, and what a browser may do with them |
//! | [`watch`] | a live page of runs |
//! | [`tail`] | what was added to a file of lines |
//! | `machine` | how busy this machine is |

mod asset;
mod machine;
mod server;
pub mod tail;
pub mod watch;

pub use server::{Server, ServerError};
