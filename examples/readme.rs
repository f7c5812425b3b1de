//! The program of docs/guides/library.md: `cargo run --release -p emberlm-examples --bin readme` writes the folders
//! `counting` and `run`.

#![allow(clippy::print_stdout)]

use emberlm::prelude::*;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // A vocabulary of 100 words, and documents that count from each of them.
    let words = (0..100).map(|number| number.to_string());
    let tokenizer = Tokenizer::from_words(words, None)?;
    let count = |from: u32| -> Vec<u32> { (from..from + 50).map(|id| id % 100).collect() };
    let (documents, val) = ((0..200).map(count), (200..220).map(count));
    let options = TokenDatasetOptions::default();
    write_token_dataset("counting", &tokenizer, documents, val, &options)?;

    let mut config = presets::run("pocket-tales")?;
    config.data = DataConfig::of("counting");
    config.train.steps = 60;
    config.train.evaluation.sample_tokens = 0;
    config.model.seq_len = 32;
    Training::<Autodiff<Flex>>::new(config, "run")
        .say(|line| println!("{line}"))
        .run()?;

    let mut model = emberlm::open::<Flex>("run")?;
    let text = model.generate("1 2 3").max_new_tokens(8).temperature(0.0);
    println!("{}", text.text()?);
    Ok(())
}
