//! Hints for models that cannot be found or downloaded.

use emberlm_hub::{HubError, ModelName};

use super::CliError;
use super::hints::{io, with};
use crate::shell::shell_word;

impl From<HubError> for CliError {
    fn from(error: HubError) -> Self {
        let hints = hints(&error);
        with(&error, hints)
    }
}

/// The name on the Hub that `text` probably means: one without `hf:`, or the address of its page. Paths are no names.
pub(super) fn hub_name(text: &str) -> Option<String> {
    const PAGES: [&str; 2] = ["huggingface.co/", "hf.co/"];
    let body = text
        .strip_prefix("hf:")
        .map_or(text, |rest| rest.trim_start_matches('/'));
    let body = ["https://", "http://"]
        .iter()
        .find_map(|scheme| body.strip_prefix(scheme))
        .unwrap_or(body);
    let body = PAGES
        .iter()
        .find_map(|page| body.strip_prefix(page))
        .unwrap_or(body);
    let body = body.trim_end_matches('/');
    let (body, file) = match body
        .split_once("/blob/")
        .or_else(|| body.split_once("/resolve/"))
    {
        Some((body, rest)) => (body, rest.split_once('/').map(|(_, file)| file)),
        None => (body, None),
    };
    let body = body.replacen("/tree/", "@", 1);
    let file = file.filter(|file| file.to_ascii_lowercase().ends_with(".gguf"));
    let name = match file {
        Some(file) => format!("hf:{body}/{file}"),
        None => format!("hf:{body}"),
    };
    let name: ModelName = name.parse().ok().filter(|_| body.contains('/'))?;
    Some(name.to_string()).filter(|name| name != text)
}

fn hints(error: &HubError) -> Vec<String> {
    let hint = match error {
        HubError::Name { text, .. } => match hub_name(text) {
            Some(name) => format!("the name of a model on the Hub: {name}"),
            None => "for example: hf:HuggingFaceTB/SmolLM2-135M-Instruct".to_owned(),
        },
        HubError::NoCache => "set HF_HOME to the folder of the cache".to_owned(),
        HubError::Setting { variable, .. } => format!("correct or unset {variable}"),
        HubError::Offline { .. } => {
            "unset HF_HUB_OFFLINE to download it; `emberlm models` lists the cache".to_owned()
        }
        HubError::NotFound { .. } => {
            "check the name, the revision after `@` and the file".to_owned()
        }
        HubError::Denied {
            name, with_token, ..
        } => {
            let repository = name
                .trim_start_matches("hf:")
                .split('@')
                .next()
                .unwrap_or_default();
            return match with_token {
                true => vec![format!(
                    "the token may not read {repository}: accept its terms on its page, or check the name"
                )],
                false => vec![
                    "check the name: unknown repositories are answered like private ones"
                        .to_owned(),
                    "for a private or gated model, set HF_TOKEN to an access token".to_owned(),
                ],
            };
        }
        HubError::Status { status: 429, .. } => {
            "wait some minutes, or set HF_TOKEN to an access token, which raises the limit"
                .to_owned()
        }
        HubError::Unreachable { .. } => {
            return vec![
                "check the network connection, and HF_ENDPOINT if it is set".to_owned(),
                "models that are on this computer work without it: emberlm models".to_owned(),
            ];
        }
        HubError::Status {
            status: 408 | 500..,
            ..
        }
        | HubError::Network { .. } => {
            "run the command again: it continues where it ended".to_owned()
        }
        HubError::Answer { .. } | HubError::Status { .. } => {
            "check HF_ENDPOINT: the address may not be that of a Hub".to_owned()
        }
        HubError::Damaged { .. } => "run the command again: the file was removed".to_owned(),
        HubError::Files { .. } => {
            "models in safetensors and GGUF files can be opened, other formats cannot".to_owned()
        }
        HubError::Choice { name, files } => {
            let file = files.first().map(String::as_str).unwrap_or_default();
            format!(
                "name one of them: {}",
                shell_word(&format!("{name}/{file}"))
            )
        }
        HubError::File { source, .. } => return io(source).into_iter().collect(),
    };
    vec![hint]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_without_their_prefix_and_addresses_of_pages_are_recognized() {
        for (text, name) in [
            ("org/model", "hf:org/model"),
            ("org/model@v1", "hf:org/model@v1"),
            ("org/model/file.gguf", "hf:org/model/file.gguf"),
            ("hf://org/model", "hf:org/model"),
            ("https://huggingface.co/org/model", "hf:org/model"),
            ("https://huggingface.co/org/model/tree/main", "hf:org/model"),
            ("huggingface.co/org/model/", "hf:org/model"),
            (
                "https://hf.co/org/model/blob/main/a.gguf",
                "hf:org/model/a.gguf",
            ),
            (
                "https://huggingface.co/org/model/resolve/main/model.safetensors",
                "hf:org/model",
            ),
        ] {
            assert_eq!(hub_name(text).as_deref(), Some(name), "{text}");
        }
        for text in [
            "model",
            "./org/model",
            "/org/model",
            "~/model",
            "a/b/c",
            "../a",
            "a b/c",
            "hf:org/../x",
            "hf:a/b",
        ] {
            assert_eq!(hub_name(text), None, "{text}");
        }
    }
}
