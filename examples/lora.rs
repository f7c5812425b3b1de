//! Trains a LoRA adapter of a model, and continues a text with it:
//! `cargo run --release -p emberlm-examples --bin lora -- MODEL DATASET RUN PROMPT`.

#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::error::Error;

use emberlm::prelude::*;
use emberlm_examples::Backend;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let mut next = || args.next().ok_or("usage: lora MODEL DATASET RUN PROMPT");
    let (base, dataset, run, prompt) = (next()?, next()?, next()?, next()?);

    let model = Model::open(&base)?;
    let mut config = presets::fine_tuning(model.config(), base.as_ref());
    config.data = DataConfig::of(dataset);
    config.train.steps = 20;
    config.train.accumulation = 4;
    config.train.adapter = Some(LoraConfig {
        rank: 4,
        ..LoraConfig::default()
    });
    Training::<Autodiff<Backend>>::new(config, &run)
        .fine_tuning(&model)?
        .say(|line| eprintln!("{line}"))
        .run()?;

    // The run holds the adapter only. It is added to the base model when it is opened.
    let mut adapted = OpenOptions::new().adapter(run).open::<Backend>(base)?;
    println!("{}", adapted.generate(prompt).max_new_tokens(20).text()?);
    Ok(())
}
