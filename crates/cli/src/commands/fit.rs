//! `emberlm fit`: predicts and measures the memory of training, and finds a step that fits.

mod progress;
mod report;
mod resolve;

use std::io::Write;
use std::num::NonZero;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use bytesize::ByteSize;
use clap::Args;
use emberlm_model::TransformerConfig;
use emberlm_trainer::config::ObjectiveKind;
use emberlm_trainer::fit::{Plan, Prediction, plans, predict_rank};
use emberlm_trainer::{RunConfig, memory};
use emberlm_trainer::{presets, run_config};
use serde::{Deserialize, Serialize};

use super::train::start;
use crate::backend::{BackendArg, BackendName, Placement};
use crate::error::CliError;
use crate::examples;
use crate::opened_model::OpenedModel;
use crate::output::{print, print_json, size};
use crate::ranks::Ranks;
use crate::shell::{shell_path, shell_word};
use crate::{console, model as models, values};

pub use report::parts;

/// Arguments of `fit`.
#[derive(Debug, Args)]
#[command(after_help = examples::FIT)]
pub struct FitArgs {
    /// A model with its training settings; `emberlm info` lists them
    #[arg(long, value_name = "NAME", default_value = presets::DEFAULT)]
    pub preset: String,
    /// A model to fine-tune: a run, checkpoint or Hugging Face directory
    #[arg(long, value_name = "MODEL", conflicts_with = "preset")]
    pub from: Option<PathBuf>,
    /// The training objective [default: next-token, or that of the model of --from]
    #[arg(long, value_parser = values::objective_parser())]
    pub objective: Option<ObjectiveKind>,
    /// Memory limit of training, such as 8GiB [default: the memory available now]
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    pub memory: Option<ByteSize>,
    /// The number of ranks that train together, of which one is predicted [default: those of the launcher, or 1]
    #[arg(long, value_name = "N")]
    pub ranks: Option<NonZero<usize>>,
    /// A setting that overrides the preset, such as model.d_model=256; can be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// The dataset's folder, or a file of records; sets the vocabulary size, and for records the longest text
    #[arg(long, value_name = "DATASET")]
    pub data: Option<PathBuf>,
    /// Predict only; do not measure a step
    #[arg(long)]
    pub no_measure: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub backend: BackendArg,
}

/// The memory of an MPI library in a rank, measured with Open MPI 4.1 on one machine. A process without a launcher has not
/// loaded it.
const MPI: u64 = 17 << 20;

/// Number of proposals to measure. Later ones are returned unmeasured.
const TRIES: usize = 3;

/// The command's output.
#[derive(Serialize)]
struct Fit {
    /// `None` with `--from`.
    preset: Option<String>,
    /// The model to fine-tune.
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<PathBuf>,
    /// The number of ranks. Memory is that of one of them.
    ranks: usize,
    /// The memory limit in bytes.
    memory: u64,
    /// The vocabulary size, which is assumed if a dataset would determine it.
    vocab_size: usize,
    vocab_size_assumed: bool,
    asked: PlanEstimate,
    /// `None` if nothing fits.
    proposal: Option<PlanEstimate>,
    /// The command that trains with the proposal.
    command: Option<String>,
}

/// A plan for a training step with its memory.
#[derive(Clone, Serialize)]
struct PlanEstimate {
    #[serde(flatten)]
    plan: Plan,
    predicted: Prediction,
    /// Peak memory of a process that runs two steps. `None` if not measured.
    measured: Option<u64>,
    seconds_per_step: Option<f64>,
}

impl PlanEstimate {
    /// The measured memory, or else the predicted memory.
    fn known(&self) -> u64 {
        self.measured.unwrap_or(self.predicted.total)
    }
}

/// The output of `emberlm fit-step`.
#[derive(Deserialize)]
struct Step {
    peak_bytes: Option<u64>,
    seconds_per_step: f64,
}

/// Runs the command.
///
/// # Errors
/// Returns an error if the configuration is invalid, no plan fits, or a step cannot be measured.
pub fn run(args: FitArgs) -> Result<(), CliError> {
    let ranks = Ranks::join()?;
    // The prediction is the same for all.
    let result = match ranks.rank().is_zero() {
        true => run_for(args, &ranks),
        false => Ok(()),
    };
    ranks.end(result)
}

fn run_for(args: FitArgs, job: &Ranks) -> Result<(), CliError> {
    let launched = job.rank().world_size();
    let ranks = args.ranks.map_or(launched, NonZero::get);
    let backend = args.backend.choose()?;
    if !matches!(backend.backend, BackendName::Flex | BackendName::Ndarray) {
        let message =
            format!("fit predicts the memory of a process, not that of a {backend} device");
        return Err(CliError::usage(message).hint("use a CPU backend: --backend flex"));
    }
    let memory = match args.memory {
        Some(size) => size.as_u64(),
        None => {
            let available = memory::available().ok_or_else(|| {
                CliError::new("this system does not report how much memory is available")
                    .hint("give it: --memory 8GiB")
            })?;
            available.bytes / job.local_rank().world_size() as u64
        }
    };
    let opened = args.from.as_deref().map(OpenedModel::open);
    let opened = opened.transpose()?;
    let base = match (&args.from, &opened) {
        (Some(from), Some(model)) => model.fine_tuning(from, args.objective, None),
        _ => start::preset(&args.preset, args.objective)?,
    };
    let mut config = run_config::layered(base.clone(), None, &args.set)?;
    if let Some(shrunk) = presets::shrunk(&base, &config) {
        config = run_config::layered(shrunk, None, &args.set)?;
    }
    config.train.objective.check_model(&config.model)?;
    if let (Some(from), Some(model)) = (&args.from, &opened) {
        models::check_trainable(model.model(), from, config.train.adapter.as_ref())?;
    }
    let vocab_size_assumed = args.data.is_none() && config.model.vocab_size.is_none();
    if let Some(data) = &args.data {
        config.data.dataset.clone_from(data);
    }
    let texts = start::RecordTexts::of(opened.as_ref(), &config)?;
    let model = resolve::resolve(&mut config, args.data.as_deref(), texts)?;
    let library = if ranks > 1 && launched == 1 { MPI } else { 0 };
    let fitter = Fitter {
        args: &args,
        backend,
        config,
        model,
        ranks,
        memory,
        program: memory::resident().unwrap_or(0) + library,
    };
    let asked = fitter.requested()?;
    let proposal = fitter.propose(&asked)?;
    let fit = Fit {
        preset: args.from.is_none().then(|| preset_name(&args)),
        from: args.from.clone(),
        ranks,
        memory,
        vocab_size: fitter.model.vocab_size(),
        vocab_size_assumed,
        command: proposal
            .as_ref()
            .map(|proposal| fitter.command(proposal.plan)),
        asked,
        proposal,
    };
    match args.json {
        true => print_json(&fit)?,
        false => print(&fit.text())?,
    }
    match fit.proposal {
        Some(_) => Ok(()),
        None => Err(fitter.too_small()?),
    }
}

/// The preset that is trained.
fn preset_name(args: &FitArgs) -> String {
    start::preset_name(&args.preset, args.objective).to_owned()
}

struct Fitter<'a> {
    args: &'a FitArgs,
    backend: Placement,
    config: RunConfig,
    model: TransformerConfig,
    ranks: usize,
    memory: u64,
    /// The memory of this process, with an MPI library if there are several ranks. The measured process is the same
    /// program.
    program: u64,
}

impl Fitter<'_> {
    fn estimate(&self, plan: Plan) -> Result<PlanEstimate, CliError> {
        let train = plan.over(&self.config.train);
        Ok(PlanEstimate {
            plan,
            predicted: predict_rank(&self.model, &train, self.ranks, self.program)?,
            measured: None,
            seconds_per_step: None,
        })
    }

    /// The configuration as requested, measured if its prediction fits.
    fn requested(&self) -> Result<PlanEstimate, CliError> {
        let asked = self.estimate(Plan::of(&self.config.train))?;
        match asked.predicted.total <= self.memory {
            true => self.measured(asked),
            false => Ok(asked),
        }
    }

    /// Returns the fastest plan that fits, corrected by the measured error of the requested plan's
    /// prediction.
    fn propose(&self, asked: &PlanEstimate) -> Result<Option<PlanEstimate>, CliError> {
        let off = asked.known() as f64 / asked.predicted.total as f64;
        let mut tries = 0;
        for plan in self.plans() {
            if plan == asked.plan {
                if asked.known() <= self.memory {
                    return Ok(Some(asked.clone()));
                }
                continue;
            }
            let mut proposal = self.estimate(plan)?;
            if proposal.predicted.total as f64 * off.max(1.0) > self.memory as f64 {
                continue;
            }
            if tries < TRIES {
                tries += 1;
                proposal = self.measured(proposal)?;
            }
            if proposal.known() <= self.memory {
                return Ok(Some(proposal));
            }
        }
        Ok(None)
    }

    /// The divisions of the step that the ranks can share.
    fn plans(&self) -> Vec<Plan> {
        let mut plans = plans(&self.config.train);
        plans.retain(|plan| plan.accumulation.is_multiple_of(self.ranks));
        plans
    }

    /// Measures two steps in a child process, since the first one allocates the optimizer state. Two
    /// micro-batches per step and rank are enough: later ones need no additional memory.
    fn measured(&self, estimate: PlanEstimate) -> Result<PlanEstimate, CliError> {
        if self.args.no_measure {
            return Ok(estimate);
        }
        let mut config = self.config.clone();
        config.train = estimate.plan.over(&config.train);
        config.train.accumulation = config.train.accumulation.min(2 * self.ranks);
        let failed = |what: &str| CliError::new(format!("cannot measure a step: {what}"));
        let io = |error: std::io::Error| failed(&error.to_string());
        let mut file = tempfile::NamedTempFile::new().map_err(io)?;
        file.write_all(run_config::to_toml(&config)?.as_bytes())
            .map_err(io)?;
        let program = std::env::current_exe().map_err(io)?;
        let mut command = Command::new(program);
        command
            .arg("fit-step")
            .arg("--config")
            .arg(file.path())
            .args(["--backend", &self.backend.to_string()])
            .args(["--ranks", &self.ranks.to_string()])
            .stdin(Stdio::null());
        let output = match self.args.json {
            true => command.output(),
            false => progress::observed(&estimate, || command.output()),
        };
        let output = output.map_err(io)?;
        if !output.status.success() {
            let stderr = String::from_utf8_lossy(&output.stderr);
            stderr.lines().for_each(console::note);
            return Err(failed(&format!("its process ended with {}", output.status))
                .hint("it may have run out of memory: lower --memory, or use --no-measure"));
        }
        let step: Step =
            serde_json::from_slice(&output.stdout).map_err(|error| failed(&error.to_string()))?;
        // The child process simulates the other ranks.
        let library = if self.ranks > 1 { MPI } else { 0 };
        let measured = PlanEstimate {
            measured: step.peak_bytes.map(|bytes| bytes + library),
            seconds_per_step: Some(
                step.seconds_per_step * estimate.plan.accumulation as f64
                    / config.train.accumulation as f64,
            ),
            ..estimate
        };
        if !self.args.json {
            progress::report(&measured);
        }
        Ok(measured)
    }

    /// The training command for a plan.
    fn command(&self, plan: Plan) -> String {
        let launcher = match self.ranks {
            1 => String::new(),
            ranks => format!("mpirun -n {ranks} "),
        };
        let mut words = vec![
            format!("{launcher}emberlm train"),
            match &self.args.from {
                Some(from) => format!("--from {}", shell_path(from)),
                None => format!("--preset {}", shell_word(&preset_name(self.args))),
            },
        ];
        if let Some(objective) = self.args.objective {
            words.push(format!("--objective {}", values::objective_name(objective)));
        }
        if let Some(data) = &self.args.data {
            words.extend(["--data".to_owned(), shell_path(data)]);
        }
        for setting in &self.args.set {
            words.extend(["--set".to_owned(), shell_word(setting)]);
        }
        words.push(plan.options(&self.config.train));
        words.join(" ")
    }

    fn too_small(&self) -> Result<CliError, CliError> {
        let least = self
            .plans()
            .into_iter()
            .map(|plan| Ok(self.estimate(plan)?.predicted.total))
            .collect::<Result<Vec<u64>, CliError>>()?;
        let least = least.into_iter().min().unwrap_or(0);
        let of_rank = if self.ranks > 1 { " per rank" } else { "" };
        let message = format!(
            "no micro-batch size makes this step fit in {}{of_rank}: the smallest, with recomputation, takes about {}",
            size(self.memory),
            size(least)
        );
        Ok(CliError::new(message)
            .hint(format!(
                "raise the limit, such as --memory {}",
                rounded_up(least)
            ))
            .hint("or use a smaller model or sequence, such as --set train.seq_len=128"))
    }
}

/// Rounds a size up to a value that can be typed as an option.
fn rounded_up(bytes: u64) -> String {
    const GIB: u64 = 1 << 30;
    match bytes.div_ceil(1 << 20) {
        mib if mib < 1024 => format!("{mib}MiB"),
        _ => format!("{}GiB", bytes.div_ceil(GIB)),
    }
}
