//! `emberlm train`: trains a model on a dataset or the built-in tales.
//!
//! | module | contents |
//! |---|---|
//! | `args` | command-line arguments |
//! | `datasets` | the values of `--data` |
//! | `start` | the model to start from, and the objective |
//! | `resume`, `target` | opens a stopped run, or forks it |
//! | `memory` | memory check and report |
//! | `labels`, `sessions` | writes tags and note; records the command line and the machine |
//! | `stopping` | the steps that are lost without a checkpoint |
//! | `report` | output at the end of a run |

mod args;
pub mod datasets;
mod labels;
mod memory;
mod report;
mod resume;
mod sessions;
pub mod start;
mod stopping;
mod target;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use burn::tensor::Device;
use emberlm_kernels::TrainingBackend;
use emberlm_model::{ModelKind, TransformerConfig};
use emberlm_trainer::fit::predict_rank;
use emberlm_trainer::hooks::Hook;
use emberlm_trainer::run::EpochSize;
use emberlm_trainer::{
    DataConfig, Interrupter, ObjectiveConfig, Renderer, RunConfig, RunOptions, RunResult, RunStart,
    TrainConfig, TrainingData, dashboard, memory_report, run,
};
use emberlm_trainer::{epochs, presets, run_config};

pub use args::TrainArgs;
use stopping::StopReport;

use crate::backend::Job;
use crate::error::CliError;
use crate::opened_model::OpenedModel;
use crate::output::print;
use crate::ranks::Ranks;
use crate::shell::shell_path;
use crate::{built_in_tales, console, ending, model as models, signals};

/// Runs the command, as a single process or as one of a job.
///
/// # Errors
/// Returns an error if the run cannot start or fails.
pub fn run(args: TrainArgs) -> Result<(), CliError> {
    let ranks = Ranks::join()?;
    let trained = train(args, &ranks, |_| {}, Vec::new());
    let is_zero = ranks.rank().is_zero();
    ranks.end(trained.and_then(|trained| match trained {
        Some((result, objective)) if is_zero => report::report(&result, &objective),
        _ => Ok(()),
    }))
}

/// Trains a model with `hooks` beside those of the command line. `change` alters the training settings after all others.
/// Returns `None` if the configuration was only printed.
///
/// # Errors
/// Returns an error if the run cannot start or fails.
pub fn train(
    args: TrainArgs,
    ranks: &Ranks,
    change: impl FnOnce(&mut TrainConfig),
    hooks: Vec<Box<dyn Hook>>,
) -> Result<Option<(RunResult, ObjectiveConfig)>, CliError> {
    let rank = ranks.rank();
    let (mut config, opened, resumed) = match &args.resume {
        Some(run) => {
            let (config, start) = resume::open(run, &args, rank)?;
            (config, None, Some(start))
        }
        None => {
            let (config, opened) = resolve(&args)?;
            (config, opened, None)
        }
    };
    change(&mut config.train);
    if args.print_config {
        if rank.is_zero() {
            print_config(config)?;
        }
        return Ok(None);
    }
    let backend = args.backend.choose()?.of_local_rank(ranks.local_rank());
    config.check()?;
    config.train.objective.check_model(&config.model)?;
    if config.data.is_empty() && config.train.objective.reads_records() {
        return Err(CliError::usage("this objective needs records to train on")
            .hint("give a file of them: --data FILE.jsonl"));
    }
    // One rank writes the dataset that all others use.
    ranks.in_turn(|| {
        if config.data.is_empty() {
            config.data = DataConfig::of(built_in_tales::dataset("emberlm train")?);
            count_epochs(&args, &mut config)?;
        }
        Ok(())
    })?;
    let renderer = match rank.is_zero() {
        true => args.renderer.choose(),
        false => Renderer::Plain,
    };
    if renderer == Renderer::Dashboard && !console::stdout_is_screen() {
        let missing = match console::stdout_is_terminal() {
            true => "a terminal that can move its cursor (TERM is dumb)",
            false => "a terminal",
        };
        return Err(
            CliError::usage(format!("--renderer dashboard needs {missing}"))
                .hint("use --renderer plain"),
        );
    }
    let from = match &resumed {
        Some(start) if start.checkpoint().is_some() => None,
        _ => open_from(&config, opened)?,
    };
    let start = match (resumed, &args.out) {
        (Some(start), _) => start,
        (None, Some(out)) => RunStart::New(out.clone()),
        (None, None) => RunStart::New(free_run_folder(&run_name(&args))),
    };
    let texts = start::RecordTexts::of(from.as_ref(), &config)?;
    let guard = args.memory.guard(backend);
    let guard = guard.shared_by(ranks.local_rank().world_size());
    memory::check(&config, &start, texts.clone(), rank.world_size(), guard)?;
    // No rank allocates before the others have looked at the available memory.
    ranks.wait_for_all();
    let interrupter = Interrupter::new();
    let stop_report = StopReport::default();
    listen(&interrupter, renderer, stop_report.clone())?;
    let hooks = labels::hooks(&args).into_iter().chain(hooks);
    let source = from
        .as_ref()
        .map(|from| from.model().source_files())
        .transpose()?;
    let adapter = config.train.adapter.as_ref();
    let base = from.as_ref().map(|model| model.base(adapter)).transpose()?;
    let options = RunOptions {
        source: source.unwrap_or_default(),
        base: base.flatten(),
        tokenizer: texts.tokenizer,
        chat_template: texts.chat_template,
        renderer,
        tensorboard: args.tensorboard,
        say: Arc::new(|line| console::note(line)),
        interrupter,
        hooks: hooks
            .chain([sessions::hook(backend), stop_report.hook()])
            .collect(),
    };
    let objective = config.train.objective.clone();
    let result = backend.run(Training {
        memory_report: args.memory_report,
        config,
        from,
        start,
        options,
        ranks,
    })??;
    Ok(Some((result, objective)))
}

/// Resolves [`configuration`]. Also returns the model to fine-tune.
fn resolve(args: &TrainArgs) -> Result<(RunConfig, Option<OpenedModel>), CliError> {
    let model = args.from.as_deref().map(OpenedModel::open).transpose()?;
    let config = configuration(args, model.as_ref())?;
    // A setting may have replaced `--from` by another model.
    let model = model.filter(|_| args.from.as_ref() == Some(&config.train.from));
    Ok((config, model))
}

/// The configuration of the preset or of `model`, that of `--from`, with all settings applied.
///
/// # Errors
/// Returns an error if a setting is unknown, or the dataset cannot be opened.
pub fn configuration(args: &TrainArgs, model: Option<&OpenedModel>) -> Result<RunConfig, CliError> {
    let base = match (&args.from, model) {
        (Some(from), Some(model)) => fine_tuning(model, from, args)?,
        _ => start::preset(&args.preset, args.objective)?,
    };
    let mut config = layered(base.clone(), args)?;
    if let Some(shrunk) = presets::shrunk(&base, &config) {
        config = layered(shrunk, args)?;
    }
    if let Some(depth) = args.depth {
        config = layered(presets::of_depth(&config, depth)?, args)?;
    }
    if !config.data.is_empty() {
        count_epochs(args, &mut config)?;
    }
    Ok(config)
}

/// The configuration to fine-tune a model on the dataset selected by the user's settings.
fn fine_tuning(model: &OpenedModel, from: &Path, args: &TrainArgs) -> Result<RunConfig, CliError> {
    let base = model.fine_tuning(from, args.objective, None);
    let given = layered(base.clone(), args)?;
    if given.data.is_empty() {
        return Ok(base);
    }
    let decoder = model.decoder();
    let Some(decoder) = decoder.filter(|_| !given.reads_records()) else {
        if !given.reads_records() {
            return Ok(base);
        }
        let records = run::epoch_size(&given)?.size as usize;
        return Ok(match decoder {
            Some(decoder) if given.reads_conversations() => {
                let model = decoder.config();
                presets::fine_tuning_conversations(model, from, records, &given.train)
            }
            Some(decoder) => {
                let objective = given.train.objective;
                presets::fine_tuning_preferences(decoder.config(), from, objective, records)
            }
            None => model.fine_tuning(from, args.objective, Some(records)),
        });
    };
    let tokens = TrainingData::open(&given.data)?.train_tokens();
    Ok(presets::fine_tuning_on(
        decoder.config(),
        from,
        tokens,
        &given.train,
    ))
}

/// Sets the number of steps for `--epochs` passes over the training split.
fn count_epochs(args: &TrainArgs, config: &mut RunConfig) -> Result<(), CliError> {
    if let Some(count) = args.epochs {
        let EpochSize { size, of_sequence } = run::epoch_size(config)?;
        let train = &mut config.train;
        let sequences = epochs::steps(count, size, of_sequence) as u64;
        train.steps = train.steps_of(sequences);
    }
    Ok(())
}

/// Applies the user's settings to a base configuration.
fn layered(base: RunConfig, args: &TrainArgs) -> Result<RunConfig, CliError> {
    let mut config = run_config::layered(base, args.config.as_deref(), &args.set)?;
    if !args.data.is_empty() {
        let given = datasets::config(&args.data)?;
        config.data = DataConfig {
            validation: config.data.validation,
            tokenizer: config.data.tokenizer,
            ..given
        };
    }
    if let Some(validation) = &args.validation {
        config.data.validation.clone_from(validation);
    }
    args.apply(&mut config.train);
    Ok(config)
}

/// Prints the resolved configuration, with the dataset's vocabulary if there is a dataset.
fn print_config(mut config: RunConfig) -> Result<(), CliError> {
    config.check()?;
    config.train.check_model(&config.model)?;
    let model = config.train.parametrization.applied(&config.model);
    TransformerConfig::try_from(model.with_any_vocabulary())?;
    let is_of_tokens = !config.reads_records();
    if !config.data.is_empty() && config.model.architecture.is_decoder() && is_of_tokens {
        let data = TrainingData::open(&config.data)?;
        run::resolve_model(&mut config, data.first())?;
    }
    let text = run_config::to_toml(&config)?;
    print(&text)
}

/// Returns the model that the run starts from, if any. Its vocabulary must match the dataset's. Opening a
/// model reads all its weights for their hash, so it is opened only once.
fn open_from(
    config: &RunConfig,
    opened: Option<OpenedModel>,
) -> Result<Option<OpenedModel>, CliError> {
    let from = &config.train.from;
    if from.as_os_str().is_empty() {
        return Ok(None);
    }
    let model = match opened {
        Some(model) => model,
        None => OpenedModel::open(from)?,
    };
    models::check_trainable(model.model(), from, config.train.adapter.as_ref())?;
    if !config.reads_records() {
        model.check_dataset(TrainingData::open(&config.data)?.first())?;
    }
    Ok(Some(model))
}

/// The default name of a run, from its preset or the model it starts from.
pub fn run_name(args: &TrainArgs) -> String {
    let from = args.from.as_deref().and_then(Path::file_name);
    let name = from.map(|name| name.to_string_lossy().into_owned());
    name.unwrap_or_else(|| start::preset_name(&args.preset, args.objective).to_owned())
}

/// Returns the first `runs/PRESET-NUMBER` that does not exist.
pub fn free_run_folder(preset: &str) -> PathBuf {
    let folder = |number: usize| Path::new("runs").join(format!("{preset}-{number:03}"));
    (1..)
        .map(folder)
        .find(|folder| !folder.exists())
        .unwrap_or_else(|| folder(0))
}

/// Handles stop signals. The first one ends the run after the current micro-batch, with a checkpoint, and the
/// second one exits immediately. The dashboard displays this message itself.
fn listen(
    interrupter: &Interrupter,
    renderer: Renderer,
    report: StopReport,
) -> Result<(), CliError> {
    let interrupter = interrupter.clone();
    let mut asked = false;
    let handler = move || {
        if asked {
            dashboard::restore_terminal();
            if let (Some(run), Some(loss)) = (report.run(), report.loss()) {
                let run = shell_path(run);
                console::note(format_args!(
                    "Stopped without a checkpoint, which {loss}. To resume: emberlm train --resume {run}"
                ));
            }
            ending::at_once(130);
        }
        asked = true;
        interrupter.stop(Some("interrupted"));
        if renderer == Renderer::Plain {
            let loss = report
                .loss()
                .map_or_else(String::new, |loss| format!(", and {loss}"));
            console::note(format_args!(
                "Stopping after this micro-batch, with a checkpoint of the last whole step. Ctrl-C again stops now, without it{loss}."
            ));
        }
    };
    signals::listen_in_training(handler)
}

struct Training<'a> {
    ranks: &'a Ranks,
    memory_report: bool,
    config: RunConfig,
    from: Option<OpenedModel>,
    start: RunStart,
    options: RunOptions,
}

impl Job for Training<'_> {
    type Output = Result<RunResult, CliError>;

    fn run<B: TrainingBackend>(self, device: Device<B>) -> Self::Output {
        if self.memory_report && self.ranks.rank().is_zero() {
            let texts = start::RecordTexts {
                tokenizer: self.options.tokenizer.clone(),
                chat_template: self.options.chat_template.clone(),
            };
            let ranks = self.ranks.rank().world_size();
            report_memory::<B>(&self.config, &self.start, texts, ranks, &device)?;
        }
        let weights = self.from.map(OpenedModel::weights::<B>);
        let peers = self.ranks.peers(self.config.train.exchange, &device)?;
        let mut training = emberlm_trainer::Training::<B>::new(self.config, self.start)
            .options(self.options)
            .device(device)
            .peers(peers);
        if let Some(weights) = weights {
            training = training.weights(weights);
        }
        training.run().map_err(|error| {
            self.ranks.leave_to_reporting_rank(&error);
            error.into()
        })
    }
}

/// Prints the memory of a step to stderr, like the run's progress.
fn report_memory<B: TrainingBackend>(
    config: &RunConfig,
    start: &RunStart,
    texts: start::RecordTexts,
    ranks: usize,
    device: &Device<B>,
) -> Result<(), CliError> {
    let (model, train) = run::sized(config, start, texts.tokenizer, texts.chat_template)?;
    let measured = match model.kind() {
        ModelKind::Decoder => memory_report::measure::<B>(&model, &train, device)?,
        ModelKind::Encoder | ModelKind::EncoderDecoder => None,
    };
    let text = match measured {
        Some(report) => memory::measured(&report),
        None => {
            let program = emberlm_trainer::memory::resident().unwrap_or(0);
            memory::predicted(&predict_rank(&model, &train, ranks, program)?)
        }
    };
    text.lines().for_each(console::note);
    Ok(())
}
