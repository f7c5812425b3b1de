//! Loads a model and continues a text:
//! `cargo run --release -p emberlm-examples --bin generate -- MODEL [PROMPT]`.
//!
//! MODEL is a run, a checkpoint or a Hugging Face directory, as on the command line.

#![allow(clippy::print_stdout, clippy::print_stderr, clippy::disallowed_methods)]
#![recursion_limit = "256"]

use std::error::Error;
use std::io::{Write, stdout};
use std::ops::ControlFlow;
use std::path::Path;

use emberlm::generate::generate;
use emberlm::{GenerateOptions, Model, SamplerConfig, StopStrings, TextStream};
use emberlm_examples::Backend;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("usage: generate MODEL [PROMPT]")?;
    let prompt = args.next().unwrap_or_else(|| "\n".to_owned());

    let model = Model::open(Path::new(&path))?;
    for damaged in model.passed_over() {
        eprintln!("{damaged}; using the previous one");
    }
    let tokenizer = model.require_tokenizer()?;
    let decoder = model.decoder::<Backend>(&Default::default())?;

    let options = GenerateOptions {
        max_new_tokens: 200,
        stop_tokens: model.stop_tokens(Some(&tokenizer)),
        chooser: SamplerConfig {
            temperature: 0.8,
            top_k: 20,
            ..SamplerConfig::default()
        }
        .into(),
        ..GenerateOptions::default()
    };
    let prompt = tokenizer.encode(&prompt)?;
    let mut stream = TextStream::after(&tokenizer, &prompt, StopStrings::default());
    let show = |text: &str| write!(stdout(), "{text}").and_then(|()| stdout().flush());
    generate(&decoder, &prompt, &options, |id| {
        match show(&stream.push(id).visible) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    })?;
    show(&stream.finish().visible)?;
    println!();
    Ok(())
}
