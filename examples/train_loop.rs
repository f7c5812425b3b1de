//! Trains a small model in a custom loop, on `Autodiff<B>` with Burn's optimizer:
//! `cargo run --release -p emberlm-examples --bin train-loop -- [STEPS]`.

#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::error::Error;

use emberlm::burn::backend::Autodiff;
use emberlm::burn::optim::{AdamWConfig, GradientsParams, Optimizer};
use emberlm::burn::tensor::ElementConversion;
use emberlm::data::{TalesConfig, write_tales_dataset};
use emberlm::model::{families, id_tensor};
use emberlm::{Dataset, Packing, Split, TrainBatches, TransformerConfig};
use emberlm_examples::Backend;

type Training = Autodiff<Backend>;

const MICRO_BATCH: usize = 8;

fn main() -> Result<(), Box<dyn Error>> {
    let steps: u64 = std::env::args().nth(1).map_or(Ok(20), |n| n.parse())?;
    let device = Default::default();

    let folder = tempfile::tempdir()?;
    let tales = folder.path().join("tales");
    write_tales_dataset(
        &tales,
        &TalesConfig {
            seed: 1,
            tales: 200,
        },
        false,
        "train-loop",
    )?;
    let dataset = Dataset::open(&tales)?;

    let mut config = families::preset("pocket-tales")
        .ok_or("no such preset")?
        .config;
    config.vocab_size = Some(dataset.tokenizer().vocab_size());
    config.seq_len = 64;
    let config = TransformerConfig::try_from(config)?;
    let mut decoder = config.init::<Training>(1, &device);
    let mut optimizer = AdamWConfig::new().with_weight_decay(0.1).init();

    let windows = dataset.windows(Split::Train, config.seq_len(), Packing::Stream)?;
    let batches = TrainBatches::new(windows, 1)?;
    for step in 0..steps {
        let batch = batches.batch(step * MICRO_BATCH as u64, MICRO_BATCH)?;
        let shape = [batch.batch, batch.seq];
        let tensor = |ids: &[u32]| id_tensor::<Training>(ids, shape, &device);
        let targets = batch.learnt() as f64;
        let loss = decoder.loss_sum(tensor(&batch.inputs), tensor(&batch.targets)) / targets;
        let value: f64 = loss.clone().into_scalar().elem();
        let gradients = GradientsParams::from_grads(loss.backward(), &decoder);
        decoder = optimizer.step(3e-3, decoder, gradients);
        println!("step {:>3}  loss {value:.4}", step + 1);
    }
    Ok(())
}
