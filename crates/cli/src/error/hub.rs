//! Hints for models that cannot be found or downloaded.

use emberlm_hub::HubError;

use super::CliError;
use super::hints::{io, with};

impl From<HubError> for CliError {
    fn from(error: HubError) -> Self {
        let hints = hints(&error);
        with(&error, hints)
    }
}

fn hints(error: &HubError) -> Vec<String> {
    let hint = match error {
        HubError::Name { .. } => "for example: hf:HuggingFaceTB/SmolLM2-135M-Instruct".to_owned(),
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
        HubError::Status { .. } | HubError::Network { .. } => {
            "run the command again: it continues where it ended".to_owned()
        }
        HubError::Answer { .. } => {
            "check HF_ENDPOINT: the address may not be that of a Hub".to_owned()
        }
        HubError::Damaged { .. } => "run the command again: the file was removed".to_owned(),
        HubError::Files { .. } => {
            "models in safetensors and GGUF files can be opened, other formats cannot".to_owned()
        }
        HubError::Choice { name, files } => {
            let file = files.first().map(String::as_str).unwrap_or_default();
            format!("name one of them: {name}/{file}")
        }
        HubError::File { source, .. } => return io(source).into_iter().collect(),
    };
    vec![hint]
}
