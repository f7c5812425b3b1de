//! `emberlm models`: lists the models on this machine: those of the Hugging Face cache, and the runs of a folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use emberlm_checkpoint::checkpoint::newest_path;
use emberlm_hub::Hub;
use emberlm_trainer::events;
use serde::Serialize;

use super::runs::age;
use crate::console;
use crate::error::CliError;
use crate::examples;
use crate::output::{Align, Table, print, print_json, size};
use crate::run_folders::runs_below;

/// Arguments of `models`.
#[derive(Clone, Debug, Args)]
#[command(after_help = examples::MODELS)]
pub struct ModelsArgs {
    /// The folder with the runs
    #[arg(value_name = "DIR", default_value = "runs")]
    pub dir: PathBuf,
    /// Print [{"model", "path", "commit", "revisions", "bytes", "time", "missing"}]
    #[arg(long)]
    pub json: bool,
}

/// A model on this machine.
#[derive(Serialize)]
struct ListedModel {
    /// The MODEL argument of other commands.
    model: String,
    path: PathBuf,
    /// The commit of a model of the Hub.
    #[serde(skip_serializing_if = "Option::is_none")]
    commit: Option<String>,
    /// The branches and tags of the commit.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    revisions: Vec<String>,
    bytes: u64,
    /// The time of its newest file, in Unix seconds.
    time: Option<f64>,
    /// The files that an incomplete model lacks.
    #[serde(skip_serializing_if = "Option::is_none")]
    missing: Option<String>,
}

/// Prints the models, with the newest first.
///
/// # Errors
/// The folder of runs cannot be read.
pub fn run(args: ModelsArgs) -> Result<(), CliError> {
    let mut models = cached();
    if args.dir.is_dir() {
        models.extend(runs_below(&args.dir)?.into_iter().filter_map(trained));
    }
    models.sort_by(|a, b| {
        let newest = |model: &ListedModel| model.time.unwrap_or(f64::NEG_INFINITY);
        newest(b).total_cmp(&newest(a)).then(a.model.cmp(&b.model))
    });
    if args.json {
        return print_json(&models);
    }
    if models.is_empty() {
        console::note(format_args!(
            "There is no model in {} nor in the Hugging Face cache",
            args.dir.display()
        ));
        return Ok(());
    }
    let now = events::now();
    let mut table = Table::new([Align::Left, Align::Right, Align::Right, Align::Left]);
    table.row(["model", "size", "age", ""]);
    for model in &models {
        table.row([
            model.model.clone(),
            size(model.bytes),
            model
                .time
                .map_or_else(|| "-".to_owned(), |time| age(now - time)),
            remark(model),
        ]);
    }
    print(&table.render())
}

/// The files that an incomplete model lacks.
fn remark(model: &ListedModel) -> String {
    match &model.missing {
        Some(missing) => format!("incomplete: {missing}"),
        None => String::new(),
    }
}

/// The models of the Hugging Face cache.
fn cached() -> Vec<ListedModel> {
    // Without a home directory there is no cache to list.
    let Ok(hub) = Hub::from_environment() else {
        return Vec::new();
    };
    let listed = |model: emberlm_hub::CachedModel| ListedModel {
        model: match model.revisions.iter().any(|revision| revision == "main") {
            true => model.name.to_string(),
            false => {
                let revision = model.revisions.first().unwrap_or(&model.commit);
                model.name.at(revision).to_string()
            }
        },
        path: model.path,
        commit: Some(model.commit),
        revisions: model.revisions,
        bytes: model.bytes,
        time: model.modified.and_then(seconds),
        missing: model.missing,
    };
    hub.cache().models().into_iter().map(listed).collect()
}

/// The newest checkpoint of a run; `None` if it has none.
fn trained(run: PathBuf) -> Option<ListedModel> {
    let newest = newest_path(&run).ok()??;
    let (bytes, time) = content(&newest);
    Some(ListedModel {
        model: run.display().to_string(),
        path: newest,
        commit: None,
        revisions: Vec::new(),
        bytes,
        time,
        missing: None,
    })
}

/// The size of a folder's files, and the time of the newest.
fn content(folder: &Path) -> (u64, Option<f64>) {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    let files = files.filter_map(|entry| entry.metadata().ok());
    files.fold((0, None), |(bytes, newest): (u64, Option<f64>), file| {
        let time = file.modified().ok().and_then(seconds);
        let newest = match (newest, time) {
            (Some(a), Some(b)) => Some(a.max(b)),
            (a, b) => a.or(b),
        };
        (bytes + file.len(), newest)
    })
}

fn seconds(time: SystemTime) -> Option<f64> {
    Some(time.duration_since(UNIX_EPOCH).ok()?.as_secs_f64())
}
