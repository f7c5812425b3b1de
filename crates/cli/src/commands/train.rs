//! `emberlm train`: from a dataset, or the built-in tales, to a model that writes.

use std::io::{IsTerminal, Write, stderr, stdin, stdout};
use std::path::{Path, PathBuf};

use burn::tensor::Device;
use clap::{Args, ValueEnum};
use emberlm_data::{Dataset, TalesConfig, write_tales_dataset};
use emberlm_kernels::TrainingBackend;
use emberlm_trainer::{Interrupter, Outcome, Renderer, RunConfig, dashboard, run};

use crate::backend::{BackendArg, Job};
use crate::error::CliError;
use crate::model_source::Model;
use crate::{presets, run_config};

/// Arguments of `train`.
#[derive(Debug, Args)]
pub struct TrainArgs {
    /// The dataset's folder, made by `emberlm prepare` [default: the built-in tales]
    #[arg(long, value_name = "DATASET")]
    pub data: Option<PathBuf>,
    /// A model with the way it is trained; `emberlm info` lists them
    #[arg(long, value_name = "NAME", default_value = presets::DEFAULT)]
    pub preset: String,
    /// A model to go on from: a run, checkpoint or Hugging Face directory (train.from)
    #[arg(long, value_name = "MODEL", conflicts_with = "preset")]
    pub from: Option<PathBuf>,
    /// The run's folder [default: runs/PRESET-NUMBER]
    #[arg(long, value_name = "RUN")]
    pub out: Option<PathBuf>,
    /// A TOML file over the preset
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// One value over both, such as model.d_model=256; may be given again
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Updates in all (train.steps)
    #[arg(long, value_name = "N")]
    pub steps: Option<usize>,
    /// What first weights, data order and dropout are drawn from (train.seed)
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Steps between two evaluations (train.eval_interval)
    #[arg(long, value_name = "N")]
    pub eval_interval: Option<usize>,
    /// Micro-batches per step (train.accumulation)
    #[arg(long, value_name = "N")]
    pub accumulation: Option<usize>,
    /// Compute each block's inside again for its gradients: less memory, more time (train.recompute)
    #[arg(long)]
    pub recompute: bool,
    /// How to show progress
    #[arg(long, value_enum, default_value_t = RendererArg::Auto)]
    pub renderer: RendererArg,
    /// Print the resolved configuration with comments, and end
    #[arg(long)]
    pub print_config: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub backend: BackendArg,
}

/// How a run shows itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RendererArg {
    /// The dashboard in a terminal, plain lines elsewhere
    Auto,
    /// Burn's dashboard
    Dashboard,
    /// A line per logged step, on stderr
    Plain,
}

impl RendererArg {
    fn choose(self) -> Renderer {
        let terminal = stdout().is_terminal() && stdin().is_terminal();
        match self {
            Self::Auto if terminal => Renderer::Dashboard,
            Self::Auto | Self::Plain => Renderer::Plain,
            Self::Dashboard => Renderer::Dashboard,
        }
    }
}

/// Runs the command.
///
/// # Errors
/// Whatever keeps the run from its end.
pub fn run(args: TrainArgs) -> Result<(), CliError> {
    let (mut config, opened) = resolve(&args)?;
    if args.print_config {
        return print_config(config);
    }
    let backend = args.backend.choose()?;
    config.train.check()?;
    if config.data.dataset.as_os_str().is_empty() {
        config.data.dataset = built_in_tales()?;
    }
    let out = match &args.out {
        Some(out) => out.clone(),
        None => free_run_folder(&run_name(&args)),
    };
    let renderer = args.renderer.choose();
    if renderer == Renderer::Dashboard && !stdout().is_terminal() {
        return Err(
            CliError::usage("--renderer dashboard needs a terminal").hint("use --renderer plain")
        );
    }
    let from = open_from(&config, opened)?;
    let interrupter = Interrupter::new();
    listen(&interrupter)?;
    let text = |config: &RunConfig| run_config::to_toml(config).unwrap_or_default();
    let outcome = backend.run(Training {
        config,
        from,
        out,
        text,
        renderer,
        interrupter,
    })??;
    report(&outcome)
}

/// The preset, or the model to go on from, with everything that was said over it; and that model.
fn resolve(args: &TrainArgs) -> Result<(RunConfig, Option<Model>), CliError> {
    let model = args.from.as_deref().map(Model::open).transpose()?;
    let base = match (&args.from, &model) {
        (Some(from), Some(model)) => presets::fine_tuning(model.config(), from),
        _ => presets::run(&args.preset)?,
    };
    let mut config = run_config::layered(base, args.config.as_deref(), &args.set)?;
    if let Some(data) = &args.data {
        config.data.dataset = data.clone();
    }
    let train = &mut config.train;
    train.steps = args.steps.unwrap_or(train.steps);
    train.seed = args.seed.unwrap_or(train.seed);
    train.eval_interval = args.eval_interval.unwrap_or(train.eval_interval);
    train.accumulation = args.accumulation.unwrap_or(train.accumulation);
    train.recompute |= args.recompute;
    // A setting over it may name another.
    let model = model.filter(|_| args.from.as_ref() == Some(&config.train.from));
    Ok((config, model))
}

/// What would be trained: with the dataset's vocabulary, where there is a dataset.
fn print_config(mut config: RunConfig) -> Result<(), CliError> {
    config.train.check()?;
    if !config.data.dataset.as_os_str().is_empty() {
        let dataset = Dataset::open(&config.data.dataset)?;
        run::resolve_model(&mut config, &dataset)?;
    }
    let text = run_config::to_toml(&config)?;
    stdout()
        .write_all(text.as_bytes())
        .map_err(CliError::stdout)
}

/// The dataset of the built-in tales, made where it is not there yet.
fn built_in_tales() -> Result<PathBuf, CliError> {
    let folder = Path::new("datasets").join("tales");
    if Dataset::open(&folder).is_err() {
        let command = "emberlm train";
        write_tales_dataset(&folder, &TalesConfig::default(), false, command)?;
        eprintln!("Wrote the built-in tales to {}", folder.display());
    }
    Ok(folder)
}

/// The model that the run goes on from, if there is one; its tokens must be the dataset's. Opening one reads all its
/// weights for their hash, so it is not done again.
fn open_from(config: &RunConfig, opened: Option<Model>) -> Result<Option<Model>, CliError> {
    let from = &config.train.from;
    if from.as_os_str().is_empty() {
        return Ok(None);
    }
    let model = match opened {
        Some(model) => model,
        None => Model::open(from)?,
    };
    model.check_dataset(&Dataset::open(&config.data.dataset)?)?;
    Ok(Some(model))
}

/// What the run is called where nothing is said: after its preset, or the model that it goes on from.
fn run_name(args: &TrainArgs) -> String {
    let from = args.from.as_deref().and_then(Path::file_name);
    let name = from.map(|name| name.to_string_lossy().into_owned());
    name.unwrap_or_else(|| args.preset.clone())
}

/// The first `runs/PRESET-NUMBER` that is not there.
fn free_run_folder(preset: &str) -> PathBuf {
    let folder = |number: usize| Path::new("runs").join(format!("{preset}-{number:03}"));
    (1..)
        .map(folder)
        .find(|folder| !folder.exists())
        .unwrap_or_else(|| folder(0))
}

/// Ctrl-C ends the run with a checkpoint; the second time it ends at once.
fn listen(interrupter: &Interrupter) -> Result<(), CliError> {
    let interrupter = interrupter.clone();
    let mut asked = false;
    ctrlc::set_handler(move || {
        if asked {
            dashboard::restore_terminal();
            std::process::exit(130);
        }
        asked = true;
        interrupter.stop(Some("interrupted"));
    })
    .map_err(|error| CliError::new(format!("cannot listen for Ctrl-C: {error}")))
}

struct Training<T> {
    config: RunConfig,
    from: Option<Model>,
    out: PathBuf,
    text: T,
    renderer: Renderer,
    interrupter: Interrupter,
}

impl<T: FnOnce(&RunConfig) -> String> Job for Training<T> {
    type Output = Result<Outcome, CliError>;

    fn run<B: TrainingBackend>(self, device: Device<B>) -> Self::Output {
        let weights = self.from.map(|model| model.decoder::<B>(&device));
        let outcome = emberlm_trainer::train::<B>(
            self.config,
            weights.transpose()?,
            &self.out,
            self.text,
            self.renderer,
            self.interrupter,
            device,
        );
        Ok(outcome?)
    }
}

/// What came of it, and what to do next.
fn report(outcome: &Outcome) -> Result<(), CliError> {
    let mut text = String::new();
    let progressed = &outcome.progressed;
    let run = outcome.run.display();
    if progressed.interrupted {
        eprintln!("Stopped after step {}.", progressed.step);
    }
    if let Some(loss) = progressed.validation_loss {
        text += &format!("Validation loss  {loss:.4} nats per token\n");
        if let Some(floor) = &outcome.floor {
            let (nats, source) = (floor.nats_per_token, &floor.source);
            text += &format!("Floor            {nats:.4} nats per token: {source}\n");
        }
    }
    if let Some(sample) = &progressed.sample {
        text += &format!("Sample\n{}\n", indented(sample));
    }
    text += &format!("Run              {run}\n");
    if progressed.checkpoint.is_some() {
        text += &format!("To write more    {} generate {run}\n", program());
    }
    let mut out = stdout().lock();
    out.write_all(text.as_bytes()).map_err(CliError::stdout)?;
    let _ = stderr().flush();
    out.flush().map_err(CliError::stdout)
}

/// Columns of the sample's text: it is read, not copied.
const COLUMNS: usize = 78;

/// The text's lines indented, each broken between words where it is long.
fn indented(text: &str) -> String {
    let mut out = String::new();
    for line in text.trim().lines().filter(|line| !line.is_empty()) {
        let mut column = COLUMNS;
        for word in line.split(' ') {
            let width = word.chars().count() + 1;
            if column + width > COLUMNS {
                out += if out.is_empty() { " " } else { "\n " };
                column = 0;
            }
            out.push(' ');
            out += word;
            column += width;
        }
    }
    out
}

/// How the user can start this program again: by Cargo where Cargo built it.
fn program() -> &'static str {
    let built_here = std::env::current_exe().is_ok_and(|exe| {
        let mut folders = exe.components().rev().skip(1);
        folders.any(|folder| folder.as_os_str() == "target")
    });
    if built_here {
        "cargo run --release --"
    } else {
        "emberlm"
    }
}

#[cfg(test)]
mod tests {
    use super::indented;

    #[test]
    fn a_sample_is_broken_between_words() {
        assert_eq!(indented("one two\n\nthree\n"), "  one two\n  three");
        let text = indented(&"word ".repeat(40));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(
            lines
                .iter()
                .all(|line| line.starts_with("  word") && line.len() <= 80)
        );
    }
}
