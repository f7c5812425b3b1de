//! Hints for errors of the library crates.

use std::io;

use emberlm_generate::{GenerateError, LogitsError, SettingError, VetError};
use emberlm_gguf::GgufError;
use emberlm_model::gguf::exportable_families;
use emberlm_model::{
    AdapterError, CacheFormatError, ConfigError, Family, HuggingFaceError, InputError,
    WeightsError, families,
};
use emberlm_system::nearest::nearest;
use emberlm_tokenizer::chat::ChatError;
use emberlm_tokenizer::{StopStringError, TOKENIZER_FILE, TokenizerError};
use emberlm_trainer::TrainError;
use emberlm_trainer::config::keys_of;
use emberlm_trainer::presets;
use emberlm_trainer::run_config::RunConfigError;
use emberlm_trainer::tasks::TaskError;

use super::CliError;
use super::data::data;

impl From<TokenizerError> for CliError {
    fn from(error: TokenizerError) -> Self {
        let hint = tokenizer(&error);
        with(&error, hint)
    }
}

impl From<ChatError> for CliError {
    fn from(error: ChatError) -> Self {
        match error {
            ChatError::Tokenizer(error) => error.into(),
            error => {
                let hint = chat(&error);
                with(&error, hint)
            }
        }
    }
}

impl From<VetError> for CliError {
    fn from(error: VetError) -> Self {
        match error {
            VetError::Refused(error) => error.into(),
            error => with(&error, None),
        }
    }
}

/// Returns a hint for a chat template that exceeds a limit.
pub(super) fn chat(error: &ChatError) -> Option<String> {
    let hint = "usual templates stay far below the limits: read this one before you trust it, or choose another with --chat-template";
    matches!(error, ChatError::Limit { .. }).then(|| hint.to_owned())
}

impl From<InputError> for CliError {
    fn from(error: InputError) -> Self {
        let hint = match &error {
            InputError::Empty => None,
            InputError::TooLong { seq_len, .. } => Some(format!("pass at most {seq_len} tokens")),
            InputError::UnknownToken { vocab_size, .. } => Some(format!(
                "this model's ids are 0 to {}",
                vocab_size.saturating_sub(1)
            )),
        };
        with(&error, hint)
    }
}

impl From<ConfigError> for CliError {
    fn from(error: ConfigError) -> Self {
        let hint = match &error.field[..] {
            "kv_heads" => Some("--set model.kv_heads=0 uses one key-value head per query head"),
            "head_dim" => Some("--set model.head_dim=0 uses d_model / heads"),
            _ => None,
        };
        with(&error, hint.map(str::to_owned))
    }
}

impl From<CacheFormatError> for CliError {
    fn from(error: CacheFormatError) -> Self {
        let hint = match error {
            CacheFormatError::HeadDim { .. } => "--cache f16 fits every head dimension",
            CacheFormatError::Backend { .. } => "leave out --cache, or compute with --backend flex",
        };
        with(&error, Some(hint.to_owned()))
    }
}

/// The hint for a model with an adapter.
const MERGE: &str = "emberlm merge RUN --out MODEL";
/// The hint for a weight whose rows do not consist of whole blocks.
const BLOCKS_FIT: &str = "int8, f16 and bf16 fit all widths; q8_0, q4_0, q4_1, q5_0, q5_1 and iq4_nl fit multiples of 32";
/// The hint for weights that a Hugging Face directory cannot store.
const PUBLISHED_FORMATS: &str = "pass `--weights f32` or `--weights int8`";

impl From<WeightsError> for CliError {
    fn from(error: WeightsError) -> Self {
        let hint = match &error {
            WeightsError::Adapter => Some(MERGE),
            WeightsError::Io { source, .. } => return with(&error, io(source)),
            WeightsError::Index { .. } => {
                Some("copy the model's directory again, with all its shards")
            }
            WeightsError::Format { .. } => Some("the file is damaged: use another checkpoint"),
            WeightsError::Packed { .. } => {
                Some("open the model with `--weights f32`, or export it with `--weights int8`")
            }
            WeightsError::Packing { .. } => Some(BLOCKS_FIT),
            WeightsError::Unpublished { .. } => Some(PUBLISHED_FORMATS),
            WeightsError::Gguf(_)
            | WeightsError::Missing { .. }
            | WeightsError::Shape { .. }
            | WeightsError::Type { .. }
            | WeightsError::Scale { .. }
            | WeightsError::WrittenShape { .. }
            | WeightsError::NotTied { .. }
            | WeightsError::TooFew { .. }
            | WeightsError::LeftOver { .. } => {
                Some("the weights do not belong to this configuration")
            }
        };
        with(&error, hint.map(str::to_owned))
    }
}

impl From<HuggingFaceError> for CliError {
    fn from(error: HuggingFaceError) -> Self {
        let hint = match &error {
            HuggingFaceError::Weights { source, .. } => {
                let hint = match source {
                    WeightsError::Io { source, .. } => return with(&error, io(source)),
                    WeightsError::Index { .. } | WeightsError::Format { .. } => {
                        "copy the model's directory again, with all its files"
                    }
                    WeightsError::Packing { .. } => BLOCKS_FIT,
                    WeightsError::Unpublished { .. } => PUBLISHED_FORMATS,
                    _ => "the weights do not belong to the config.json in this directory",
                };
                Some(hint.to_owned())
            }
            HuggingFaceError::Io { source, .. } => io(source),
            HuggingFaceError::Gguf { source, .. } => match source {
                GgufError::Io { source, .. } => io(source),
                GgufError::Format { .. } | GgufError::Split { .. } => {
                    Some("copy the file again, with all its parts".to_owned())
                }
                GgufError::Metadata { .. } | GgufError::Tensor { .. } => None,
            },
            HuggingFaceError::Field { field, value, .. } if field == "model_type" => {
                match value.trim_matches('"') {
                    "bert" | "roberta" | "xlm-roberta" | "distilbert" | "modernbert" => Some(
                        "it is an encoder: emberlm embed MODEL FILE, or emberlm classify MODEL FILE".to_owned(),
                    ),
                    "t5" | "mt5" => Some(
                        "it is an encoder–decoder: emberlm generate MODEL --prompt SOURCE".to_owned(),
                    ),
                    _ => None,
                }
            }
            HuggingFaceError::Field { field, .. } if field.starts_with("quantization_config") => {
                Some(
                    "give the model without quantization, with --weights int8 to hold it in a quarter of the memory"
                        .to_owned(),
                )
            }
            HuggingFaceError::Pickle { .. } => Some(
                "save it as safetensors where you trust it: in Python, \
                 AutoModelForCausalLM.from_pretrained(DIR).save_pretrained(OUT)"
                    .to_owned(),
            ),
            HuggingFaceError::NoType { .. } => {
                let types = Family::ALL.into_iter().filter_map(Family::model_type);
                let types: Vec<&str> = types.collect();
                Some(format!(
                    "it has types for {}; this model's own checkpoint is a safetensors file already",
                    types.join(", ")
                ))
            }
            HuggingFaceError::NoArchitecture { .. } => {
                let families: Vec<&str> = exportable_families().collect();
                Some(format!("it has those of {}", families.join(", ")))
            }
            HuggingFaceError::NotRecorded { .. } | HuggingFaceError::NotDescribed { .. } => {
                Some("without --format gguf, export writes a Hugging Face directory".to_owned())
            }
            _ => None,
        };
        with(&error, hint)
    }
}

impl From<GenerateError> for CliError {
    fn from(error: GenerateError) -> Self {
        match error {
            GenerateError::Prompt(error) => error.into(),
            GenerateError::Setting(_) | GenerateError::Overflow { .. } => with(&error, None),
            GenerateError::Logits(LogitsError::NoneAllowed { .. }) => with(
                &error,
                Some("use a constraint that this model's tokens can express".to_owned()),
            ),
            GenerateError::Logits(_) => with(
                &error,
                Some("use an earlier checkpoint of the run".to_owned()),
            ),
        }
    }
}

impl From<SettingError> for CliError {
    fn from(error: SettingError) -> Self {
        GenerateError::from(error).into()
    }
}

impl From<StopStringError> for CliError {
    fn from(error: StopStringError) -> Self {
        with(&error, None)
    }
}

impl From<TrainError> for CliError {
    fn from(error: TrainError) -> Self {
        let hint = match error {
            TrainError::Model(error) => return error.into(),
            TrainError::Config(error) => return error.into(),
            TrainError::Data(error) => return error.into(),
            TrainError::Records(_) => Some(
                "train.objective names the fields of texts: --set train.objective.text=FIELD; preferences have prompt, chosen and rejected; prompts have prompt and the fields that rewards compare",
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
                    path.display()
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
            TrainError::NoRun { .. } => Some("pass a folder that `emberlm train` created"),
            TrainError::RunLocked { .. } => Some("stop that process first, or wait until it ends"),
            TrainError::Resume { .. } => {
                Some("start a new run with these settings: omit --resume and pass --out")
            }
            TrainError::Tokenizers { .. } => {
                Some("prepare the texts with the same tokenizer: emberlm prepare … --tokenizer")
            }
            TrainError::Discarded {
                ref run, ref last, ..
            } => {
                let run = run.display();
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
                let presets = families::presets().into_iter().map(|preset| preset.name);
                let presets = presets.chain(presets::EXTRA.map(|(name, _)| name));
                let families = Family::ALL.into_iter().map(Family::name);
                let near = nearest(name, presets.chain(families));
                Self::usage(error.to_string())
                    .did_you_mean(near)
                    .hint("list the presets: emberlm info")
            }
            RunConfigError::Read { ref source, .. } => with(&error, io(source)),
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
            error => with(&error, None),
        }
    }
}

pub(super) fn with(
    error: &impl std::error::Error,
    hints: impl IntoIterator<Item = String>,
) -> CliError {
    let this = CliError::new(error.to_string());
    hints.into_iter().fold(this, CliError::hint)
}

/// Returns a hint for an I/O error.
pub(super) fn io(error: &io::Error) -> Option<String> {
    let hint = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "make room on the disk, then run the command again"
        }
        io::ErrorKind::FileTooLarge => {
            "a file may not become that large: see `ulimit -f` and the file system's own limit"
        }
        io::ErrorKind::PermissionDenied => "check who may read and write there",
        _ => return None,
    };
    Some(hint.to_owned())
}

pub(super) fn tokenizer(error: &TokenizerError) -> Option<String> {
    let hint = match error {
        TokenizerError::UnknownCharacter { .. } => {
            "a char tokenizer has only the characters of its corpus"
        }
        TokenizerError::NeedsAlphabet => {
            "name the text that it was made of, as --alphabet input.txt"
        }
        TokenizerError::NeedsPattern { .. } => {
            "convert it: emberlm tokenizer convert FILE --pattern NAME --special NAME=ID --out DIR, then pass DIR"
        }
        TokenizerError::NotInGguf { .. } => {
            "without --format gguf, export writes a Hugging Face directory, which holds any tokenizer"
        }
        // Errors in other files have their own variants.
        TokenizerError::File { reason, .. } if !reason.contains(TOKENIZER_FILE) => return None,
        TokenizerError::File { .. } | TokenizerError::Format { .. } => {
            "a tokenizer.json is what Hugging Face's tokenizers library writes"
        }
        _ => return None,
    };
    Some(hint.to_owned())
}

impl From<AdapterError> for CliError {
    fn from(error: AdapterError) -> Self {
        let hint = match &error {
            AdapterError::UnknownTensor { .. } => Some("pass the model that the adapter is for"),
            AdapterError::NoTarget { .. } => Some(
                "name the ends of layers' names, or all-linear: --set 'train.adapter.targets=[\"q_proj\"]'",
            ),
            AdapterError::NoModule { .. } => Some(
                "name the ends of modules' names: --set 'train.adapter.modules_to_save=[\"lm_head\"]'",
            ),
            AdapterError::Adapted => Some(MERGE),
            AdapterError::SharedModule { .. } => {
                Some("merge it instead: emberlm merge RUN --out MODEL")
            }
            _ => None,
        };
        with(&error, hint.map(str::to_owned))
    }
}
