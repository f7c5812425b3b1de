//! Hints for errors of the trainer.

use std::io;

use emberlm_model::Family;
use emberlm_system::nearest::nearest;
use emberlm_trainer::TrainError;
use emberlm_trainer::config::keys_of;
use emberlm_trainer::presets;
use emberlm_trainer::run_config::RunConfigError;
use emberlm_trainer::tasks::TaskError;

use super::CliError;
use super::data::{advice_on, data, is_of_fields};
use super::hints::{io, with};
use crate::shell::shell_path;

impl From<TrainError> for CliError {
    fn from(error: TrainError) -> Self {
        let hint = match error {
            TrainError::Model(error) => return error.into(),
            TrainError::Opened(error) => return error.into(),
            TrainError::Config(error) => return error.into(),
            TrainError::Data(error) => return error.into(),
            TrainError::Task(error) => return error.into(),
            TrainError::Records(ref source) if !is_of_fields(source) => {
                let hint = data(source);
                return with(&error, hint);
            }
            TrainError::Records(_) => Some(
                "train.objective names the fields of texts: --set train.objective.text=FIELD; preferences have prompt, chosen and rejected; prompts have prompt and the fields that rewards compare; conversations have messages, conversations, prompt and completion, or instruction and output",
            ),
            TrainError::DamagedData { ref source, .. } => {
                let hint = data(source);
                return with(&error, hint);
            }
            TrainError::Tokenizer(error) => return error.into(),
            TrainError::Weights(error) => return error.into(),
            TrainError::HuggingFace(error) => return error.into(),
            TrainError::Adapter(error) => return error.into(),
            TrainError::Checkpoint(error) => return error.into(),
            TrainError::Generate(error) => return error.into(),
            TrainError::RunExists { ref path } => {
                let hint = format!(
                    "choose another --out, or resume the run: emberlm train --resume {}",
                    shell_path(path)
                );
                return with(&error, Some(hint));
            }
            TrainError::NotForRun { .. } => {
                return with(&error, Some("choose another --out".to_owned()));
            }
            TrainError::File { ref source, .. } => return with(&error, io(source)),
            TrainError::RunReplaced { .. } => {
                Some("start a new run, or resume the one that was moved")
            }
            TrainError::LockReplaced { .. } => Some("resume it when no other process trains it"),
            TrainError::RunLink { .. } => Some(
                "replace the link by a copy of its target; only the run's folder itself may be a link",
            ),
            TrainError::NoRun { .. } => Some("pass a folder that `emberlm train` created"),
            TrainError::RunLocked { .. } => Some("stop that process first, or wait until it ends"),
            TrainError::Setting {
                table: "train.objective",
                field: "rewards",
                ..
            } => Some(
                r#"add one, such as --set 'train.objective.rewards=[{kind = "exact_match", field = "answer"}]', which compares completions with the field `answer` of the records"#,
            ),
            TrainError::Setting {
                table: "train.evaluation",
                field: "early_stop",
                ..
            } => Some(
                "train on a dataset with a validation split, such as that of `emberlm prepare` with --val-fraction 0.1, or omit --early-stop",
            ),
            TrainError::ResumeData {
                ref checkpoint,
                ref dataset,
                ..
            } => {
                let (checkpoint, data) = (shell_path(checkpoint), shell_path(dataset));
                let hint = format!(
                    "fork the run instead: emberlm train --resume {checkpoint} --out NEW --data {data}"
                );
                return with(&error, Some(hint));
            }
            TrainError::ResumeTokenizer { .. } => Some(
                "prepare the texts with the tokenizer of the run: emberlm prepare … --tokenizer RUN",
            ),
            TrainError::StepsMade { .. } => Some("raise the number of steps with --steps"),
            TrainError::Tokenizers { .. } => {
                Some("prepare the texts with the same tokenizer: emberlm prepare … --tokenizer")
            }
            TrainError::Discarded {
                ref run, ref last, ..
            } => {
                let run = shell_path(run);
                let hint = match last {
                    Some(_) => {
                        format!("continue from the checkpoint: emberlm train --resume {run}")
                    }
                    None => format!("restart the run: emberlm train --resume {run} --restart"),
                };
                return with(&error, Some(hint));
            }
            TrainError::RanksDiffer { .. } => {
                Some("start all ranks with the same program, command, data and files")
            }
            TrainError::UnevenRanks { accumulation, .. } => {
                let hint = format!(
                    "divide the step into more micro-batches with --accumulation and a smaller --micro-batch, or start a number of ranks that divides {accumulation}"
                );
                return with(&error, Some(hint));
            }
            TrainError::SingleLabel { .. } => Some(
                "add records with other labels, or name the column of the labels: --set train.objective.label=NAME",
            ),
            TrainError::Terminal(_) => Some("use --renderer plain"),
            TrainError::NoCheckpoint { .. } => Some("free disk space, then resume the run"),
            TrainError::Diverged { .. } => {
                Some("lower the learning rate, for example --set train.schedule.learning_rate=1e-4")
            }
            _ => None,
        };
        with(&error, hint.map(str::to_owned))
    }
}

impl From<RunConfigError> for CliError {
    fn from(error: RunConfigError) -> Self {
        const KEYS: &str = "`emberlm train --print-config` shows every key with its value";
        match error {
            RunConfigError::UnknownPreset { ref name } => {
                let presets = presets::all().map(|preset| preset.name);
                let families = Family::decoders().map(Family::name);
                let near = nearest(name, presets.chain(families));
                Self::usage(error.to_string())
                    .did_you_mean(near)
                    .hint("list the presets: emberlm info")
            }
            RunConfigError::Read {
                ref path,
                ref source,
            } => with(&error, io(source).or_else(|| advice_on(path))),
            RunConfigError::NoEquals { .. } => Self::usage(format!("--set {error}"))
                .hint("write KEY=VALUE, such as --set model.d_model=256"),
            RunConfigError::File { ref suggestion, .. } => Self::usage(error.to_string())
                .did_you_mean(suggestion.as_deref())
                .hint(KEYS),
            RunConfigError::Setting {
                ref setting,
                ref suggestion,
                ref reason,
            } => {
                let refused =
                    Self::usage(format!("--set {error}")).did_you_mean(suggestion.as_deref());
                let keys = keys_of(setting.split('=').next().unwrap_or_default().trim());
                // A value in place of a table.
                match reason.starts_with("invalid type") && !keys.is_empty() {
                    true => refused.hint(format!("set the keys of the table: {}", keys.join(", "))),
                    false => refused.hint(KEYS),
                }
            }
            RunConfigError::NotToml { .. } | RunConfigError::Write { .. } => with(&error, None),
        }
    }
}

impl From<TaskError> for CliError {
    fn from(error: TaskError) -> Self {
        match error {
            TaskError::Read { path, source } => {
                let missing = source.kind() == io::ErrorKind::NotFound;
                let this = Self::io("read", &path)(source);
                match missing {
                    true => {
                        this.hint("emberlm downloads nothing: pass the path of the published file")
                    }
                    false => this,
                }
            }
            TaskError::Data(error) => error.into(),
            error => with(&error, None),
        }
    }
}
