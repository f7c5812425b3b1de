//! `emberlm pull`: downloads models of the Hugging Face Hub.

use clap::Args;
use emberlm_hub::{Hub, ModelName};
use serde::Serialize;

use crate::console;
use crate::error::CliError;
use crate::examples;
use crate::hub::DownloadBar;
use crate::output::{print, print_json, size};

/// Arguments of `pull`.
#[derive(Clone, Debug, Args)]
#[command(after_help = examples::PULL)]
pub struct PullArgs {
    /// The models to download: hf:ORG/NAME[@REVISION][/FILE.gguf]
    #[arg(value_name = "NAME", required = true)]
    pub names: Vec<String>,
    /// Print {"name", "path", "commit", "bytes"} for each model
    #[arg(long)]
    pub json: bool,
}

#[derive(Serialize)]
struct Pulled {
    name: String,
    path: std::path::PathBuf,
    commit: String,
    bytes: u64,
}

/// Downloads what the cache lacks of each model's newest commit, and prints the paths of their files.
///
/// # Errors
/// A name breaks a rule, or a model cannot be downloaded.
pub fn run(args: PullArgs) -> Result<(), CliError> {
    let names: Vec<ModelName> = args
        .names
        .iter()
        .map(|name| name.parse())
        .collect::<Result<_, _>>()?;
    let hub = Hub::from_environment()?;
    for name in names {
        let mut bar = DownloadBar::default();
        let pulled = hub.pull(&name, &mut |now| bar.show(now))?;
        drop(bar);
        if args.json {
            print_json(&Pulled {
                name: name.to_string(),
                path: pulled.path,
                commit: pulled.commit,
                bytes: pulled.bytes,
            })?;
            continue;
        }
        let commit = &pulled.commit[..7.min(pulled.commit.len())];
        console::note(format_args!(
            "{name}: {} at commit {commit}",
            size(pulled.bytes)
        ));
        print(&pulled.path.display().to_string())?;
    }
    Ok(())
}
