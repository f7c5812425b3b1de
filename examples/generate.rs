//! Loads a model and continues a text:
//! `cargo run --release -p emberlm-examples --bin generate -- MODEL [PROMPT]`.
//!
//! MODEL is a run, a checkpoint, a Hugging Face directory or a GGUF file, as on the command line.

#![allow(clippy::print_stdout, clippy::print_stderr, clippy::disallowed_methods)]

use std::error::Error;
use std::io::{Write, stdout};

use emberlm_examples::Backend;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("usage: generate MODEL [PROMPT]")?;
    let prompt = args.next().unwrap_or_default();

    let mut model = emberlm::open::<Backend>(path)?;
    for warning in model.warnings() {
        eprintln!("{warning}");
    }
    // An iterator over the parts of the text. An error of the output ends the generation.
    for part in model.generate(prompt).max_new_tokens(200).parts()? {
        write!(stdout(), "{}", part?)?;
        stdout().flush()?;
    }
    println!();
    Ok(())
}
