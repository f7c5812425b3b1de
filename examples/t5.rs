//! Generates the most probable targets of a source by beam search, with an encoder–decoder:
//! `cargo run --release -p emberlm-examples --bin t5 -- MODEL SOURCE`.
//!
//! Without a search, `emberlm::open(MODEL)?.generate(SOURCE).text()?` is the target, as for every model.

#![allow(clippy::print_stdout)]

use std::error::Error;

use emberlm::checkpoint::Model;
use emberlm::generate::{BeamOptions, beam_search};
use emberlm_examples::Backend;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("usage: t5 MODEL SOURCE")?;
    let source = args.next().ok_or("usage: t5 MODEL SOURCE")?;

    let model = Model::open(path)?;
    let tokenizer = model.require_tokenizer()?;
    let weights = model.decoder::<Backend>(&Default::default())?;
    let options = BeamOptions {
        beams: 4,
        length_penalty: 1.0,
        max_new_tokens: 20,
        stop_tokens: model.stop_tokens(Some(&tokenizer)),
    };
    let source = model.prompt(&tokenizer, &source)?;
    for target in beam_search(&weights, &source, &options)? {
        let text = tokenizer.decode(&target.tokens)?;
        println!("{:.4}  {text}", target.score);
    }
    Ok(())
}
