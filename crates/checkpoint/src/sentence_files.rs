//! The files of sentence-transformers: modules, pooling and settings of texts.

use std::io;
use std::path::{Path, PathBuf};

use emberlm_model::encoder::Pooling;
use emberlm_system::fields::{FieldTable, Treatment};
use emberlm_system::read::{DESCRIPTION_LIMIT, read_text};
use serde_json::Value;

use crate::error::ModelError;

use Treatment::{NoEffect, Only, Read};

/// The file that lists the modules.
const MODULES_FILE: &str = "modules.json";
/// The file with the longest text in tokens.
const SENTENCE_FILE: &str = "sentence_bert_config.json";
/// The file with the prompts.
const PROMPTS_FILE: &str = "config_sentence_transformers.json";
const MEAN: &str = "pooling_mode_mean_tokens";

const SENTENCE_FIELDS: FieldTable = FieldTable(&[
    ("max_seq_length", Read),
    (
        "do_lower_case",
        Only {
            value: "false",
            rule: "texts keep the case that tokenizer.json gives them",
        },
    ),
    ("backend", NoEffect),
    ("config_args", NoEffect),
    ("model_args", NoEffect),
    ("modality_config", NoEffect),
    ("module_output_name", NoEffect),
    ("processing_kwargs", NoEffect),
    ("processor_args", NoEffect),
    ("tokenizer_args", NoEffect),
    ("transformer_task", NoEffect),
]);

const PROMPTS_FIELDS: FieldTable = FieldTable(&[
    (
        "default_prompt_name",
        Only {
            value: "null",
            rule: "texts have no prompt: prepend it to them",
        },
    ),
    (
        "truncate_dim",
        Only {
            value: "null",
            rule: "embeddings have all their numbers",
        },
    ),
    ("__version__", NoEffect),
    ("model_type", NoEffect),
    ("prompts", NoEffect),
    ("similarity_fn_name", NoEffect),
]);

const POOLING_FIELDS: FieldTable = FieldTable(&[
    ("pooling_mode", Read),
    ("pooling_mode_cls_token", Read),
    ("pooling_mode_mean_tokens", Read),
    ("pooling_mode_max_tokens", Read),
    ("pooling_mode_mean_sqrt_len_tokens", Read),
    ("pooling_mode_weightedmean_tokens", Read),
    ("pooling_mode_lasttoken", Read),
    // The width of the model, and the pooling of prompts, which texts do not have.
    ("embedding_dimension", NoEffect),
    ("include_prompt", NoEffect),
    ("word_embedding_dimension", NoEffect),
]);

/// The contents of the files that a directory has.
#[derive(Debug, Default)]
pub(crate) struct SentenceFiles {
    /// The longest text in tokens.
    pub(crate) longest: Option<usize>,
    /// The pooling, and true if embeddings have length 1.
    pub(crate) modules: Option<(Pooling, bool)>,
    /// Warnings about settings that are ignored.
    pub(crate) warnings: Vec<String>,
}

impl SentenceFiles {
    /// Reads the files in a directory.
    ///
    /// # Errors
    /// A file cannot be read, is damaged, or has a setting that is not supported.
    pub(crate) fn read(path: &Path) -> Result<Self, ModelError> {
        let mut files = Self::default();
        files.longest = longest_text(path, &mut files.warnings)?;
        files.modules = modules(path, &mut files.warnings)?;
        // Without modules, the directory is not one of sentence-transformers.
        if files.modules.is_some()
            && let Some(config) = read_json(&path.join(PROMPTS_FILE))?
        {
            warn_unread(&PROMPTS_FIELDS, PROMPTS_FILE, &config, &mut files.warnings);
        }
        Ok(files)
    }
}

/// Adds warnings about the fields of a file that are ignored.
fn warn_unread(table: &FieldTable, name: &str, config: &Value, warnings: &mut Vec<String>) {
    let Some(fields) = config.as_object() else {
        return;
    };
    let unknown = "sentence-transformers has no such setting";
    let found = table.unread(fields);
    warnings.extend(found.map(|found| format!("{name}: {}", found.warning(unknown))));
}

/// The pooling and normalization of `modules.json`. `None` without this file.
fn modules(path: &Path, warnings: &mut Vec<String>) -> Result<Option<(Pooling, bool)>, ModelError> {
    let file = path.join(MODULES_FILE);
    let Some(modules) = read_json(&file)? else {
        return Ok(None);
    };
    let refuse = |reason: String| ModelError::Modules {
        path: file.clone(),
        reason,
    };
    let modules = modules
        .as_array()
        .ok_or_else(|| refuse("must be a list".to_owned()))?;
    let (mut pooling, mut normalize) = (Pooling::Mean, false);
    for (number, module) in modules.iter().enumerate() {
        let kind = module["type"].as_str().unwrap_or_default();
        let folder = module["path"].as_str().unwrap_or_default();
        match (number, kind.rsplit('.').next().unwrap_or_default()) {
            (0, "Transformer") if folder.is_empty() => {}
            (0, "Transformer") => {
                let reason = format!("module 0 is in the folder `{folder}`; open that folder");
                return Err(refuse(reason));
            }
            (1, "Pooling") => {
                let name = format!("{folder}/config.json");
                pooling = read_pooling(&path.join(&name), &name, warnings)?;
            }
            (2.., "Normalize") => normalize = true,
            // Acts in training only.
            (2.., "Dropout") => {}
            _ => {
                return Err(refuse(format!(
                    "module {number} of type `{kind}` is not supported"
                )));
            }
        }
    }
    Ok(Some((pooling, normalize)))
}

/// The pooling of a `Pooling` module's `config.json`.
fn read_pooling(
    file: &Path,
    name: &str,
    warnings: &mut Vec<String>,
) -> Result<Pooling, ModelError> {
    let refuse = |reason: String| ModelError::Modules {
        path: file.to_owned(),
        reason,
    };
    let Some(config) = read_json(file)? else {
        return Err(refuse("the file is missing".to_owned()));
    };
    const MODES: [(&str, &str, Option<Pooling>); 6] = [
        ("pooling_mode_cls_token", "cls", Some(Pooling::First)),
        (MEAN, "mean", Some(Pooling::Mean)),
        ("pooling_mode_max_tokens", "max", Some(Pooling::Max)),
        (
            "pooling_mode_mean_sqrt_len_tokens",
            "mean_sqrt_len_tokens",
            Some(Pooling::MeanSqrtLength),
        ),
        ("pooling_mode_lasttoken", "lasttoken", Some(Pooling::Last)),
        ("pooling_mode_weightedmean_tokens", "weightedmean", None),
    ];
    warn_unread(&POOLING_FIELDS, name, &config, warnings);
    let named = match &config["pooling_mode"] {
        Value::Null => None,
        Value::String(name) => Some(name.as_str()),
        other => match other.as_array().map(Vec::as_slice) {
            Some([Value::String(name)]) => Some(name.as_str()),
            _ => return Err(refuse(format!("pooling_mode = {other} is not supported"))),
        },
    };
    // Of the flags, the mean is the only one that is true by default.
    let others = MODES
        .iter()
        .any(|(flag, ..)| *flag != MEAN && config[*flag] == true);
    let is_unsaid = config.get(MEAN).is_none();
    if named.is_none() && others && is_unsaid {
        warnings.push(format!(
            "{name}: the states are not pooled by their mean too, which is the default of `{MEAN}`"
        ));
    }
    let is_default = |flag: &str| flag == MEAN && is_unsaid && !others;
    let is_set = |flag: &str| config[flag] == true || is_default(flag);
    let mut modes = MODES.iter().filter(|(flag, name, _)| match named {
        Some(named) => named == *name,
        None => is_set(flag),
    });
    match (modes.next(), modes.next()) {
        (Some((_, _, Some(pooling))), None) => Ok(*pooling),
        (Some((flag, _, None)), None) => Err(refuse(format!("{flag} is not supported"))),
        (Some((first, ..)), Some((second, ..))) => {
            let reason = format!("{first} and {second} together are not supported");
            Err(refuse(reason))
        }
        (None, _) => Err(refuse(match named {
            Some(name) => format!("pooling_mode = {name} is not supported"),
            None => "exactly one pooling_mode must be set".to_owned(),
        })),
    }
}

/// `max_seq_length`, if the file is there and sets it.
fn longest_text(path: &Path, warnings: &mut Vec<String>) -> Result<Option<usize>, ModelError> {
    let file = path.join(SENTENCE_FILE);
    let Some(config) = read_json(&file)? else {
        return Ok(None);
    };
    warn_unread(&SENTENCE_FIELDS, SENTENCE_FILE, &config, warnings);
    match &config["max_seq_length"] {
        Value::Null => Ok(None),
        value => match value
            .as_u64()
            .and_then(|tokens| usize::try_from(tokens).ok())
        {
            Some(tokens @ 1..) => Ok(Some(tokens)),
            _ => Err(ModelError::Modules {
                path: file,
                reason: format!("max_seq_length = {value} must be a whole number of at least 1"),
            }),
        },
    }
}

/// Reads a JSON file. `None` if it does not exist.
fn read_json(file: &Path) -> Result<Option<Value>, ModelError> {
    let path = || PathBuf::from(file);
    match read_text(file, DESCRIPTION_LIMIT) {
        Ok(text) => serde_json::from_str(&text)
            .map(Some)
            .map_err(|error| ModelError::Modules {
                path: path(),
                reason: error.to_string(),
            }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(ModelError::Read {
            path: path(),
            source,
        }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Reads files of sentence-transformers with a pooling and other settings.
    fn read(
        pooling: &Value,
        sentence: &Value,
        prompts: &Value,
    ) -> Result<SentenceFiles, ModelError> {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, value: &Value| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, value.to_string()).unwrap();
        };
        let module = |kind: &str, path: &str| json!({"type": format!("sentence_transformers.models.{kind}"), "path": path});
        write(
            MODULES_FILE,
            &json!([module("Transformer", ""), module("Pooling", "1_Pooling")]),
        );
        write("1_Pooling/config.json", pooling);
        write(SENTENCE_FILE, sentence);
        write(PROMPTS_FILE, prompts);
        SentenceFiles::read(folder.path())
    }

    #[test]
    fn defaults_and_nulls_are_the_same_as_absence() {
        let mean = Some((Pooling::Mean, false));
        for pooling in [
            json!({}),
            json!({"pooling_mode": null, "word_embedding_dimension": 8}),
            json!({"pooling_mode": ["mean"]}),
        ] {
            let files = read(
                &pooling,
                &json!({"max_seq_length": null, "do_lower_case": false, "model_args": {}}),
                &json!({"prompts": {"query": "q: "}, "default_prompt_name": null, "similarity_fn_name": "cosine"}),
            )
            .unwrap();
            assert_eq!((files.modules, files.longest), (mean, None), "{pooling}");
            assert_eq!(files.warnings, Vec::<String>::new(), "{pooling}");
        }
    }

    #[test]
    fn settings_that_change_embeddings_are_reported() {
        let files = read(
            &json!({"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false, "pooling_mode_top": 3}),
            &json!({"max_seq_length": 5, "do_lower_case": true}),
            &json!({"default_prompt_name": "query", "truncate_dim": 4}),
        )
        .unwrap();
        assert_eq!(
            (files.modules, files.longest),
            (Some((Pooling::First, false)), Some(5))
        );
        let fields: Vec<&str> = files
            .warnings
            .iter()
            .filter_map(|line| line.split('`').nth(1))
            .collect();
        assert_eq!(
            fields,
            [
                "do_lower_case",
                "pooling_mode_top",
                "default_prompt_name",
                "truncate_dim"
            ]
        );
        let refused = [
            json!({"pooling_mode": ["mean", "cls"]}),
            json!({"pooling_mode_cls_token": true, "pooling_mode_max_tokens": true}),
            json!({"pooling_mode_mean_tokens": false}),
        ];
        for pooling in refused {
            assert!(read(&pooling, &json!({}), &json!({})).is_err(), "{pooling}");
        }
    }
}
