//! Trains a model on custom token ids with the library's trainer:
//! `cargo run --release -p emberlm-examples --bin train -- RUN [STEPS]`. The run can be resumed with
//! `emberlm train --resume RUN`, sampled from and served like any other.

#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::error::Error;
use std::path::PathBuf;

use emberlm::prelude::*;
use emberlm_examples::Backend;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let run = PathBuf::from(args.next().ok_or("usage: train RUN [STEPS]")?);
    let steps = args.next().map_or(Ok(50), |n| n.parse())?;

    // Any token ids can be used, with a vocabulary without text: here melodies that rise by thirds and fall
    // again.
    let folder = tempfile::tempdir()?;
    let dataset = folder.path().join("melodies");
    let melody = |base: u32| -> Vec<u32> {
        let rise = (0..12).map(|step| base + 4 * step);
        let fall = (0..12).rev().map(|step| base + 4 * step);
        rise.chain(fall).collect()
    };
    write_token_dataset(
        &dataset,
        &Tokenizer::of_ids(129, Some(128))?,
        (0..720).map(|i| melody(i % 80)),
        (720..800).map(|i| melody(i % 80)),
        &TokenDatasetOptions::default(),
    )?;

    let mut config = presets::run("pocket-tales")?;
    config.data = DataConfig::of(dataset);
    config.train.steps = steps;
    config.train.evaluation.interval = 25;
    config.train.evaluation.sample_tokens = 0;
    config.model.seq_len = 64;

    let result = Training::<Autodiff<Backend>>::new(config, run)
        .say(|line| eprintln!("{line}"))
        .run()?;
    println!("{}", result.run.display());
    Ok(())
}
