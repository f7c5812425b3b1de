//! A run from its configuration to its result.
//!
//! | module | purpose |
//! |---|---|
//! | `start`, `fork`, [`resume`], [`ancestry`] | the places that a run starts from |
//! | `inputs`, `model`, `initial_state`, `references`, `rollouts`, `tasks`, `agreement` | the state before the first step |
//! | `strategy`, `driver` | Burn's learner, and the loop over steps that it runs |
//! | `recorder`, [`folder`], [`formats`] | the files of a run |
//! | `duration`, `exportable`, `overfitting`, `summary`, `uniform`, [`divergence`] | notes on a run at its start and end |

use std::sync::Arc;

use burn::tensor::Device;
use burn::train::{Interrupter, Learner};
use emberlm_checkpoint::{AdapterDescription, BaseModel, SourceFiles};
use emberlm_data::{ChatTemplateSpec, Tokenizer};
use emberlm_kernels::TrainingBackend;
use emberlm_model::families::Family;
use emberlm_model::hugging_face::exporting_family;
use emberlm_model::{ModelKind, count};

use crate::checkpoint::shards::ShardWriter;
use crate::checkpoint::{About, Description};
use crate::config::RunConfig;
use crate::config::run_config;
use crate::error::TrainError;
use crate::hooks::{Hook, HookList};
use crate::optimizer::schedule::LearningRateSchedule;
use crate::peers::Peers;
use crate::report::Say;
use crate::report::dashboard::{Dashboard, DashboardRun};
use crate::report::events::{self, now};
use crate::report::messages::Messages;
use crate::report::metrics::ProgressDisplay;
use crate::report::pace::Pace;
use crate::report::plain::PlainLines;
use crate::report::tensorboard::TensorBoard;
use crate::run::driver::{Driver, RankZero};
use crate::run::exportable::export_warning;
use crate::run::initial_state::InitialState;
use crate::run::recorder::Recorder;
use crate::step::devices::RankDevices;
use crate::step::engine::{EngineOptions, StepEngine, StepPosition};
use crate::stop::StopSignal;

mod agreement;
pub mod ancestry;
pub mod divergence;
pub(crate) mod driver;
mod duration;
mod exportable;
pub mod folder;
mod fork;
pub mod formats;
mod initial_state;
mod inputs;
mod model;
mod overfitting;
mod recorder;
mod references;
pub mod resume;
mod rollouts;
mod start;
mod strategy;
mod summary;
mod tasks;
mod training;
mod uniform;

pub use crate::run::driver::RunResult;
pub use fork::Fork;
use inputs::Circumstances;
pub(crate) use inputs::RunInputs;
pub use inputs::{EpochSize, epoch_size, resolve_model, sized};
pub use model::RunWeights;
pub use start::RunStart;
use tasks::RunTasks;
pub use training::Training;
use uniform::UniformLoss;

/// The way a run shows its progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renderer {
    /// A dashboard in the terminal.
    Dashboard,
    /// A line per logged step, on stderr.
    Plain,
}

/// Options of a run that are not part of its configuration.
///
/// ```
/// use std::sync::{Arc, Mutex};
///
/// use emberlm_trainer::RunOptions;
///
/// let lines = Arc::new(Mutex::new(Vec::new()));
/// let kept = Arc::clone(&lines);
/// let options = RunOptions {
///     say: Arc::new(move |line| kept.lock().unwrap().push(line.to_owned())),
///     ..RunOptions::default()
/// };
/// (options.say)("step 1");
/// assert_eq!(*lines.lock().unwrap(), ["step 1"]);
/// ```
pub struct RunOptions {
    /// The progress output.
    pub renderer: Renderer,
    /// True to also write event files for TensorBoard.
    pub tensorboard: bool,
    /// Prints a note about the run to the progress output.
    pub say: Say,
    /// The files of the Hugging Face directory that the initial weights come from. Checkpoints keep them, and a resumed
    /// run takes them from its checkpoint.
    pub source: SourceFiles,
    /// The model whose weights an adapter is trained on. A resumed run takes it from its checkpoint.
    pub base: Option<BaseModel>,
    /// The tokenizer of the initial weights, for records of texts.
    pub tokenizer: Option<Tokenizer>,
    /// The chat template of the initial weights, for records with messages.
    pub chat_template: Option<ChatTemplateSpec>,
    /// Stops the run.
    pub interrupter: Interrupter,
    /// The program's hooks into the run.
    pub hooks: Vec<Box<dyn Hook>>,
}

/// Plain progress without output, and no hooks.
impl Default for RunOptions {
    fn default() -> Self {
        Self {
            renderer: Renderer::Plain,
            tensorboard: false,
            source: SourceFiles::default(),
            base: None,
            tokenizer: None,
            chat_template: None,
            say: Arc::new(|_| {}),
            interrupter: Interrupter::new(),
            hooks: Vec::new(),
        }
    }
}

/// [`Training::run`] with the engine's options.
pub(crate) fn train_with<B: TrainingBackend>(
    mut config: RunConfig,
    start: RunStart,
    weights: Option<RunWeights<B>>,
    options: RunOptions,
    device: Device<B>,
    engine: EngineOptions,
    peers: Arc<dyn Peers<B::InnerBackend>>,
) -> Result<RunResult, TrainError> {
    config.check()?;
    config.train.check_model(&config.model)?;
    config.train.rank_micro_batches(peers.rank())?;
    if peers.rank().world_size() > 1 {
        let exchange = config.train.exchange;
        exchange.check_device::<B::InnerBackend>(&device)?;
    }
    let circumstances = Circumstances {
        start: &start,
        heads: match &weights {
            Some(RunWeights::Opened(model)) => model.heads()?,
            _ => None,
        },
        tokenizer: options.tokenizer.clone(),
        chat_template: options.chat_template.clone(),
    };
    let mut inputs = RunInputs::open(&mut config, &circumstances)?;
    let evaluation = &config.train.evaluation;
    evaluation.check_validation(inputs.validation.tokens(None))?;
    let tasks = RunTasks::open(evaluation, &inputs.tokenizer, &inputs.model)?.map(Arc::new);
    let rank = peers.rank();
    let mut initial = InitialState::<B>::new(&start, weights, &config, &inputs, rank, &device)?;
    let is_fork = start.fork().is_some();
    let stop = StopSignal::new(options.interrupter.clone());
    let references = references::of_run(
        &inputs,
        &start,
        &initial,
        &config.train,
        &stop,
        &*options.say,
    )?;
    if let Some(references) = &references {
        inputs.apply(references);
    }

    agreement::check(&*peers, &config, &inputs.identities, &initial)?;
    let products = config.train.precision.products;
    let devices = RankDevices::gather::<B>(&*peers, engine, products, &device)?;
    let engine = devices.options();
    initial.state.backend = devices.backend();
    // A resumed run keeps its loss scale, unless no rank has products in f16 any more.
    let scale = initial.state.loss_scale;
    initial.state.loss_scale = engine.loss_scale.map(|first| scale.unwrap_or(first));
    let rollouts = rollouts::of_run(&inputs, &initial, &config.train, references.as_ref(), &stop)?;
    let run = start.path().to_owned();
    let loader = inputs.loader::<B>(&config, &initial.state, rank, &device)?;
    let renderer = options.renderer;
    let mut rank_zero = match rank.is_zero() {
        true => Some(rank_zero(
            &config,
            start,
            &inputs,
            tasks.as_deref(),
            &initial,
            options,
            &device,
        )?),
        false => None,
    };
    if let (Some(references), true) = (&references, rank.is_zero()) {
        references.write(&run)?;
    }
    if let Some(rank_zero) = &mut rank_zero {
        let size = summary::line(&config.train, &inputs, &initial, &devices, &device);
        let ranks = initial.optimizer.rank_cost();
        let ranks = ranks.map(|cost| summary::rank_line(cost, &config.train));
        let notes = first_notes(&config, &inputs, &initial, &devices);
        for note in std::iter::once(size).chain(ranks).chain(notes) {
            rank_zero.recorder.messages.say(note);
        }
    }
    let file_check = inputs.check_files();
    if let (Some(line), Some(rank_zero)) = (file_check.announcement(), &mut rank_zero) {
        rank_zero.recorder.messages.say(line);
    }

    // Rank 0 has created the directory.
    let shard_writer = ShardWriter::of_ranks(&run, &*peers)?;
    let schedule = LearningRateSchedule::new(config.train.schedule.clone(), config.train.steps)
        .resumed_at(initial.state.step);
    let optimizer = initial.optimizer.clone();
    let engine = StepEngine::new(
        config.train.clone(),
        engine.read_policy,
        peers,
        initial.optimizer,
        initial.average,
        StepPosition::of(&initial.state),
    )
    .with_shard_writer(shard_writer);
    if let (Renderer::Dashboard, Some(rank_zero)) = (renderer, &mut rank_zero) {
        rank_zero.display = dashboard(&config, rank_zero, &stop)?;
    }
    let driver = Driver::new(
        run.clone(),
        engine,
        initial.state,
        inputs.floor.clone(),
        file_check,
        inputs.validation.clone(),
        rank_zero,
    )
    .with_rollouts(rollouts)
    .with_tasks(tasks)
    .saving_first(is_fork)
    .stopped_by(stop.clone());
    let model = initial.model.with_precision(products);
    let learner = Learner::new(model, optimizer, schedule);
    strategy::launch(driver, learner, loader, &run, &stop)
}

/// Starts the dashboard, after the notes that it shows first.
fn dashboard<B: TrainingBackend>(
    config: &RunConfig,
    rank_zero: &RankZero<B>,
    stop: &StopSignal,
) -> Result<Box<dyn ProgressDisplay>, TrainError> {
    let recorder = &rank_zero.recorder;
    let run = DashboardRun {
        path: rank_zero.run.clone(),
        notes: recorder.messages.first(),
        steps: config.train.steps,
        interval: config.train.evaluation.interval,
        stop: stop.clone(),
    };
    match Dashboard::start(run, recorder.hooks.metrics()) {
        Ok(dashboard) => Ok(Box::new(dashboard)),
        Err(error) => Err(TrainError::Terminal(error)),
    }
}

/// Creates or continues the run's directory with its configuration and log. Returns the state of rank 0 without the
/// engine.
fn rank_zero<B: TrainingBackend>(
    config: &RunConfig,
    start: RunStart,
    inputs: &RunInputs,
    tasks: Option<&RunTasks>,
    initial: &InitialState<B>,
    options: RunOptions,
    device: &Device<B>,
) -> Result<RankZero<B>, TrainError> {
    let text = run_config::to_toml(config)?;
    let step = initial.state.step;
    let resumed = start
        .checkpoint()
        .and_then(|checkpoint| checkpoint.description.as_ref());
    let source = match (start.checkpoint(), resumed) {
        (None, _) => options.source,
        (Some(checkpoint), Some(_)) => SourceFiles::of_checkpoint(&checkpoint.path)?,
        (Some(checkpoint), None) => SourceFiles::of_hugging_face(&checkpoint.path)?,
    };
    let base = match resumed.and_then(|description| description.adapter.as_ref()) {
        Some(adapter) => Some(adapter.base.clone()),
        None => options.base,
    };
    // A fork has none until it has written its first.
    let checkpoint = match start.fork() {
        Some(_) => None,
        None => initial.checkpoint.clone(),
    };
    let (folder, log, damage) = start.open_folder(config, &text, step)?;
    let run = folder.path().to_owned();
    // Plain lines were printed before the interruption, but the dashboard starts empty. A damaged log is not fatal for
    // it.
    let (past, say) = match options.renderer {
        Renderer::Dashboard => (events::read(&run).unwrap_or_default().events, None),
        Renderer::Plain => (Vec::new(), Some(Arc::clone(&options.say))),
    };
    let tensorboard = match options.tensorboard {
        true => Some(TensorBoard::create(&run, now())?),
        false => None,
    };
    let mut messages = Messages::new(say);
    for sentence in damage.sentences() {
        let log = run.join(events::EVENTS_FILE);
        messages.say(format!("warning: {}: {sentence}", log.display()));
    }
    let about = About {
        description: description_of(config, inputs, &source, base)?,
        tokenizer: Some(inputs.tokenizer.clone()),
        source,
    };
    let mut metrics = inputs.validation.metrics();
    metrics.extend(tasks.map(RunTasks::metrics).unwrap_or_default());
    let hooks = HookList::new(options.hooks, metrics, options.interrupter)?;
    let flops = count::flops_per_token(&inputs.model).training;
    let (steps, say) = (config.train.steps, options.say);
    Ok(RankZero {
        display: Box::new(PlainLines::new(steps, say, hooks.metrics())),
        run,
        about: Arc::new(about),
        tokenizer: inputs.tokenizer.clone(),
        source: inputs.source.clone(),
        past,
        seq_len: inputs.seq_len,
        device: device.clone(),
        recorder: Recorder::new(
            Arc::new(folder),
            log,
            tensorboard,
            messages,
            hooks,
            checkpoint,
        ),
        pace: Pace::new(step, flops, config.train.precision.products),
        uniform_loss: UniformLoss::of(&config.train.objective, inputs).map(UniformLoss::nats),
        sample: None,
        bars: String::new(),
    })
}

/// The description of a run's model.
fn description_of(
    config: &RunConfig,
    inputs: &RunInputs,
    source: &SourceFiles,
    base: Option<BaseModel>,
) -> Result<Description, TrainError> {
    let adapter = match (config.train.adapter.clone(), base) {
        (Some(settings), Some(base)) => Some(AdapterDescription { settings, base }),
        (Some(_), None) => return Err(TrainError::NoBase),
        (None, _) => None,
    };
    let model = &inputs.model;
    let mut raw = model.raw();
    if model.kind() != ModelKind::Decoder {
        let preferred = source.model_type();
        let preferred = preferred.and_then(|name| Family::of_model_type(&name));
        raw.family = exporting_family(model, preferred)?;
    }
    Ok(Description {
        model: raw,
        tokenizer: Some(inputs.tokenizer.spec()),
        chat_template: inputs.chat_template.clone(),
        documents: config.train.documents,
        seq_len: Some(inputs.seq_len).filter(|&tokens| tokens < model.seq_len()),
        adapter,
    })
}

/// The notes on a run before its first step.
fn first_notes<B: TrainingBackend>(
    config: &RunConfig,
    inputs: &RunInputs,
    initial: &InitialState<B>,
    devices: &RankDevices,
) -> Vec<String> {
    let mut notes = inputs.notes.clone();
    notes.extend(initial.notes.iter().cloned());
    notes.extend(config.train.parametrization.note(&inputs.model));
    let limit = config.train.evaluation.token_limit();
    notes.extend(inputs.validation.announcement(limit));
    let backend = &initial.state.backend;
    if let Some(before) = &initial.resumed_backend
        && before != backend
    {
        notes.push(format!(
            "warning: the run was computed on {before} and continues on {backend}; results differ by rounding"
        ));
    }
    notes.extend(export_warning(&inputs.model));
    notes.extend(devices.warnings(config.train.precision.products));
    notes.extend(overfitting::note(&config.train, inputs));
    // Directly above the first loss.
    if initial.state.step == 0 {
        let uniform = UniformLoss::of(&config.train.objective, inputs);
        notes.extend(uniform.map(|loss| loss.to_string()));
    }
    notes
}
