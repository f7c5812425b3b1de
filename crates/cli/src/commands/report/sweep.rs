//! The report of a folder of runs.

use std::path::{Path, PathBuf};

use super::curves::{drawn, plot};
use super::document::{Block, Document};
use super::run::sessions;
use crate::commands::plot::{CONFIGURATION, grouped};
use crate::commands::runs::RunDetails;
use crate::error::CliError;
use crate::plot::{Group, NamedRun, headings, row};
use crate::run_history::Status;
use crate::run_settings::{RunSettings, differing, shown};

/// Collects the report of the runs in a folder.
///
/// # Errors
/// Returns an error if a run cannot be read or drawn.
pub fn document(folder: &Path, runs: &[PathBuf]) -> Result<Document, CliError> {
    let runs: Vec<RunDetails> = runs
        .iter()
        .map(|run| RunDetails::read(run))
        .collect::<Result<_, _>>()?;
    let keys = differing(runs.iter().map(|run| &run.settings));
    let mut blocks = vec![Block::Heading("Runs".to_owned()), table(&runs, &keys)];
    let named = runs.iter().map(|run| NamedRun {
        settings: run.settings.clone(),
        ..NamedRun::new(run.name.clone(), run.path.clone(), run.history.clone())
    });
    let named: Vec<NamedRun> = named.filter(|run| !run.history.steps.is_empty()).collect();
    let singles: Vec<Group> = named.iter().cloned().filter_map(drawn).collect();
    let (names, groups) = grouped(named, CONFIGURATION)?;
    if groups.len() < singles.len() {
        let validated = groups.iter().any(is_validated);
        blocks.push(Block::Heading("Means over seeds".to_owned()));
        blocks.push(Block::Table {
            headings: headings(&names, validated),
            rows: groups.iter().map(|group| row(group, validated)).collect(),
        });
        blocks.extend(plot(&groups, &names, "loss")?);
    }
    if !singles.is_empty() {
        blocks.push(Block::Heading("Curves".to_owned()));
        blocks.extend(plot(&singles, "run", "loss")?);
    }
    if let Some(first) = runs.first() {
        let common = first
            .settings
            .iter()
            .filter(|(key, _)| !keys.contains(*key));
        let common: Vec<_> = common
            .map(|(key, value)| (key.clone(), shown(value)))
            .collect();
        if !common.is_empty() {
            blocks.push(Block::Heading("Common settings".to_owned()));
            blocks.push(Block::Facts(common));
        }
        // The machine and the command line of the others differ only in their settings.
        blocks.extend(sessions(first));
    }
    let name = folder.canonicalize().ok();
    let name = name
        .as_deref()
        .unwrap_or(folder)
        .file_name()
        .unwrap_or_default();
    Ok(Document {
        title: format!("Runs of {}", name.to_string_lossy()),
        blocks,
    })
}

fn is_validated(group: &Group) -> bool {
    group.runs.iter().any(|run| run.history.best().is_some())
}

/// The runs with their results and the settings in which they differ.
fn table(runs: &[RunDetails], keys: &[String]) -> Block {
    let headings = [
        "run",
        "status",
        "step",
        "last loss",
        "lowest validation loss",
        "at step",
    ];
    let headings = headings.into_iter().map(str::to_owned);
    let value =
        |settings: &RunSettings, key: &String| settings.get(key).map_or_else(String::new, shown);
    let loss = |loss: Option<f64>| loss.map_or_else(String::new, |loss| format!("{loss:.4}"));
    let cells = |run: &RunDetails| {
        let last = run.history.steps.last().map(|step| step.loss);
        let fields = [
            run.name.clone(),
            Status::name(run.status).to_owned(),
            run.step.to_string(),
            loss(last),
            loss(run.best_validation_loss),
            run.best_step
                .map_or_else(String::new, |step| step.to_string()),
        ];
        let values = keys.iter().map(|key| value(&run.settings, key));
        fields.into_iter().chain(values).collect()
    };
    Block::Table {
        headings: headings.chain(keys.iter().cloned()).collect(),
        rows: runs.iter().map(cells).collect(),
    }
}
