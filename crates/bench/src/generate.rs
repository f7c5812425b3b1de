//! `emberlm-bench generate`: the throughput of generation with a preset's initial weights, and the bounds of
//! the machine's memory bandwidth and matrix products. `cargo xtask bench generate` runs it.

mod draft;

use std::sync::Arc;
use std::time::Instant;

use burn::tensor::Device;
use clap::Args;
use emberlm_generate::{
    Drafting, Engine, EngineConfig, EventKind, GenerateError, GenerateOptions, Generator, Request,
    SamplerConfig,
};
use emberlm_kernels::{Backend, Precision, TrainingBackend};
use emberlm_model::{Transformer, TransformerConfig, WeightFormat, count};
use emberlm_system::measure::median;
use emberlm_trainer::memory::peak_rss_mib;
use emberlm_trainer::peak::matrix_product;

use emberlm_cli::shared::CliError;
use emberlm_cli::shared::weights_parser;
use emberlm_cli::shared::{BackendArg, Job};
use emberlm_trainer::{presets, run_config};

use crate::machine::read_bandwidth;

/// Arguments of `generate`.
#[derive(Debug, Args)]
pub struct GenerateArgs {
    /// The model
    #[arg(long, value_name = "NAME", default_value = "pocket")]
    pub preset: String,
    /// Tokens of the prompt
    #[arg(long, value_name = "N", default_value_t = 256)]
    pub prompt: usize,
    /// Tokens to generate
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub tokens: usize,
    /// Measured generations, after one warm-up
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub rounds: usize,
    /// The format of the linear layers' weights
    #[arg(long, value_name = "TYPE", default_value = WeightFormat::F32.name(), value_parser = weights_parser())]
    pub weights: WeightFormat,
    /// Numbers of concurrent sequences in addition to 1, separated by commas
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    pub sequences: Vec<usize>,
    /// A value that overrides the preset, such as model.n_layers=2; repeatable
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Accepted for compatibility; the result is always JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub draft: draft::DraftArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub backend: BackendArg,
}

/// Bytes of the model that are read per token.
fn bytes_per_token(model: &TransformerConfig, weights: WeightFormat) -> usize {
    let parameters = count::parameters(model);
    // A row of the embedding is negligible, but a tied embedding is also the head.
    let rows = match model.head().tied {
        true => parameters.positions,
        false => parameters.positions + parameters.embedding,
    };
    let read = parameters.active - rows;
    match weights {
        WeightFormat::F32 | WeightFormat::Stored(_) => read * 4,
        WeightFormat::Packed(format) | WeightFormat::PackedLayers(format) => {
            let sizes = map_sizes(model);
            let elements: usize = sizes.iter().map(|[width, out]| width * out).sum();
            let packed = sizes.iter().map(|&[width, out]| format.bytes([out, width]));
            (read - elements) * 4 + packed.sum::<usize>()
        }
    }
}

/// Input and output sizes of each linear layer; the head is last.
fn map_sizes(model: &TransformerConfig) -> Vec<[usize; 2]> {
    let kinds = model.stack().kinds().into_iter();
    let mut all: Vec<[usize; 2]> = kinds
        .flat_map(|(blocks, block)| {
            let layers = block.active_linear_layers().into_iter();
            let layers: Vec<_> = layers.map(|l| [l.d_input, l.d_output]).collect();
            layers.repeat(blocks)
        })
        .collect();
    all.push([model.d_model(), model.vocab_size()]);
    all
}

/// Runs the command.
///
/// # Errors
/// The preset or the backend does not exist, or the prompt is empty.
pub fn run(args: GenerateArgs) -> Result<(), CliError> {
    let backend = args.backend.choose()?;
    let config = run_config::layered(presets::run(&args.preset)?, None, &args.set)?;
    let mut model = config.decoder()?.clone();
    // The characters of Tiny Shakespeare.
    model.vocab_size.get_or_insert(65);
    // Makes room for all tokens, so that a full cache does not move during the measurement.
    model.seq_len = model.seq_len.max(args.prompt + args.tokens + 1);
    let model = TransformerConfig::try_from(model)?;
    let draft = args.draft.config(&model)?;
    let parameters = count::parameters(&model);
    let read = bytes_per_token(&model, args.weights);
    let idle = parameters.total - parameters.active;
    let maps = parameters.attention + parameters.feed_forward - idle;
    let head = model.vocab_size() * model.d_model();
    let operations = 2.0 * (maps as f64 * args.prompt as f64 + head as f64);
    let rounded = |x: f64| (x * 10.0).round() / 10.0;
    let measured = backend.run(Bench {
        model,
        weights: args.weights,
        prompt: args.prompt,
        tokens: args.tokens.max(1),
        rounds: args.rounds.max(1),
        sequences: args.sequences,
        draft,
        ahead: args.draft.ahead,
    })??;
    let together = measured.together.iter().map(|(sequences, seconds)| {
        serde_json::json!({
            "sequences": sequences,
            "decode_tokens_per_second": rounded(*sequences as f64 / seconds),
        })
    });
    let together: Vec<_> = together.collect();
    let bandwidth = read_bandwidth();
    let line = serde_json::json!({
        "peer": format!("emberlm {} {backend}", env!("CARGO_PKG_VERSION")),
        "workload": args.preset,
        "prompt": args.prompt,
        "tokens": args.tokens,
        "weights": args.weights.name(),
        "threads": std::thread::available_parallelism().map_or(1, usize::from),
        "parameters": parameters.total,
        "prefill_tokens_per_second": rounded(args.prompt as f64 / measured.prefill),
        "decode_tokens_per_second": rounded(1.0 / measured.token),
        "together": together,
        "draft": measured.draft,
        "peak_rss_mib": measured.peak_rss_mib,
        "bytes_per_token": read,
        "read_bytes_per_second": bandwidth.round(),
        "product_flops": measured.product_flops.round(),
        // The bound of reading the weights once per token, and the bound of the linear layers' matrix products.
        "decode_bound": rounded(bandwidth / read as f64),
        "prefill_bound": rounded(args.prompt as f64 * measured.product_flops / operations),
    });
    emberlm_cli::shared::print_json(&line)
}

struct Bench {
    model: TransformerConfig,
    weights: WeightFormat,
    prompt: usize,
    tokens: usize,
    rounds: usize,
    sequences: Vec<usize>,
    draft: Option<TransformerConfig>,
    ahead: Vec<usize>,
}

struct Measured {
    /// The median seconds of the prompt's pass.
    prefill: f64,
    /// The median seconds per generated token.
    token: f64,
    /// The number of concurrent sequences, and the median seconds per token of each.
    together: Vec<(usize, f64)>,
    /// The cost of speculative decoding, if there is a draft model.
    draft: Vec<draft::Ahead>,
    peak_rss_mib: Option<u64>,
    product_flops: f64,
}

impl Job for Bench {
    type Output = Result<Measured, CliError>;

    fn run<B: TrainingBackend>(self, device: Device<B>) -> Self::Output {
        let decoder = self.model.init::<B::InnerBackend>(1, &device);
        let decoder = Arc::new(decoder.with_weights(self.weights)?);
        let prompt = self.prompt_of(0);
        let options = GenerateOptions {
            // The prompt's pass generates the first token.
            max_new_tokens: self.tokens + 1,
            stop_tokens: Vec::new(),
            chooser: SamplerConfig::greedy().into(),
            sample: 0,
        };
        let (mut prefills, mut tokens) = (Vec::new(), Vec::new());
        for round in 0..=self.rounds {
            let mut seconds = Vec::with_capacity(self.tokens + 1);
            let mut last = Instant::now();
            for token in Generator::new(&decoder, &prompt, &options)? {
                token?;
                let now = Instant::now();
                seconds.push((now - last).as_secs_f64());
                last = now;
            }
            if round > 0 {
                prefills.extend(seconds.first().copied());
                tokens.extend(seconds.into_iter().skip(1));
            }
        }
        let mut together = Vec::new();
        for &sequences in &self.sequences {
            let mut seconds = Vec::new();
            for round in 0..=self.rounds {
                let made = self.together(&decoder, sequences)?;
                if round > 0 {
                    seconds.extend(made);
                }
            }
            together.push((sequences, median(seconds)));
        }
        let token = median(tokens);
        let mut ahead = Vec::new();
        if let Some(draft) = &self.draft {
            let draft = draft.init::<B::InnerBackend>(2, &device);
            let draft = draft.with_weights(self.weights)?;
            let task = (&prompt[..], &options);
            ahead = draft::measure(&decoder, &draft, &self.ahead, task, (self.rounds, token))?;
        }
        Ok(Measured {
            prefill: median(prefills),
            token,
            together,
            draft: ahead,
            // Taken before the memory for the bounds is allocated.
            peak_rss_mib: peak_rss_mib(),
            product_flops: matrix_product::<B::InnerBackend>(Precision::F32, &device),
        })
    }
}

impl Bench {
    /// The prompt of a sequence. Prompts differ, so that no sequence reuses the cache of another.
    fn prompt_of(&self, sequence: usize) -> Vec<u32> {
        let id = |at: usize| ((at * 7919 + sequence * 104_729) % self.model.vocab_size()) as u32;
        (0..self.prompt).map(id).collect()
    }

    /// The seconds of each pass that generates a token of every sequence, after a pass that reads the prompts.
    fn together<B: Backend>(
        &self,
        decoder: &Arc<Transformer<B>>,
        sequences: usize,
    ) -> Result<Vec<f64>, GenerateError> {
        let capacity = self.prompt + self.tokens + 1;
        let config = EngineConfig {
            slots: sequences,
            capacity,
            prefill_tokens: sequences.saturating_mul(self.prompt).max(1),
            deterministic: false,
            drafting: Drafting::Never,
        };
        let mut engine = Engine::new(Arc::clone(decoder), config)?;
        for sequence in 0..sequences {
            engine.submit(Request {
                prompt: self.prompt_of(sequence),
                max_new_tokens: self.tokens + 1,
                chooser: SamplerConfig::greedy().into(),
                ..Request::default()
            })?;
        }
        let mut failed = None;
        let mut step = |engine: &mut Engine<B>| {
            let start = Instant::now();
            engine.step(&mut |event| {
                if let EventKind::Failed(error) = event.kind {
                    failed = Some(error);
                }
            });
            start.elapsed().as_secs_f64()
        };
        step(&mut engine);
        let seconds = (0..self.tokens).map(|_| step(&mut engine)).collect();
        match failed {
            Some(error) => Err(error),
            None => Ok(seconds),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_and_head_are_a_quarter_in_8_bits() {
        for preset in ["pocket", "char-nano", "gpt2-small"] {
            let config = presets::run(preset).unwrap();
            let mut model = config.decoder().unwrap().clone();
            model.vocab_size = Some(65);
            let model = TransformerConfig::try_from(model).unwrap();
            let parameters = count::parameters(&model);
            let elements: usize = map_sizes(&model).iter().map(|[a, b]| a * b).sum();
            let head = 65 * model.d_model();
            let maps = parameters.attention + parameters.feed_forward + head;
            // Biases and norms are small compared with the weights.
            assert!(
                elements <= maps && elements * 100 > maps * 99,
                "{preset}: {elements} {maps}"
            );
            let [f32, int8] = [WeightFormat::F32, WeightFormat::INT8]
                .map(|weights| bytes_per_token(&model, weights));
            assert!(
                f32 * 10 > int8 * 37 && f32 < int8 * 4,
                "{preset}: {f32} {int8}"
            );
        }
    }
}
