//! The files of a run, for the reference documentation.

use emberlm_checkpoint::formats;
use emberlm_data::formats::FileFormat;
use schemars::{Schema, schema_for};

use crate::checkpoint::{FOLDER as CHECKPOINTS, State};
use crate::objective::REFERENCE_FILE;
use crate::optimizer::state::names;
use crate::report::events::{EVENTS_FILE, Event};
use crate::report::tensorboard;
use crate::run::ancestry::Ancestry;
use crate::run::folder::{ANCESTRY_FILE, CONFIG_FILE, LOCK_FILE, SAMPLES};

/// The files of a run's folder that training writes.
pub fn run_files() -> Vec<FileFormat> {
    vec![
        FileFormat::new(
            CONFIG_FILE,
            "the resolved configuration with comments; [keys](configuration.md)",
        ),
        FileFormat::new(EVENTS_FILE, "the log, [below](#events)"),
        FileFormat::new(
            format!("{CHECKPOINTS}/step-NNNNNNNN/"),
            "a checkpoint, [below](#checkpoint)",
        ),
        FileFormat::new(
            format!("{SAMPLES}/step-NNNNNNNN.txt"),
            "a text that the model generated after an evaluation",
        ),
        FileFormat::new(
            REFERENCE_FILE,
            "with objective dpo or kto, the [log-probabilities](../guides/preferences.md#the-reference-model) of the completions under the initial weights, in JSON; with grpo and all weights trained, the hash of the initial weights",
        ),
        FileFormat::new(
            ANCESTRY_FILE,
            "of a [fork](../guides/train.md#fork-a-run): the run, the step and the changed settings that it started from",
        )
        .with_schema(schema_for!(Ancestry)),
        FileFormat::new(
            format!("{}/", tensorboard::FOLDER),
            "TensorBoard's event files, with `--tensorboard`",
        ),
        FileFormat::new(
            LOCK_FILE,
            "the process id of the process that trains the run",
        ),
    ]
}

/// The events of a run's log: each variant of the schema is one.
pub fn events() -> Schema {
    schema_for!(Event)
}

/// The files of a checkpoint.
pub fn checkpoint_files() -> Vec<FileFormat> {
    formats::checkpoint_files(schema_for!(State), &names())
}
