//! Runs the tests on a loaded model.

use std::sync::Arc;

use burn::tensor::Device;
use emberlm_checkpoint::Model;
use emberlm_kernels::{Backend, TrainingBackend};
use emberlm_model::Transformer;
use emberlm_trainer::bench::pseudo_random;

use super::report::TestSpeed;
use super::tests::Tests;
use crate::backend::Job;
use crate::commands::generate::timing::{time_batch, time_one};
use crate::error::CliError;
use crate::model;
use crate::weights_arg::Formats;

/// Passes of decoding before the measured ones: enough for a GPU to compile and tune its kernels.
const WARM_UP: usize = 16;

/// The tests of a model, to run on a backend.
pub struct Measurement<'a> {
    pub model: &'a Model,
    pub formats: Formats,
    pub tests: &'a Tests,
}

impl Job for Measurement<'_> {
    /// The memory in use on a device with own memory once the model is loaded, and the speeds.
    type Output = Result<(Option<u64>, Vec<TestSpeed>), CliError>;

    fn run<B: TrainingBackend>(self, device: Device<B>) -> Self::Output {
        let decoder = model::decoder_in::<B::InnerBackend>(self.model, self.formats, &device)?;
        let in_use = B::InnerBackend::memory(&device).map(|memory| memory.in_use);
        let mut runner = Runner {
            token: pseudo_random(decoder.config().vocab_size()),
            decoder: Arc::new(decoder),
            tests: self.tests,
        };
        let tests = self.tests;
        let mut speeds = Vec::new();
        if tests.prompt > 0 {
            runner.prompt()?;
            let runs = (0..tests.repeat).map(|_| runner.prompt());
            let runs = runs.collect::<Result<_, _>>()?;
            speeds.push(TestSpeed::new(tests.prompt_name(), tests.prompt, 0, runs));
        }
        if tests.decode > 0 {
            runner.decode(tests.decode.min(WARM_UP))?;
            let runs = (0..tests.repeat).map(|_| runner.decode(tests.decode));
            let runs = runs.collect::<Result<_, _>>()?;
            let name = tests.decode_name();
            speeds.push(TestSpeed::new(name, tests.decode, tests.depth, runs));
        }
        Ok((in_use, speeds))
    }
}

/// A loaded model with a source of random token ids.
struct Runner<'a, B: Backend, T> {
    decoder: Arc<Transformer<B>>,
    token: T,
    tests: &'a Tests,
}

impl<B: Backend, T: FnMut() -> u32> Runner<'_, B, T> {
    /// Tokens per second of the prompts' pass, which also computes the logits behind them.
    fn prompt(&mut self) -> Result<f64, CliError> {
        self.time(self.tests.prompt, 0).map(|(prompt, _)| prompt)
    }

    /// Tokens per second of decoding `tokens` tokens, without the pass over the tokens before them.
    fn decode(&mut self, tokens: usize) -> Result<f64, CliError> {
        self.time(self.tests.before(), tokens)
            .map(|(_, decoded)| decoded)
    }

    /// Tokens per second of a prompt, and of `passes` passes behind it, over all sequences.
    fn time(&mut self, prompt: usize, passes: usize) -> Result<(f64, f64), CliError> {
        let batch = self.tests.batch;
        let token = &mut self.token;
        // Prompts differ, so that no sequence reuses the cache of another.
        let mut random = || (0..prompt).map(|_| token()).collect::<Vec<u32>>();
        let prompts: Vec<Vec<u32>> = (0..batch).map(|_| random()).collect();
        // The prompt's pass gives the first token.
        let speed = match &prompts[..] {
            [prompt] => time_one(&self.decoder, prompt, passes + 1)?,
            _ => time_batch(&self.decoder, prompts, passes + 1)?,
        };
        let of_all = |speed: Option<f64>| speed.unwrap_or(f64::NAN) * batch as f64;
        Ok((
            of_all(speed.prompt_per_second()),
            of_all(speed.tokens_per_second()),
        ))
    }
}
