//! Samples from a trained model: `cargo run --release -p emberlm-examples --bin sample -- RUN [PROMPT]`.

#![allow(clippy::print_stdout, clippy::print_stderr, clippy::disallowed_methods)]
#![recursion_limit = "256"]

use std::error::Error;
use std::io::{Write, stdout};
use std::ops::ControlFlow;
use std::path::Path;

use emberlm_examples::Backend;
use emberlm_generate::{GenerateOptions, SamplerConfig, generate};
use emberlm_trainer::checkpoint::Checkpoint;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let run = args.next().ok_or("usage: sample RUN [PROMPT]")?;
    let prompt = args.next().unwrap_or_else(|| "\n".to_owned());

    let newest = Checkpoint::newest(Path::new(&run), |damaged| eprintln!("{damaged}"))?;
    let checkpoint = newest.ok_or("the run has no checkpoint yet")?;
    let decoder = checkpoint.decoder::<Backend>(&Default::default())?;
    let tokenizer = checkpoint
        .tokenizer()?
        .ok_or("the model has no tokenizer")?;

    let options = GenerateOptions {
        max_new_tokens: 200,
        chooser: SamplerConfig {
            temperature: 0.8,
            top_k: 20,
            ..SamplerConfig::default()
        }
        .into(),
        ..GenerateOptions::default()
    };
    let mut text = tokenizer.stream();
    generate(&decoder, &tokenizer.encode(&prompt)?, &options, |token| {
        // The text so far; a token may end within a character, whose rest comes with the next.
        let piece = text.push(token).unwrap_or_default();
        match write!(stdout(), "{piece}").and_then(|()| stdout().flush()) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    })?;
    println!();
    Ok(())
}
