//! Trains a model on token ids of one's own, through the library's trainer:
//! `cargo run --release -p emberlm-examples --bin train -- RUN [STEPS]`. The run can be resumed by `emberlm train --resume
//! RUN`, sampled from and served like any other.

#![allow(clippy::print_stdout, clippy::print_stderr)]
#![recursion_limit = "256"]

use std::error::Error;
use std::path::{Path, PathBuf};

use emberlm::burn::backend::Autodiff;
use emberlm::data::{AdoptOptions, Adoption, ShardWriter, TokenWidth};
use emberlm::tokenizer::TokenizerChoice;
use emberlm::train::{
    DataConfig, Interrupter, Renderer, RunOptions, RunStart, presets, run_config, train,
};
use emberlm::{Tokenizer, TokenizerKind};
use emberlm_examples::Backend;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let run = PathBuf::from(args.next().ok_or("usage: train RUN [STEPS]")?);
    let steps = args.next().map_or(Ok(50), |n| n.parse())?;

    // Any token ids will do. Here they are the bytes of a text that counts.
    let tokens = tempfile::tempdir()?;
    let tokenizer = Tokenizer::builtin(TokenizerKind::Byte)?;
    let counted = |numbers: std::ops::Range<u32>| -> String {
        numbers
            .map(|n| format!("{n} comes before {}\n", n + 1))
            .collect()
    };
    let val = tokenizer.encode(&counted(900..1000))?;
    let train_ids = tokenizer.encode(&counted(0..900))?;
    write_tokens(&tokens.path().join("train.bin"), &train_ids)?;
    write_tokens(&tokens.path().join("val.bin"), &val)?;
    let adoption = Adoption::find(
        tokens.path(),
        &AdoptOptions {
            tokenizer: TokenizerChoice::Named(TokenizerKind::Byte),
            alphabet: None,
            train: None,
            val: None,
            out: None,
            force: false,
            command: "the example `train`".to_owned(),
        },
    )?;
    let dataset = adoption.run(&|_bytes| {})?.folder;

    // A preset, with the same settings over it that `emberlm train --set` takes.
    let settings = [
        format!("train.steps={steps}"),
        "train.evaluation.interval=25".to_owned(),
        "train.evaluation.sample_tokens=0".to_owned(),
        "model.seq_len=64".to_owned(),
    ];
    let mut config = run_config::layered(presets::run("pocket-tales")?, None, &settings)?;
    config.data = DataConfig::of(dataset);

    let options = RunOptions {
        renderer: Renderer::Plain,
        tensorboard: false,
        say: |line| eprintln!("{line}"),
        interrupter: Interrupter::new(),
        hooks: Vec::new(),
    };
    let result = train::<Autodiff<Backend>>(
        config,
        RunStart::New(run),
        None,
        options,
        Default::default(),
    )?;
    println!("{}", result.run.display());
    Ok(())
}

/// Writes a file of token ids in the format of llm.c.
fn write_tokens(path: &Path, ids: &[u32]) -> std::io::Result<()> {
    let mut writer = ShardWriter::create(path, TokenWidth::for_vocab(257))?;
    writer.write(ids)?;
    writer.finish()?;
    Ok(())
}
