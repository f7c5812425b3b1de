//! The files of a repository that make a model.

use std::collections::HashSet;

use crate::error::HubError;
use crate::name::{ModelName, is_gguf};

/// The weights of a model in one file.
pub(crate) const WEIGHTS: &str = "model.safetensors";
/// The table of tensors of weights in several files.
pub(crate) const WEIGHTS_INDEX: &str = "model.safetensors.index.json";
/// The description of a model.
pub(crate) const CONFIG: &str = "config.json";

/// Selects, of a repository's paths, the files that a model needs, in the order given.
///
/// With a file in the name, that is the GGUF file and the other parts of a split one. Otherwise it is
/// `config.json` with the weights in safetensors and the small text files beside them, or the only GGUF file.
///
/// # Errors
/// The repository has neither, not the file of the name, or several GGUF files.
pub fn select<'a>(name: &ModelName, paths: &[&'a str]) -> Result<Vec<&'a str>, HubError> {
    let refused = |reason: String| HubError::Files {
        name: name.to_string(),
        reason,
    };
    let ggufs = || paths.iter().copied().filter(|path| is_gguf(path));
    if let Some(file) = name.file() {
        let parts: Vec<&str> = ggufs().filter(|path| are_parts(path, file)).collect();
        return match parts.contains(&file) {
            true => Ok(parts),
            false => {
                let known: Vec<&str> = ggufs().collect();
                Err(refused(match known.is_empty() {
                    true => format!("the repository has no {file}"),
                    false => format!("the repository has no {file}, but {}", known.join(", ")),
                }))
            }
        };
    }
    let is_shard = |path: &str| {
        let middle = path
            .strip_prefix("model-")
            .and_then(|rest| rest.strip_suffix(".safetensors"));
        middle.is_some_and(|middle| middle.contains("-of-"))
    };
    let single = paths.contains(&WEIGHTS);
    let split = paths.contains(&WEIGHTS_INDEX);
    if paths.contains(&CONFIG) && (single || split) {
        let needed = |path: &&str| match *path {
            WEIGHTS => true,
            WEIGHTS_INDEX => !single,
            path if is_shard(path) => !single,
            path => is_text(path),
        };
        return Ok(paths.iter().copied().filter(needed).collect());
    }
    let mut models: Vec<&str> = ggufs().filter(|path| is_model(path)).collect();
    match models.as_slice() {
        [] => Err(refused(match paths.contains(&CONFIG) {
            true => "the repository has no weights in safetensors (model.safetensors)".to_owned(),
            false => "the repository has neither a config.json nor a GGUF file".to_owned(),
        })),
        [only] => Ok(ggufs().filter(|path| are_parts(path, only)).collect()),
        _ => {
            models.sort_unstable();
            Err(HubError::Choice {
                name: name.to_string(),
                files: models.into_iter().map(str::to_owned).collect(),
            })
        }
    }
}

/// Returns true for the text files that belong to a model: configurations, tokenizer, chat template, and the
/// modules of sentence-transformers.
fn is_text(path: &str) -> bool {
    match path.split_once('/') {
        None => {
            let is_index = path.ends_with(".index.json");
            (path.ends_with(".json") && !is_index)
                || path.ends_with(".jinja")
                || path == "tokenizer.model"
        }
        Some((module, file)) => {
            let numbered = module.starts_with(|c: char| c.is_ascii_digit()) && module.contains('_');
            numbered && matches!(file, CONFIG | WEIGHTS)
        }
    }
}

/// The number of a part and of all parts, with the name before them, in `NAME-00001-of-00003.gguf`.
fn part(path: &str) -> Option<(&str, u32, u32)> {
    let stem = path.get(..path.len().checked_sub(".gguf".len())?)?;
    let (rest, count) = stem.rsplit_once("-of-")?;
    let (name, number) = rest.rsplit_once('-')?;
    Some((name, number.parse().ok()?, count.parse().ok()?))
}

/// Returns true if the files are the same or parts of the same split file.
fn are_parts(a: &str, b: &str) -> bool {
    let whole = |path| part(path).map(|(name, _, count)| (name, count));
    a == b || (whole(a).is_some() && whole(a) == whole(b))
}

/// Returns a part of a split GGUF file that is not among the selected files.
pub(crate) fn missing_part(selected: &[&str]) -> Option<String> {
    let (file, (name, _, count)) = selected.iter().find_map(|path| Some((path, part(path)?)))?;
    let parts = selected.iter().filter_map(|path| part(path));
    let numbers: HashSet<u32> = parts.map(|(_, number, _)| number).collect();
    // More parts than selected files cannot all be there, so the search is short.
    let missing = (1..=count).find(|number| !numbers.contains(number))?;
    let width = file
        .len()
        .saturating_sub(name.len() + "-".len() + ".gguf".len() + "-of-".len())
        / 2;
    Some(format!("{name}-{missing:0width$}-of-{count:0width$}.gguf"))
}

/// Returns true for the GGUF file of a model, or its first part. Projectors of image models (`mmproj`) and importance
/// matrices are not models.
pub(crate) fn is_model(path: &str) -> bool {
    let file = path.rsplit_once('/').map_or(path, |(_, file)| file);
    let other = file.starts_with("mmproj") || file.starts_with("imatrix");
    !other && part(path).is_none_or(|(_, number, _)| number == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selected(name: &str, paths: &[&'static str]) -> Result<Vec<&'static str>, String> {
        select(&name.parse().unwrap(), paths).map_err(|error| error.to_string())
    }

    #[test]
    fn a_model_is_its_configuration_weights_and_texts() {
        let files = [
            "README.md",
            "config.json",
            "tokenizer.json",
            "model.safetensors",
            "pytorch_model.bin",
            "onnx/model.onnx",
            "1_Pooling/config.json",
            "original/params.json",
            "chat_template.jinja",
            "model-q4.gguf",
        ];
        assert_eq!(
            selected("hf:a/b", &files).unwrap(),
            [
                "config.json",
                "tokenizer.json",
                "model.safetensors",
                "1_Pooling/config.json",
                "chat_template.jinja"
            ]
        );
        let split = [
            "config.json",
            "model-00001-of-00002.safetensors",
            "model.safetensors.index.json",
            "model-00002-of-00002.safetensors",
            "model.fp32-00001-of-00002.safetensors",
        ];
        let needed = selected("hf:a/b", &split).unwrap();
        assert_eq!(needed, [split[0], split[1], split[2], split[3]]);
    }

    #[test]
    fn a_gguf_file_is_chosen_by_its_name_or_because_it_is_the_only_one() {
        let files = [
            "x-Q4.gguf",
            "x-Q8-00001-of-00002.gguf",
            "x-Q8-00002-of-00002.gguf",
            "README.md",
        ];
        assert_eq!(selected("hf:a/b/x-Q4.gguf", &files).unwrap(), ["x-Q4.gguf"]);
        assert_eq!(
            selected("hf:a/b/x-Q8-00001-of-00002.gguf", &files).unwrap(),
            files[1..3]
        );
        assert_eq!(selected("hf:a/b", &files[1..]).unwrap(), files[1..3]);
        let error = selected("hf:a/b", &files).unwrap_err();
        assert!(
            error.contains("x-Q4.gguf, x-Q8-00001-of-00002.gguf"),
            "{error}"
        );
        let error = selected("hf:a/b/y.gguf", &files).unwrap_err();
        assert!(error.contains("no y.gguf, but x-Q4.gguf"), "{error}");
    }

    #[test]
    fn a_repository_without_weights_is_refused() {
        let error = selected("hf:a/b", &["config.json", "pytorch_model.bin"]).unwrap_err();
        assert!(error.contains("no weights in safetensors"), "{error}");
        let error = selected("hf:a/b", &["README.md"]).unwrap_err();
        assert!(
            error.contains("neither a config.json nor a GGUF file"),
            "{error}"
        );
    }
}
