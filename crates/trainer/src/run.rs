//! A run from its configuration to its result.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use burn::optim::AdamWConfig;
use burn::optim::lr_scheduler::constant::ConstantLr;
use burn::tensor::Device;
use burn::train::logger::MetricLogger;
use burn::train::metric::store::{EpochSummary, MetricsUpdate, Split as MetricSplit};
use burn::train::metric::{MetricDefinition, NumericEntry};
use burn::train::{Interrupter, Learner, SupervisedTraining, TrainingStrategy};
use emberlm_data::{Dataset, Floor, Split, TrainBatches};
use emberlm_kernels::TrainingBackend;
use emberlm_model::{ConfigError, Decoder, DecoderConfig};

use crate::checkpoint::Description;
use crate::config::RunConfig;
use crate::error::TrainError;
use crate::loader::{EvalLoader, Failure, TrainLoader};
use crate::metrics::FigureMetric;
use crate::plain::PlainRenderer;
use crate::strategy::{Progressed, StepStrategy};
use crate::trainee::Trainee;
use crate::{dashboard, strategy};

/// How a run shows itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renderer {
    /// Burn's terminal dashboard.
    Dashboard,
    /// A line per logged step, on stderr.
    Plain,
}

/// What came of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The run's directory.
    pub run: PathBuf,
    /// What the loop found out.
    pub progressed: Progressed,
    /// The lowest validation loss that any model can have, where it is known.
    pub floor: Option<Floor>,
}

/// What the user wrote, with the vocabulary taken from the dataset where it was left open.
///
/// # Errors
/// The vocabulary is smaller than the dataset's, or the configuration is no model.
pub fn resolve_model(
    config: &mut RunConfig,
    dataset: &Dataset,
) -> Result<DecoderConfig, TrainError> {
    let tokens = dataset.tokenizer().vocab_size();
    let vocab_size = &mut config.model.vocab_size;
    if *vocab_size == 0 {
        *vocab_size = tokens;
    }
    if *vocab_size < tokens {
        let rule = format!("must be at least the dataset's {tokens}");
        return Err(ConfigError::new("vocab_size", *vocab_size, rule).into());
    }
    let checked = DecoderConfig::try_from(config.model.clone())?;
    config.model = checked.raw().clone();
    Ok(checked)
}

/// Trains a model from given weights, or from its first ones. `render` gives the resolved configuration as it is written
/// into the run.
///
/// # Errors
/// Anything that stops it; a run that was interrupted is no error.
pub fn train<B: TrainingBackend>(
    mut config: RunConfig,
    weights: Option<Decoder<B>>,
    run: &Path,
    render: impl FnOnce(&RunConfig) -> String,
    renderer: Renderer,
    interrupter: Interrupter,
    device: Device<B>,
) -> Result<Outcome, TrainError> {
    config.train.check()?;
    let dataset = Dataset::open(&config.data.dataset)?;
    let model = resolve_model(&mut config, &dataset)?;
    let seed = config.train.seed;
    let seq_len = config.train.sequence_tokens(model.seq_len)?;
    let batches = TrainBatches::new(dataset.split(Split::Train)?, seed, seq_len)?;
    let validation = dataset.split(Split::Val)?;
    let decoder = match weights {
        Some(weights) => weights.reconfigured(&model)?,
        None => model.init::<B>(seed, &device),
    };
    create(run, &render(&config))?;

    let failure = Failure::default();
    let train_loader = TrainLoader::<B> {
        batches,
        first_window: 0,
        micro_batch: config.train.micro_batch,
        windows: config.train.steps as u64 * config.train.step_sequences(),
        device: device.clone(),
        failure: failure.clone(),
    };
    let eval_loader = EvalLoader::<B::InnerBackend> {
        split: validation.clone(),
        seq_len,
        batch: config.train.eval_batch,
        max_tokens: (config.train.eval_tokens > 0).then_some(config.train.eval_tokens),
        device: device.clone(),
        failure: failure.clone(),
    };
    let result = Arc::new(Mutex::new(None));
    let strategy = StepStrategy {
        config: config.train.clone(),
        seq_len,
        run: run.to_owned(),
        description: Description {
            model: config.model.clone(),
            tokenizer: Some(dataset.tokenizer().spec()),
        },
        tokenizer: dataset.tokenizer().clone(),
        validation,
        device: device.clone(),
        failure,
        result: result.clone(),
    };
    launch(
        Trainee { decoder },
        strategy,
        (Arc::new(train_loader), Arc::new(eval_loader)),
        renderer,
        interrupter,
    );
    let progressed = result
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take()
        .unwrap_or(Err(TrainError::Killed))?;
    Ok(Outcome {
        run: run.to_owned(),
        progressed,
        floor: dataset.manifest().split(Split::Val).floor.clone(),
    })
}

/// Makes the run's directory with its configuration.
fn create(run: &Path, config: &str) -> Result<(), TrainError> {
    let file = run.join("config.toml");
    if file.exists() {
        return Err(TrainError::RunExists {
            path: run.to_owned(),
        });
    }
    for folder in ["checkpoints", "samples"] {
        let folder = run.join(folder);
        fs::create_dir_all(&folder).map_err(TrainError::file("create", &folder))?;
    }
    fs::write(&file, config).map_err(TrainError::file("write", &file))
}

type Loaders<B> = (
    Arc<TrainLoader<B>>,
    Arc<EvalLoader<<B as burn::tensor::backend::AutodiffBackend>::InnerBackend>>,
);

/// Hands model, loop and data to Burn's learner and waits for its end.
fn launch<B: TrainingBackend>(
    model: Trainee<B>,
    strategy: StepStrategy<B>,
    (train, validation): Loaders<B>,
    renderer: Renderer,
    interrupter: Interrupter,
) {
    let optimizer = AdamWConfig::new().init::<B, Trainee<B>>();
    let learner = Learner::<strategy::Components<B>>::new(model, optimizer, ConstantLr::new(0.0));
    let steps = strategy.config.steps;
    let training = SupervisedTraining::new(&strategy.run, train, validation)
        .with_application_logger(None)
        .with_metric_logger(EventsInstead)
        .with_interrupter(interrupter.clone())
        .metric_train_numeric(FigureMetric::loss())
        .metric_valid_numeric(FigureMetric::loss())
        .metric_train_numeric(FigureMetric::perplexity())
        .metric_valid_numeric(FigureMetric::perplexity())
        .metric_train_numeric(FigureMetric::learning_rate())
        .metric_train_numeric(FigureMetric::gradient_norm())
        .metric_train_numeric(FigureMetric::tokens_per_second())
        .with_training_strategy(TrainingStrategy::Custom(Arc::new(strategy)));
    // The renderer closes when the result is dropped.
    match renderer {
        Renderer::Plain => {
            let training = training.renderer(PlainRenderer::new(steps));
            drop(training.launch(learner));
        }
        Renderer::Dashboard => {
            let training = training.renderer(dashboard::start(interrupter));
            // The dashboard's own way to end a run at once is to panic, on every thread in turn; the missing result
            // tells the caller.
            let ended = catch_unwind(AssertUnwindSafe(|| drop(training.launch(learner))));
            if ended.is_err() {
                dashboard::restore_terminal();
            }
        }
    }
}

/// In the place of Burn's own log files: `events.jsonl` has what they would.
struct EventsInstead;

impl MetricLogger for EventsInstead {
    fn log(&mut self, _update: MetricsUpdate, _epoch: usize, _split: &MetricSplit) {}

    fn read_numeric(
        &mut self,
        name: &str,
        _epoch: usize,
        _split: &MetricSplit,
    ) -> Result<Vec<NumericEntry>, String> {
        Err(format!("{name} is not kept: see events.jsonl"))
    }

    fn log_metric_definition(&mut self, _definition: MetricDefinition) {}

    fn log_epoch_summary(&mut self, _summary: EpochSummary) {}
}
