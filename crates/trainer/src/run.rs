//! A run from its configuration to its result.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use burn::optim::AdamWConfig;
use burn::optim::lr_scheduler::constant::ConstantLr;
use burn::tensor::Device;
use burn::train::logger::MetricLogger;
use burn::train::metric::store::{EpochSummary, MetricsUpdate, Split as MetricSplit};
use burn::train::metric::{MetricDefinition, NumericEntry};
use burn::train::{Interrupter, Learner, SupervisedTraining, TrainingStrategy};
use emberlm_data::{Dataset, Floor, Packing, TrainBatches, Windows};
use emberlm_kernels::TrainingBackend;
use emberlm_model::{ConfigError, Decoder, DecoderConfig};

use crate::begin::Begun;
use crate::checkpoint::{About, Checkpoint, Description};
use crate::config::{RunConfig, TrainConfig};
use crate::data::TrainingData;
use crate::error::TrainError;
use crate::events::{self, Damage, EventLog, now};
use crate::file_check::FileCheck;
use crate::folder::RunFolder;
use crate::loader::{EvalLoader, Failure, TrainLoader};
use crate::metrics::{FigureMetric, TextMetric};
use crate::notes::Notes;
use crate::plain::PlainRenderer;
use crate::recorder::Recorder;
use crate::strategy::{How, Position, Progressed, StepStrategy, lock};
use crate::tensorboard::TensorBoard;
use crate::trainee::Trainee;
use crate::{dashboard, resume, strategy};

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
    let vocab_size = config.model.vocab_size.get_or_insert(tokens);
    if *vocab_size < tokens {
        let rule = format!("must be at least the dataset's {tokens}");
        return Err(ConfigError::new("vocab_size", *vocab_size, rule).into());
    }
    let checked = DecoderConfig::try_from(config.model.clone())?;
    config.model = checked.raw();
    Ok(checked)
}

/// Where a run begins.
pub enum Beginning {
    /// In a directory that holds no run yet.
    New(PathBuf),
    /// In a run that was stopped, where it stood; without a checkpoint for one that was stopped before its first.
    Resumed(RunFolder, Option<Box<Checkpoint>>),
}

/// What surrounds a run and is none of its configuration.
pub struct Surroundings<F> {
    /// Gives the resolved configuration as it is written into the run.
    pub render: F,
    /// How it shows itself.
    pub renderer: Renderer,
    /// Whether it writes event files for TensorBoard as well.
    pub tensorboard: bool,
    /// Shows a line about the run, where its progress is shown.
    pub say: fn(&str),
    /// Stops it.
    pub interrupter: Interrupter,
}

/// Trains a model, from the beginning or from where it was stopped. A run that has no checkpoint yet begins with
/// `weights`, or with first ones.
///
/// # Errors
/// Anything that stops it; a run that was interrupted is no error.
pub fn train<B: TrainingBackend>(
    config: RunConfig,
    beginning: Beginning,
    weights: Option<Decoder<B>>,
    surroundings: Surroundings<impl FnOnce(&RunConfig) -> String>,
    device: Device<B>,
) -> Result<Outcome, TrainError> {
    let how = How::of::<B>(&config.train, &device);
    train_how(config, beginning, weights, surroundings, device, how)
}

/// [`train`], as it is told to.
pub(crate) fn train_how<B: TrainingBackend>(
    mut config: RunConfig,
    beginning: Beginning,
    weights: Option<Decoder<B>>,
    surroundings: Surroundings<impl FnOnce(&RunConfig) -> String>,
    device: Device<B>,
    how: How,
) -> Result<Outcome, TrainError> {
    config.train.check()?;
    let data = TrainingData::open(&config.data)?;
    let dataset = data.first();
    let checkpoint = match &beginning {
        Beginning::New(_) => None,
        Beginning::Resumed(_, checkpoint) => checkpoint.as_deref(),
    };
    if let Some(checkpoint) = checkpoint {
        resume::check_data(checkpoint, &data)?;
    }
    let model = resolve_model(&mut config, dataset)?;
    let (train, seed) = (&config.train, config.train.seed);
    let seq_len = train.sequence_tokens(model.seq_len)?;
    let packing = train.documents;
    if packing == Packing::Isolated {
        model.check_documents()?;
    }
    let (batches, said) = data.batches(seed, seq_len, packing)?;
    let validation = data.validation(seq_len, packing)?;
    let floor = data.floor();

    let mut begun = Begun::<B>::new(checkpoint, weights, &config, &model, &data, &device)?;
    // Where the run goes on, the scale does; but not where there are no products in f16 any more.
    let scale = &mut begun.state.loss_scale;
    *scale = how.scale.map(|first| scale.unwrap_or(first));
    let text = (surroundings.render)(&config);
    let (folder, log, damage) = open_folder(beginning, &text, begun.state.step)?;
    let run = folder.path().to_owned();
    // Plain lines have been printed before; the dashboard begins empty. It can do without, if the log is damaged.
    let past = match surroundings.renderer {
        Renderer::Dashboard => events::read(&run).unwrap_or_default().events,
        Renderer::Plain => Vec::new(),
    };
    let tensorboard = match surroundings.tensorboard {
        true => Some(TensorBoard::create(&run, now())?),
        false => None,
    };
    let mut notes = Notes::new(match surroundings.renderer {
        Renderer::Plain => Some(surroundings.say),
        Renderer::Dashboard => None,
    });
    for said in said {
        notes.say(said);
    }
    for sentence in damage.sentences() {
        let log = run.join(events::EVENTS_FILE);
        notes.say(format!("warning: {}: {sentence}", log.display()));
    }
    if let Some(before) = &begun.moved_from {
        let now = &begun.state.backend;
        notes.say(format!(
            "warning: the run was computed on {before} and goes on on {now}, where results differ by rounding"
        ));
    }

    if !B::multiplies_in(train.precision, &device) {
        notes.say(format!(
            "warning: {} has no products in {}: they are made in f32",
            begun.state.backend,
            train.precision.name()
        ));
    }

    let file_check = FileCheck::start(batches.splits().chain(validation.splits()));
    if let Some(line) = file_check.announcement() {
        notes.say(line);
    }
    let failure = Failure::default();
    let loaders = loaders(
        batches,
        validation.first(),
        train,
        begun.state.step,
        &failure,
        &device,
    );
    let result = Arc::new(Mutex::new(None));
    let about = About {
        description: Description {
            model: config.model.clone(),
            tokenizer: Some(dataset.tokenizer().spec()),
            chat_template: data.chat_template().cloned(),
            documents: packing,
        },
        tokenizer: Some(dataset.tokenizer().clone()),
    };
    let strategy = StepStrategy {
        config: train.clone(),
        model,
        seq_len,
        reads: how.reads,
        run: run.clone(),
        about: Arc::new(about),
        tokenizer: dataset.tokenizer().clone(),
        validation,
        floor: floor.as_ref().map(|floor| floor.nats_per_token),
        past,
        device: device.clone(),
        failure,
        position: Mutex::new(Some(Position {
            optimizer: begun.optimizer,
            average: begun.average,
            state: begun.state,
            recorder: Recorder::new(Arc::new(folder), log, tensorboard, notes, begun.checkpoint),
            file_check,
        })),
        result: result.clone(),
    };
    launch(
        Trainee {
            decoder: begun.decoder.with_precision(config.train.precision),
        },
        strategy,
        loaders,
        surroundings.renderer,
        surroundings.say,
        surroundings.interrupter,
    );
    let progressed = lock(&result).take().unwrap_or(Err(TrainError::Killed))?;
    Ok(Outcome {
        run,
        progressed,
        floor,
    })
}

type Loaders<B> = (
    Arc<TrainLoader<B>>,
    Arc<EvalLoader<<B as burn::tensor::backend::AutodiffBackend>::InnerBackend>>,
);

/// The run's directory with its configuration and its log, for a run that stands at `step`.
fn open_folder(
    beginning: Beginning,
    config: &str,
    step: usize,
) -> Result<(RunFolder, EventLog, Damage), TrainError> {
    Ok(match beginning {
        Beginning::New(run) => {
            let folder = RunFolder::create(&run, config)?;
            let log = EventLog::create(&run)?;
            (folder, log, Damage::default())
        }
        Beginning::Resumed(folder, _) => {
            folder.write_config(config)?;
            let (log, damage) = EventLog::resume(folder.path(), step)?;
            (folder, log, damage)
        }
    })
}

/// What Burn's learner reads from, for a run that stands at `step`.
fn loaders<B: TrainingBackend>(
    batches: TrainBatches,
    validation: &Windows,
    train: &TrainConfig,
    step: usize,
    failure: &Failure,
    device: &Device<B>,
) -> Loaders<B> {
    let train_loader = TrainLoader::<B> {
        batches,
        first_window: step as u64 * train.step_sequences(),
        micro_batch: train.micro_batch,
        workers: train.loader_workers,
        windows: train.steps as u64 * train.step_sequences(),
        device: device.clone(),
        failure: failure.clone(),
    };
    let eval_loader = EvalLoader::<B::InnerBackend> {
        windows: validation.clone(),
        batch: train.eval_batch,
        max_tokens: (train.eval_tokens > 0).then_some(train.eval_tokens),
        device: device.clone(),
        failure: failure.clone(),
    };
    (Arc::new(train_loader), Arc::new(eval_loader))
}

/// Hands model, loop and data to Burn's learner and waits for its end.
fn launch<B: TrainingBackend>(
    model: Trainee<B>,
    strategy: StepStrategy<B>,
    (train, validation): Loaders<B>,
    renderer: Renderer,
    say: fn(&str),
    interrupter: Interrupter,
) {
    let optimizer = AdamWConfig::new().init::<B, Trainee<B>>();
    let learner = Learner::<strategy::Components<B>>::new(model, optimizer, ConstantLr::new(0.0));
    let steps = strategy.config.steps;
    let training = SupervisedTraining::new(&strategy.run, train, validation)
        .with_application_logger(None)
        .with_metric_logger(EventsInstead)
        .with_interrupter(interrupter.clone())
        .metric_train(TextMetric::now())
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
            let training = training.metric_train(TextMetric::time_left());
            let training = training.metric_valid(TextMetric::datasets());
            let training = training.renderer(PlainRenderer::new(steps, say));
            drop(training.launch(learner));
        }
        Renderer::Dashboard => {
            let training = training.renderer(dashboard::start(interrupter));
            let ended = catch_unwind(AssertUnwindSafe(|| drop(training.launch(learner))));
            dashboard::put_stderr_back();
            if let Err(panic) = ended {
                dashboard::restore_terminal();
                // For a run that was killed the missing result tells the caller. Any other panic goes on, in a terminal
                // that can show it.
                if !dashboard::was_killed() {
                    resume_unwind(panic);
                }
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
