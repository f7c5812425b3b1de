//! `emberlm sweep`: trains the runs of a sweep file, in sequence or in parallel, and compares them.
//!
//! | module | contents |
//! |---|---|
//! | `file` | the sweep's TOML file |
//! | `random` | random search: draws configurations |
//! | `stopping` | early-stopping rules |
//! | `plan` | the sweep's runs, with names and validated configurations |
//! | `record` | keeps a sweep folder to one plan |
//! | `children`, `progress` | runs as child processes, and their progress |
//! | `summary`, `statistics` | comparison of runs, with statistics over seeds |

mod children;
mod file;
mod plan;
mod progress;
mod random;
mod record;
mod statistics;
mod stopping;
mod summary;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use clap::Args;
use emberlm_data::formats::FileFormat;
use emberlm_system::write::write_whole;
use emberlm_trainer::RunFolder;
use schemars::schema_for;

use crate::backend::BackendArg;
use crate::error::CliError;
use crate::examples;
use crate::new_folder::folder_parser;
use crate::output::{print, print_json};
use crate::plot::{Page, svg};
use crate::shell::shell_word;
use crate::signals;
use crate::values::at_least_one;
use crate::{built_in_tales, console};
use children::{EarlyStopper, RunOutcome, is_done, run_all};
pub use file::{Settings, SweepFile};
pub use plan::arguments;
use plan::{Plan, PlannedRun};
use progress::Progress;
pub use record::FILE as SWEEP_FILE;
use record::Record;
pub use stopping::format as early_stop_format;
use summary::Summary;

/// The name of the comparison's plot in a sweep's folder.
const PLOT_FILE: &str = "sweep.svg";
/// The name of the comparison's page in a sweep's folder.
const PAGE_FILE: &str = "sweep.html";

/// The documentation of the files in a sweep's folder.
pub fn formats() -> Vec<FileFormat> {
    vec![
        FileFormat::new(SWEEP_FILE, "the configuration of each run")
            .with_schema(schema_for!(Record)),
        FileFormat::new(PLOT_FILE, "the comparison of the runs as a plot"),
        FileFormat::new(PAGE_FILE, "the comparison of the runs as a page"),
        FileFormat::new(format!("RUN/{}", children::LOG), "the output of a run"),
    ]
}

/// Arguments of `sweep`.
#[derive(Debug, Args)]
#[command(after_help = examples::SWEEP)]
pub struct SweepArgs {
    /// The sweep's settings: preset or from, config, data, and the tables set, grid, list, random and early_stopping
    #[arg(value_name = "FILE.toml")]
    pub file: PathBuf,
    /// The folder of the runs [default: runs/FILE]
    #[arg(long, value_name = "DIR", value_parser = folder_parser("a sweep"))]
    pub out: Option<PathBuf>,
    /// Number of runs trained at the same time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = at_least_one)]
    pub parallel: usize,
    /// The command that starts the processes of each run, such as "srun -n 4" or "mpirun -n 4" [default: one process]
    #[arg(long, value_name = "COMMAND")]
    pub launcher: Option<String>,
    /// Print the commands of the unfinished runs, and exit
    #[arg(long)]
    pub dry_run: bool,
    /// Print {"configurations": [{"name", "settings", "validation_loss", "lowest_validation_loss", "runs"}]}
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub backend: BackendArg,
}

/// Runs the unfinished runs, then compares all of them.
pub fn run(args: SweepArgs) -> Result<(), CliError> {
    let backend = &args.backend.choose()?.options();
    let file = SweepFile::read(&args.file)?;
    let out = args.out.clone().unwrap_or_else(|| {
        let name = args.file.file_stem().unwrap_or_default();
        Path::new("runs").join(name)
    });
    let within = |error: CliError| error.within(&args.file.display().to_string());
    let plan = Plan::new(&file, &out, backend).map_err(within)?;
    let record = Record::of(&plan);
    record.check(&out)?;
    let unfinished: Vec<&PlannedRun> = plan.runs.iter().filter(|run| !is_done(run)).collect();
    let launcher = args.launcher.as_deref().unwrap_or_default();
    let launcher: Vec<String> = launcher.split_whitespace().map(str::to_owned).collect();
    if args.dry_run {
        return print(&commands(&unfinished, backend, &launcher));
    }
    if let Some(run) = unfinished
        .iter()
        .find(|run| RunFolder::is_held(&run.folder))
    {
        let message = format!("{} is already being trained", run.folder.display());
        return Err(CliError::new(message).hint("wait until it ends, or stop it first"));
    }
    fs::create_dir_all(&out).map_err(CliError::io("create", &out))?;
    record.write(&out)?;
    let without_data = |run: &&PlannedRun| run.config.data.is_empty();
    if unfinished.iter().any(without_data) {
        // Creates the dataset first: the runs would otherwise create it concurrently.
        built_in_tales::dataset("emberlm sweep")?;
    }
    let stop_requests = listen()?;
    let mut progress = Progress::new(plan.runs.len(), plan.runs.len() - unfinished.len());
    let stopper = EarlyStopper {
        runs: &plan.runs,
        rule: plan.early_stopping,
    };
    let ended = run_all(
        &unfinished,
        stopper,
        args.parallel,
        backend,
        &launcher,
        &stop_requests,
        &mut progress,
    )?;
    let summary = Summary::of(&plan);
    draw(&summary, &args.file, &out)?;
    match args.json {
        true => print_json(&summary)?,
        false => print(&summary.table())?,
    }
    report(&plan, &ended)
}

fn commands(runs: &[&PlannedRun], backend: &[String], launcher: &[String]) -> String {
    let line = |run: &&PlannedRun| {
        let started = launcher.iter().map(|word| shell_word(word));
        let started = started.chain(["emberlm".to_owned()]);
        let arguments = run.arguments(backend).into_iter();
        let words: Vec<String> = started
            .chain(arguments.map(|word| shell_word(&word.to_string_lossy())))
            .collect();
        format!("{}\n", words.join(" "))
    };
    runs.iter().map(line).collect()
}

/// Counts the stop signals.
fn listen() -> Result<Arc<AtomicUsize>, CliError> {
    let stop_requests = Arc::new(AtomicUsize::new(0));
    let count = stop_requests.clone();
    signals::listen(move || {
        count.fetch_add(1, Ordering::SeqCst);
    })?;
    Ok(stop_requests)
}

/// Writes DIR/sweep.svg and DIR/sweep.html.
fn draw(summary: &Summary, file: &Path, out: &Path) -> Result<(), CliError> {
    let name = file.file_stem().unwrap_or_default().to_string_lossy();
    let Some(picture) = summary.picture(&format!("Validation loss: {name}")) else {
        return Ok(());
    };
    let svg = svg(&picture)?;
    let page = Page {
        title: &picture.title,
        headings: &Summary::HEADINGS,
        rows: &summary.rows(),
    };
    for (name, text) in [(PLOT_FILE, &svg), (PAGE_FILE, &page.html(&svg))] {
        let path = out.join(name);
        write_whole(&path, text.as_bytes()).map_err(CliError::io("write", &path))?;
    }
    console::note(format_args!("Drawn in {}", out.join(PAGE_FILE).display()));
    Ok(())
}

/// Returns an error if any run is unfinished.
fn report(plan: &Plan, ended: &[(&PlannedRun, RunOutcome)]) -> Result<(), CliError> {
    let mut failed = 0;
    for (run, outcome) in ended {
        if let RunOutcome::Failed(lines) = outcome {
            failed += 1;
            let log = run.folder.join("log.txt");
            console::note(format_args!(
                "{} failed; {} ends in",
                run.name,
                log.display()
            ));
            lines.iter().for_each(console::note);
        }
    }
    let all = plan.runs.len();
    let finished = plan.runs.iter().filter(|run| is_done(run)).count();
    if failed > 0 {
        return Err(CliError::new(format!("{failed} of {all} runs failed"))
            .hint("repeat the command to retry them"));
    }
    if finished < all {
        return Err(
            CliError::new(format!("stopped with {finished} of {all} runs finished"))
                .hint("repeat the command to continue the sweep"),
        );
    }
    Ok(())
}
