//! Hints for errors of the library crates.

use std::io;
use std::path::Path;

use emberlm_generate::{GenerateError, LogitsError, SettingError, VetError};
use emberlm_gguf::{GgufError, is_gguf};
use emberlm_model::gguf_export::exportable_families;
use emberlm_model::{
    AdapterError, CacheFormatError, ConfigError, Family, HuggingFaceError, InputError, WeightsError,
};
use emberlm_tokenizer::chat::ChatError;
use emberlm_tokenizer::{StopStringError, TOKENIZER_FILE, TokenizerError};

use super::CliError;
use super::data::advice_on;

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
    if let ChatError::File { path, .. } = error {
        return advice_on(path);
    }
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
const BLOCKS_FIT: &str = "int8, f16 and bf16 fit all widths; q8_0, q4_0, q4_1, q5_0, q5_1, iq4_nl and mxfp4 fit multiples of 32";
/// The hint for weights that a Hugging Face directory cannot store.
const PUBLISHED_FORMATS: &str = "pass `--weights f32` or `--weights int8`";

/// The hints for damaged files of a model's directory, and of GGUF.
const COPY_AGAIN: &str = "copy the model's directory again, with all its files";
const COPY_PARTS: &str = "copy the file again, with all its parts";

/// Advice on a file that is of another kind than a model's, or else the hint for a damaged one.
fn advice_or(path: &Path, damaged: &str) -> Option<String> {
    advice_on(path).or_else(|| Some(damaged.to_owned()))
}

impl From<WeightsError> for CliError {
    fn from(error: WeightsError) -> Self {
        let hint = match &error {
            WeightsError::Adapter => Some(MERGE),
            WeightsError::Io { path, source } => {
                return with(&error, io(source).or_else(|| advice_on(path)));
            }
            WeightsError::Index { .. } => {
                Some("copy the model's directory again, with all its shards")
            }
            WeightsError::Format { path, .. } => {
                let damaged = "the file is damaged: use another checkpoint";
                return with(&error, advice_or(path, damaged));
            }
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
            HuggingFaceError::Weights { source, path } => {
                let hint = match source {
                    WeightsError::Io { path, source } => {
                        return with(&error, io(source).or_else(|| advice_on(path)));
                    }
                    WeightsError::Format { path, .. } => {
                        return with(&error, advice_or(path, COPY_AGAIN));
                    }
                    WeightsError::Index { .. } => COPY_AGAIN,
                    WeightsError::Packing { .. } => BLOCKS_FIT,
                    WeightsError::Unpublished { .. } => PUBLISHED_FORMATS,
                    _ if is_gguf(path) => "the tensors do not belong to the metadata in this file",
                    _ => "the weights do not belong to the config.json in this directory",
                };
                Some(hint.to_owned())
            }
            HuggingFaceError::Io { path, source } => io(source).or_else(|| advice_on(path)),
            HuggingFaceError::Gguf { source, .. } => match source {
                GgufError::Io { source, .. } => io(source),
                GgufError::Format { path, .. } => advice_or(path, COPY_PARTS),
                GgufError::Split { .. } => Some(COPY_PARTS.to_owned()),
                GgufError::Metadata { .. } | GgufError::Tensor { .. } => None,
            },
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
                let types = Family::decoders().filter_map(Family::model_type);
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
    if let TokenizerError::File { path, .. } = error
        && let Some(advice) = advice_on(path)
    {
        return Some(advice);
    }
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
        const MERGED_BY_PEFT: [&str; 5] = [
            "ensure_weight_tying",
            "layer_replication",
            "lora_bias",
            "target_parameters",
            "trainable_token_indices",
        ];
        const BASE: &str = "pass the model that the adapter is for";
        const PEFT_MERGE: &str = "merge it with PEFT: in Python, PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(MODEL), ADAPTER).merge_and_unload().save_pretrained(OUT)";
        let hint = match &error {
            AdapterError::UnknownTensor { .. } => Some(BASE),
            AdapterError::ChangedBase { value } if value.contains("loftq") => Some(
                "use the weights that LoftQ quantized, which PEFT does not save with the adapter: save them with model.unload().save_pretrained(OUT), and set `init_lora_weights` to true",
            ),
            AdapterError::ChangedBase { .. } => Some(
                "let PEFT convert it: model.save_pretrained(OUT, path_initial_model_for_weight_conversion=INITIAL), where INITIAL is the adapter saved before its training",
            ),
            AdapterError::OtherPart { .. } => Some(PEFT_MERGE),
            AdapterError::Part { .. } => Some("copy the adapter again: the file is incomplete"),
            AdapterError::Unsupported { field, .. } if MERGED_BY_PEFT.contains(&field.as_str()) => {
                Some(PEFT_MERGE)
            }
            AdapterError::Rank { .. } | AdapterError::LeftOut { .. } => Some(
                "the two files are not of one adapter, or adapter_config.json was edited: copy both again",
            ),
            AdapterError::NoTarget { .. } => Some(
                "name the ends of layers' names, or all-linear: --set 'train.adapter.targets=[\"q_proj\"]'",
            ),
            AdapterError::NoModule { .. } => Some(
                "name the ends of modules' names: --set 'train.adapter.modules_to_save=[\"lm_head\"]'",
            ),
            AdapterError::File { path, .. } => return with(&error, advice_on(path)),
            AdapterError::Adapted => Some(MERGE),
            AdapterError::SharedModule { .. } => {
                Some("merge it instead: emberlm merge RUN --out MODEL")
            }
            _ => None,
        };
        with(&error, hint.map(str::to_owned))
    }
}
