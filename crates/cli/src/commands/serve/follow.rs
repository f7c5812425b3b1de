//! Follows a run: serves its newest checkpoint as soon as it is written.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use burn::tensor::Device;
use emberlm_checkpoint::ModelKind;
use emberlm_checkpoint::checkpoint::newest_step;
use emberlm_generate::Engine;
use emberlm_kernels::Backend;
use emberlm_model::Transformer;
use emberlm_serve::{OnDemand, Replacement, Replacer};

use super::log::Log;
use crate::console;
use crate::error::CliError;
use crate::model;
use crate::run_folders::is_run;
use crate::weights_arg::Formats;

/// Polling interval of a run's folder.
const PAUSE: Duration = Duration::from_secs(1);

/// Waits for the first checkpoint of a run.
pub fn wait(run: &Path) -> Result<(), CliError> {
    if !is_run(run) {
        return Err(no_run(run));
    }
    if newest(run).is_none() {
        console::note(format_args!(
            "waiting for the first checkpoint of {}",
            run.display()
        ));
    }
    while newest(run).is_none() {
        thread::sleep(PAUSE);
    }
    Ok(())
}

/// Returns true if a path is a run without a checkpoint.
pub fn has_no_checkpoint(run: &Path) -> bool {
    is_run(run) && newest(run).is_none()
}

/// The error for a path that cannot be followed.
pub fn no_run(path: &Path) -> CliError {
    CliError::new(format!("{} is not a run", path.display()))
        .hint("--follow takes the folder of a run of `emberlm train`")
}

/// Starts the thread that polls for checkpoints.
pub fn start<B: Backend>(
    run: PathBuf,
    formats: Formats,
    device: Device<B>,
    replacer: Replacer<OnDemand<Engine<B>>>,
    log: Log,
) -> Result<(), CliError> {
    let mut served = newest(&run);
    let mut failed = None;
    let look = move || {
        loop {
            thread::sleep(PAUSE);
            if replacer.has_ended() {
                return;
            }
            let found = newest(&run);
            if found == served {
                continue;
            }
            match read(&run, formats, &device) {
                Ok((decoder, about)) => {
                    if !replacer.replace(Replacement::Decoder(decoder)) {
                        return;
                    }
                    log.note(format!("{}: now {about}", run.display()));
                    served = found;
                }
                // Keeps serving the previous checkpoint, and retries at the next poll.
                Err(error) if failed != found => {
                    log.warn(format!("{}: {}", run.display(), error.message()));
                    failed = found;
                }
                Err(_) => {}
            }
        }
    };
    thread::Builder::new()
        .name("follow".to_owned())
        .spawn(look)
        .map_err(|error| CliError::new(format!("cannot start a thread: {error}")))?;
    Ok(())
}

type Read<B> = (Arc<Transformer<B>>, String);

fn read<B: Backend>(run: &Path, formats: Formats, device: &Device<B>) -> Result<Read<B>, CliError> {
    let model = model::open(run)?.of_kind(ModelKind::Decoder)?;
    let decoder = model::decoder_in(&model, formats, device)?;
    Ok((Arc::new(decoder), model.about()?))
}

/// The step of the newest checkpoint.
fn newest(run: &Path) -> Option<usize> {
    newest_step(run).ok().flatten()
}
