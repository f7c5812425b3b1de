//! `emberlm scale plan`: the runs of an isoFLOP study within a time, as a sweep file.

use std::fs;
use std::path::PathBuf;

use clap::Args;
use emberlm_system::write::write_whole;
use emberlm_trainer::{presets, run_config};
use toml::{Table as TomlTable, Value};

use super::base::Base;
use super::sizes::{Size, nearest};
use super::speed::Speed;
use super::{INTERVAL, STUDY_FILE};
use crate::backend::BackendArg;
use crate::commands::sweep::{Settings, SweepFile};
use crate::error::CliError;
use crate::examples;
use crate::new_folder::folder_parser;
use crate::output::{Align, Table, print};
use crate::plot::short;
use crate::shell::shell_path;
use crate::values;

/// Arguments of `scale plan`.
#[derive(Debug, Args)]
#[command(after_help = examples::SCALE)]
pub struct PlanArgs {
    /// The folder of the study
    #[arg(value_name = "DIR", value_parser = folder_parser("a study"))]
    pub dir: PathBuf,
    /// The time of all runs together, such as 90s, 10m or 2h
    #[arg(long, value_name = "TIME", value_parser = values::duration, required_unless_present = "flops")]
    pub time: Option<f64>,
    /// The operations of each run of the largest budget, such as 1e15, instead of --time
    #[arg(long, value_name = "C", value_parser = values::positive, conflicts_with = "time")]
    pub flops: Option<f64>,
    /// Number of budgets
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = values::at_least::<2>)]
    pub budgets: usize,
    /// Factor between budgets
    #[arg(long, value_name = "FACTOR", default_value = "2", value_parser = values::spacing)]
    pub spacing: f64,
    /// Number of model sizes per budget
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = values::at_least::<3>)]
    pub sizes: usize,
    /// Factor between the sizes of a budget
    #[arg(long, value_name = "FACTOR", default_value = "2", value_parser = values::spacing)]
    pub size_spacing: f64,
    /// Tokens per parameter of the middle size
    #[arg(long, value_name = "RATIO", default_value = "20", value_parser = values::positive)]
    pub ratio: f64,
    /// Seeds of each run
    #[arg(long, value_name = "N", num_args = 1.., default_values_t = [1])]
    pub seeds: Vec<u64>,
    /// The shape of the models and the training settings; `emberlm info` lists them
    #[arg(long, value_name = "NAME", default_value = presets::DEFAULT)]
    pub preset: String,
    /// A configuration file over the preset
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The dataset's folder [default: the built-in tales]
    #[arg(long, value_name = "DATASET")]
    pub data: Option<PathBuf>,
    /// A setting of all runs, such as train.schedule.learning_rate=3e-3; can be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// The speed of training in operations per second [default: measured]
    #[arg(long, value_name = "SPEED", value_parser = values::positive)]
    pub flops_per_second: Option<f64>,
    /// Print the plan, and write nothing
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub backend: BackendArg,
}

/// A planned run.
struct Run {
    budget: f64,
    size: Size,
    steps: usize,
    tokens: f64,
    seconds: f64,
}

/// Runs with fewer steps say more about their start than about their size.
const FEW_STEPS: usize = 100;
/// Seconds of the start of a run.
const START: f64 = 0.5;
/// Number of times that the largest budget is adapted to the time.
const ROUNDS: usize = 8;

/// Plans the study.
///
/// # Errors
/// Returns an error if the configuration is invalid, the time is too short, or the folder has a study.
pub fn run(args: &PlanArgs) -> Result<(), CliError> {
    let path = args.dir.join(STUDY_FILE);
    if path.exists() && !args.dry_run {
        let dir = shell_path(&args.dir);
        return Err(CliError::new(format!("{} exists", path.display()))
            .hint(format!("run it: emberlm scale run {dir}"))
            .hint("or choose another folder"));
    }
    let mut file = SweepFile {
        preset: Some(args.preset.clone()),
        from: None,
        config: args.config.clone(),
        data: args.data.clone(),
        common: common(&args.set)?,
        runs: Vec::new(),
        random_seed: None,
        early_stopping: None,
    };
    let base = Base::of(&file)?;
    let mut speed = match args.flops_per_second {
        Some(given) => Speed::given(given),
        None => Speed::measured(args.backend.choose()?, base.train.clone()),
    };
    let runs = planned(args, &base, &mut speed)?;
    print(&table(&runs, args, &base))?;
    if args.dry_run {
        return Ok(());
    }
    let steps = runs.iter().map(|run| run.steps).max().unwrap_or(1);
    // Only the loss at the end counts.
    for (key, value) in [(INTERVAL, steps), ("train.evaluation.sample_tokens", 0)] {
        if !file.common.iter().any(|(known, _)| known == key) {
            let value = i64::try_from(value).unwrap_or(i64::MAX);
            file.common.push((key.to_owned(), Value::Integer(value)));
        }
    }
    fs::create_dir_all(&args.dir).map_err(CliError::io("create", &args.dir))?;
    let settings = runs.iter().map(|run| base.settings(&run.size, run.steps));
    let text = to_toml(&file, settings, &args.seeds)?;
    write_whole(&path, text.as_bytes()).map_err(CliError::io("write", &path))?;
    let dir = shell_path(&args.dir);
    print(&format!(
        "{}\nnext: emberlm scale run {dir}\n",
        path.display()
    ))
}

/// The runs of the largest budgets that fit into the time.
fn planned(args: &PlanArgs, base: &Base, speed: &mut Speed) -> Result<Vec<Run>, CliError> {
    if let Some(flops) = args.flops {
        let mut runs = runs(args, base, flops)?;
        speed.prepare(&sizes(&runs))?;
        time(&mut runs, base, speed);
        return Ok(runs);
    }
    let seconds = args.time.unwrap_or_default();
    // A small model first: larger ones are measured if the time is enough to train them.
    let first = nearest(&base.model, 1e5)?;
    speed.prepare(std::slice::from_ref(&first))?;
    let per_budget = (args.sizes * args.seeds.len()) as f64;
    let budgets: f64 = (0..args.budgets as i32)
        .map(|at| args.spacing.powi(-at))
        .sum();
    let mut largest = seconds * speed.of(first.parameters) / (per_budget * budgets);
    for _ in 0..ROUNDS {
        let mut now = runs(args, base, largest)?;
        speed.prepare(&sizes(&now))?;
        let all = args.seeds.len() as f64 * time(&mut now, base, speed);
        let off = seconds / all;
        if (0.97..=1.0).contains(&off) {
            return Ok(now);
        }
        // A time that is a little shorter ends within the limits above.
        largest *= 0.985 * off;
    }
    let mut last = runs(args, base, largest)?;
    speed.prepare(&sizes(&last))?;
    time(&mut last, base, speed);
    Ok(last)
}

/// The runs of the budgets up to `largest`.
fn runs(args: &PlanArgs, base: &Base, largest: f64) -> Result<Vec<Run>, CliError> {
    let mut runs = Vec::new();
    for number in (0..args.budgets as i32).rev() {
        let budget = largest * args.spacing.powi(-number);
        let middle = middle(args, base, budget)?;
        let mut last = 0.0;
        let mut distinct = 0;
        for number in 0..args.sizes {
            let place = number as f64 - (args.sizes - 1) as f64 / 2.0;
            let size = nearest(&base.model, middle * args.size_spacing.powf(place))?;
            if size.parameters <= last {
                continue;
            }
            (last, distinct) = (size.parameters, distinct + 1);
            let steps = base.steps(budget / size.flops_per_token);
            runs.push(Run {
                budget,
                steps,
                tokens: steps as f64 * base.step_tokens,
                size,
                seconds: 0.0,
            });
        }
        if distinct < 3 {
            return Err(CliError::usage(format!(
                "the budget of {budget:.2e} operations must have at least 3 model sizes (got {distinct})"
            ))
            .hint("raise --time or --flops, or lower --budgets: the preset has no smaller models"));
        }
    }
    Ok(runs)
}

/// The parameters with `--ratio` tokens per parameter: `N = √(C / (ratio · k))` with the model's `k = FLOPs per token / N`.
fn middle(args: &PlanArgs, base: &Base, budget: f64) -> Result<f64, CliError> {
    let mut middle = (budget / (6.0 * args.ratio)).sqrt();
    for _ in 0..4 {
        let size = nearest(&base.model, middle)?;
        middle = (budget * size.parameters / (args.ratio * size.flops_per_token)).sqrt();
    }
    Ok(middle)
}

fn sizes(runs: &[Run]) -> Vec<Size> {
    runs.iter().map(|run| run.size.clone()).collect()
}

/// Sets the predicted seconds of each run, and returns their sum.
fn time(runs: &mut [Run], base: &Base, speed: &Speed) -> f64 {
    for run in runs.iter_mut() {
        // An evaluation has only the forward pass.
        let tokens = run.tokens + base.evaluation_tokens / 3.0;
        run.seconds = START + tokens * run.size.flops_per_token / speed.of(run.size.parameters);
    }
    runs.iter().map(|run| run.seconds).sum()
}

/// Parses the common settings as those of a sweep file.
fn common(set: &[String]) -> Result<Settings, CliError> {
    let parsed = set.iter().map(|setting| {
        let (key, text) = setting
            .split_once('=')
            .ok_or_else(|| CliError::usage(format!("--set must be KEY=VALUE (got {setting})")))?;
        Ok((key.trim().to_owned(), run_config::setting_value(text)))
    });
    parsed.collect()
}

/// The sweep file of the study.
fn to_toml(
    file: &SweepFile,
    runs: impl Iterator<Item = Settings>,
    seeds: &[u64],
) -> Result<String, CliError> {
    let mut all = TomlTable::new();
    let path = |path: &PathBuf| Value::String(path.to_string_lossy().into_owned());
    let strings = [
        ("preset", file.preset.clone().map(Value::String)),
        ("config", file.config.as_ref().map(path)),
        ("data", file.data.as_ref().map(path)),
    ];
    for (key, value) in strings {
        all.extend(value.map(|value| (key.to_owned(), value)));
    }
    let table = |settings: Settings| Value::Table(settings.into_iter().collect());
    all.insert("set".to_owned(), table(file.common.clone()));
    let seeds = seeds
        .iter()
        .map(|seed| Value::Integer(i64::try_from(*seed).unwrap_or(i64::MAX)));
    let seeds = vec![("train.seed".to_owned(), Value::Array(seeds.collect()))];
    all.insert("grid".to_owned(), table(seeds));
    all.insert("list".to_owned(), Value::Array(runs.map(table).collect()));
    let text = toml::to_string(&all)
        .map_err(|error| CliError::new(format!("the plan cannot be written as TOML: {error}")))?;
    Ok(format!(
        "# A sweep file, made by `emberlm scale plan`; `emberlm scale run` trains its runs.\n{text}"
    ))
}

fn table(runs: &[Run], args: &PlanArgs, base: &Base) -> String {
    let mut table = Table::new([Align::Right; 7]);
    table.row([
        "FLOPs",
        "parameters",
        "width",
        "blocks",
        "tokens",
        "steps",
        "time",
    ]);
    for run in runs {
        table.row([
            format!("{:.2e}", run.budget),
            short(run.size.parameters),
            run.size.d_model.to_string(),
            run.size.n_layers.to_string(),
            short(run.tokens),
            run.steps.to_string(),
            seconds(run.seconds),
        ]);
    }
    let seeds = args.seeds.len();
    let all = seeds as f64 * runs.iter().map(|run| run.seconds).sum::<f64>();
    let mut text = table.render();
    text += &format!("{} runs, about {}\n", seeds * runs.len(), seconds(all));
    let few = runs.iter().filter(|run| run.steps < FEW_STEPS).count();
    if few > 0 {
        text += &format!(
            "{few} models have fewer than {FEW_STEPS} steps: raise the budget, or lower train.micro_batch\n"
        );
    }
    let most = runs.iter().map(|run| run.tokens).fold(0.0, f64::max);
    if most > base.data_tokens {
        text += &format!(
            "the dataset is repeated up to {:.1} times: the law of repeated data is another one\n",
            most / base.data_tokens
        );
    }
    text
}

/// A time in seconds, minutes or hours.
fn seconds(seconds: f64) -> String {
    match seconds {
        ..99.5 => format!("{seconds:.0} s"),
        ..5940.0 => format!("{:.1} min", seconds / 60.0),
        _ => format!("{:.1} h", seconds / 3600.0),
    }
}
