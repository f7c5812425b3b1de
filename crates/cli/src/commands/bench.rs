//! `emberlm bench`: the speed of models, as `llama-bench` measures it.
//!
//! | module | contents |
//! |---|---|
//! | `tests` | the tests of a model and their limits |
//! | `measurement` | runs the tests on a loaded model |
//! | `separate` | measures one of several models in a child process |
//! | `report` | the results as a table and as JSON |

mod measurement;
mod report;
mod separate;
mod tests;

use std::path::{Path, PathBuf};

use clap::Args;
use emberlm_checkpoint::{Model, ModelKind, kind_of};
use emberlm_model::count;
use emberlm_trainer::fit::{InferenceWork, predict_inference};
use emberlm_trainer::memory;

use self::measurement::Measurement;
use self::report::{ModelSpeed, table};
use self::tests::Tests;
use crate::adapter_arg::AdapterArg;
use crate::backend::{BackendArg, BackendName, Placement};
use crate::cache_arg::CacheArg;
use crate::error::CliError;
use crate::examples;
use crate::hub;
use crate::memory_guard::MemoryArg;
use crate::model;
use crate::output::{print, print_json};
use crate::shell::shell_word;
use crate::values;
use crate::weights_arg::WeightsArg;

/// Arguments of `bench`.
#[derive(Debug, Args)]
#[command(after_help = examples::BENCH)]
pub struct BenchArgs {
    /// Runs, checkpoints, Hugging Face directories or GGUF files
    #[arg(value_name = "MODEL", required = true)]
    pub models: Vec<PathBuf>,
    /// Tokens of the prompt; 0 leaves the test out [default: 512, or the context if it is shorter]
    #[arg(long = "prompt-tokens", alias = "prompt", short, value_name = "N", value_parser = values::count)]
    pub prompt: Option<usize>,
    /// Tokens to decode one after the other; 0 leaves the test out [default: 128, or the rest of a shorter context]
    #[arg(long, short = 'n', value_name = "N", value_parser = values::count)]
    pub decode: Option<usize>,
    /// Tokens in the cache before decoding
    #[arg(long, short, value_name = "N", default_value_t = 0, value_parser = values::count)]
    pub depth: usize,
    /// Concurrent sequences, whose tokens are counted together
    #[arg(long = "batch-size", alias = "batch", short, value_name = "N", default_value_t = 1, value_parser = values::at_least_one)]
    pub batch: usize,
    /// Measured repetitions of each test, after one that is not measured
    #[arg(long, short, value_name = "N", default_value_t = 3, value_parser = values::at_least_one)]
    pub repeat: usize,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub weights: WeightsArg,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub cache: CacheArg,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub adapter: AdapterArg,
    /// Print [{"model", "bytes", "parameters", "weights", "backend", "device", "threads", "batch", "peak_bytes", "device_bytes",
    /// "tests": [{"test", "tokens", "depth", "tokens_per_second", "deviation", "runs"}]}]
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub memory: MemoryArg,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub backend: BackendArg,
}

/// Measures the models one after the other. Each of several models has its own process, since the peak of a process's
/// memory is that of its largest model.
///
/// # Errors
/// A model cannot be opened or generates no tokens, a test exceeds its context, or the memory does not suffice.
pub fn run(args: BenchArgs) -> Result<(), CliError> {
    let backend = args.backend.choose()?;
    if (args.prompt, args.decode) == (Some(0), Some(0)) {
        return Err(CliError::usage(
            "--prompt-tokens 0 and --decode 0 leave no test to measure",
        ));
    }
    let subjects = args
        .models
        .iter()
        .map(|path| Subject::open(path, &args, backend))
        .collect::<Result<Vec<_>, _>>()?;
    let speeds = match &subjects[..] {
        [subject] => vec![subject.measure(&args, backend)?],
        _ => subjects
            .iter()
            .map(|subject| separate::measure(subject, &args, backend))
            .collect::<Result<_, _>>()?,
    };
    match args.json {
        true => print_json(&speeds),
        false => print(&table(&speeds)),
    }
}

/// A model whose weights have not been read, with its tests.
struct Subject {
    /// The model as given on the command line.
    name: String,
    path: PathBuf,
    model: Model,
    tests: Tests,
}

impl Subject {
    fn open(given: &Path, args: &BenchArgs, backend: Placement) -> Result<Self, CliError> {
        let mut path = given.to_owned();
        hub::localize(&mut path)?;
        let name = given.display().to_string();
        check_kind(&name, kind_of(&path))?;
        let model = args.adapter.open_decoder(&path)?;
        let tests =
            Tests::of(args, model.config().seq_len()).map_err(|error| error.within(&name))?;
        let subject = Self {
            name,
            path,
            model,
            tests,
        };
        let guard = args.memory.guard(backend);
        let work = subject.work(args, backend);
        let works = [(subject.model.config(), work)];
        guard.check_inference("the benchmark", &works, &[])?;
        Ok(subject)
    }

    fn work(&self, args: &BenchArgs, backend: Placement) -> InferenceWork {
        let weights = model::inference_weights(
            &self.model,
            args.weights.weights,
            backend.keeps_packed_weights(),
        );
        let (capacity, pass) = (self.tests.capacity(), self.tests.longest_pass());
        InferenceWork::generation(weights, args.batch, capacity, pass).with_cache(args.cache.cache)
    }

    /// Loads the model and runs its tests in this process.
    fn measure(&self, args: &BenchArgs, backend: Placement) -> Result<ModelSpeed, CliError> {
        let (device_bytes, tests) = backend.run(Measurement {
            model: &self.model,
            formats: args.weights.with_cache(args.cache.cache),
            tests: &self.tests,
        })??;
        let config = self.model.config();
        let work = self.work(args, backend);
        let on_cpu = matches!(backend.backend, BackendName::Flex | BackendName::Ndarray);
        Ok(ModelSpeed {
            model: self.name.clone(),
            bytes: predict_inference(config, work, 0).weights,
            parameters: count::parameters(config).total,
            weights: model::weights_name(&self.model, work.weights),
            backend: backend.name().to_owned(),
            device: backend.device_name().filter(|_| !on_cpu),
            threads: on_cpu.then(rayon::current_num_threads),
            batch: args.batch,
            peak_bytes: memory::peak(),
            device_bytes,
            tests,
        })
    }
}

/// Refuses models that do not continue a text.
fn check_kind(name: &str, kind: ModelKind) -> Result<(), CliError> {
    let word = shell_word(name);
    let (kind, hint) = match kind {
        ModelKind::Decoder => return Ok(()),
        ModelKind::Encoder => (
            "an encoder, which decodes no tokens",
            format!(
                "time it on your texts: emberlm embed {word} FILE, or emberlm classify {word} FILE"
            ),
        ),
        ModelKind::EncoderDecoder => (
            "an encoder–decoder, and only decoders are measured",
            format!("the speed of one text: emberlm generate {word} --prompt SOURCE --verbose"),
        ),
    };
    Err(CliError::new(format!("{name} is {kind}")).hint(hint))
}
