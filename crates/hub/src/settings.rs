//! Settings of the Hub from environment variables, as the Python package `huggingface_hub` reads them.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use crate::error::HubError;

/// Folder, address and access.
#[derive(Clone)]
pub struct Settings {
    /// Folder of the cache: `HF_HUB_CACHE`, or `hub` in `HF_HOME`, or `~/.cache/huggingface/hub`.
    pub cache: PathBuf,
    /// Address of the Hub: `HF_ENDPOINT`, without a final slash.
    pub endpoint: String,
    /// Access token: `HF_TOKEN`, or the content of the file that `hf auth login` writes.
    pub token: Option<String>,
    /// True if downloads are disabled (`HF_HUB_OFFLINE`).
    pub offline: bool,
    /// Pause before the first retry of a failed request. It doubles with each further one.
    pub retry_pause: Duration,
}

impl Settings {
    /// Reads the process's environment.
    ///
    /// # Errors
    /// No folder for the cache is known, or a variable's value is invalid.
    pub fn from_environment() -> Result<Self, HubError> {
        Self::from_variables(|name| std::env::var_os(name), dirs::home_dir())
    }

    /// Reads `variable`, a function from names to values. `home` is the home directory.
    ///
    /// # Errors
    /// As [`Settings::from_environment`].
    pub fn from_variables(
        variable: impl Fn(&str) -> Option<OsString>,
        home: Option<PathBuf>,
    ) -> Result<Self, HubError> {
        const ENDPOINT: &str = "https://huggingface.co";
        let path = |name| {
            variable(name)
                .filter(|value| !value.is_empty())
                .map(PathBuf::from)
        };
        let text = |name: &str| {
            let value = variable(name)?.into_string().ok()?.trim().to_owned();
            (!value.is_empty()).then_some(value)
        };
        let is_true = |name| {
            let value = text(name).unwrap_or_default().to_ascii_lowercase();
            matches!(value.as_str(), "1" | "true" | "yes" | "on")
        };
        let hf_home = path("HF_HOME").or_else(|| {
            let cache = path("XDG_CACHE_HOME").or_else(|| Some(home?.join(".cache")))?;
            Some(cache.join("huggingface"))
        });
        let cache = path("HF_HUB_CACHE")
            .or_else(|| path("HUGGINGFACE_HUB_CACHE"))
            .or_else(|| Some(hf_home.as_ref()?.join("hub")))
            .ok_or(HubError::NoCache)?;
        let endpoint = text("HF_ENDPOINT").unwrap_or_else(|| ENDPOINT.to_owned());
        if !endpoint.starts_with("https://") && !endpoint.starts_with("http://") {
            return Err(HubError::Setting {
                variable: "HF_ENDPOINT",
                value: endpoint,
                rule: "must begin with https:// or http://",
            });
        }
        let token_file = path("HF_TOKEN_PATH").or_else(|| Some(hf_home.as_ref()?.join("token")));
        let stored = || {
            let text = fs::read_to_string(token_file?).ok()?;
            Some(text.trim().to_owned()).filter(|token| !token.is_empty())
        };
        let token = text("HF_TOKEN").or_else(|| match is_true("HF_HUB_DISABLE_IMPLICIT_TOKEN") {
            true => None,
            false => stored(),
        });
        if token
            .as_ref()
            .is_some_and(|token| !token.chars().all(|c| c.is_ascii_graphic()))
        {
            return Err(HubError::Setting {
                variable: "HF_TOKEN",
                value: "(hidden)".to_owned(),
                rule: "must consist of printable ASCII characters without spaces",
            });
        }
        Ok(Self {
            cache,
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            token,
            offline: is_true("HF_HUB_OFFLINE") || is_true("TRANSFORMERS_OFFLINE"),
            retry_pause: Duration::from_secs(1),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(variables: &[(&str, &str)]) -> Settings {
        let find = |name: &str| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| OsString::from(value))
        };
        Settings::from_variables(find, Some("/home/user".into())).unwrap()
    }

    #[test]
    fn the_cache_is_where_python_has_it() {
        let cache = |variables: &[_]| settings(variables).cache;
        assert_eq!(
            cache(&[]),
            PathBuf::from("/home/user/.cache/huggingface/hub")
        );
        assert_eq!(cache(&[("HF_HOME", "/x")]), PathBuf::from("/x/hub"));
        assert_eq!(
            cache(&[("HF_HOME", "/x"), ("HF_HUB_CACHE", "/y")]),
            PathBuf::from("/y")
        );
        let xdg = [("XDG_CACHE_HOME", "/z")];
        assert_eq!(cache(&xdg), PathBuf::from("/z/huggingface/hub"));
    }

    #[test]
    fn the_token_comes_from_the_variable_or_the_file_of_a_login() {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("token"), "stored\n").unwrap();
        let home = home.path().to_str().unwrap();
        let token = |more: &[(&str, &str)]| {
            let mut all = vec![("HF_HOME", home)];
            all.extend(more);
            settings(&all).token
        };
        assert_eq!(token(&[]).as_deref(), Some("stored"));
        assert_eq!(token(&[("HF_TOKEN", "given")]).as_deref(), Some("given"));
        assert_eq!(token(&[("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")]), None);
    }

    #[test]
    fn an_endpoint_that_is_not_an_address_is_refused() {
        let find = |name: &str| (name == "HF_ENDPOINT").then(|| OsString::from("mirror.example"));
        let error = Settings::from_variables(find, Some("/home".into()))
            .err()
            .unwrap();
        assert!(
            error.to_string().contains("HF_ENDPOINT=mirror.example"),
            "{error}"
        );
    }
}
