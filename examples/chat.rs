//! Answers each line of the standard input in one conversation:
//! `cargo run --release -p emberlm-examples --bin chat -- MODEL [TEMPLATE]`.
//!
//! TEMPLATE is `chatml`, `llama3` or the path of a Jinja template, for a model without its own.

#![allow(clippy::print_stdout, clippy::disallowed_methods)]

use std::error::Error;
use std::io::{Write, stdin, stdout};

use emberlm::prelude::*;
use emberlm_examples::Backend;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("usage: chat MODEL [TEMPLATE]")?;
    let mut options = OpenOptions::new();
    if let Some(template) = args.next() {
        options = options.chat_template(template);
    }
    let mut model = options.open::<Backend>(path)?;

    let mut messages = Vec::new();
    for question in stdin().lines() {
        messages.push(ChatMessage::user(question?));
        let answer = model.chat(&messages).stream(|part| {
            print!("{part}");
            let _ = stdout().flush();
        })?;
        println!();
        messages.push(ChatMessage::assistant(answer));
    }
    Ok(())
}
