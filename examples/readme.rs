//! The program of docs/guides/library.md: `cargo run --release -p emberlm-examples --bin readme` writes the folders
//! `counting` and `run`.

#![allow(clippy::print_stdout)]
#![recursion_limit = "256"]

use std::ops::ControlFlow;

use emberlm::burn::backend::{Autodiff, Flex};
use emberlm::data::{TokenDatasetOptions, write_token_dataset};
use emberlm::generate::{GenerateOptions, generate};
use emberlm::train::{DataConfig, RunOptions, RunStart, presets, run_config, train};
use emberlm::{Model, Tokenizer};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // 100 ids without a text. `Tokenizer::from_words` assigns a word to each id instead.
    let tokenizer = Tokenizer::of_ids(100, None)?;
    let count = |from: u32| -> Vec<u32> { (from..from + 50).map(|id| id % 100).collect() };
    let (documents, val) = ((0..200).map(count), (200..220).map(count));
    write_token_dataset(
        "counting".as_ref(),
        &tokenizer,
        documents,
        val,
        &TokenDatasetOptions::default(),
    )?;

    let settings = [
        "train.steps=60",
        "train.evaluation.sample_tokens=0",
        "model.seq_len=32",
    ]
    .map(String::from);
    let mut config = run_config::layered(presets::run("pocket-tales")?, None, &settings)?;
    config.data = DataConfig::of("counting");
    let start = RunStart::New("run".into());
    let options = RunOptions {
        say: |line| println!("{line}"),
        ..RunOptions::default()
    };
    train::<Autodiff<Flex>>(config, start, None, options, Default::default())?;

    let decoder = Model::open("run".as_ref())?.decoder::<Flex>(&Default::default())?;
    let options = GenerateOptions {
        max_new_tokens: 8,
        ..GenerateOptions::default()
    };
    let generation = generate(&decoder, &[1, 2, 3], &options, |_id| {
        ControlFlow::Continue(())
    })?;
    println!("{:?}", generation.tokens);
    Ok(())
}
