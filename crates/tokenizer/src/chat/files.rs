//! The sources of templates: names, and files as Hugging Face's libraries write them.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use emberlm_system::read::{DESCRIPTION_LIMIT, read_bytes, read_text};
use serde_json::Value;

use super::{ChatError, ChatTemplate, builtin};
use crate::TOKENIZER_CONFIG_FILE;

/// The name of a template's own file beside a model.
pub const TEMPLATE_FILE: &str = "chat_template.jinja";

/// The template that `transformers` takes for conversations with tools.
const TOOL_USE: &str = "tool_use";

/// The folder of the templates other than the default one.
const ADDITIONAL_FOLDER: &str = "additional_chat_templates";

/// The number of templates' names an error shows, and their bytes.
const SHOWN_NAMES: usize = 12;
const SHOWN_BYTES: usize = 1000;

/// The name of the template's file next to a multimodal preprocessor.
const TEMPLATE_JSON_FILE: &str = "chat_template.json";

impl FromStr for ChatTemplate {
    type Err = ChatError;

    /// The template that a user asks for: `chatml`, `llama3`, or a path. A name goes before a path.
    fn from_str(text: &str) -> Result<Self, ChatError> {
        if let Some(found) = builtin::ALL.into_iter().find(|(name, _)| *name == text) {
            return Self::builtin(found);
        }
        let path = Path::new(text);
        if path.exists() {
            return Self::from_path(path, None);
        }
        Err(ChatError::Unknown {
            name: text.to_owned(),
        })
    }
}

impl ChatTemplate {
    /// The template of a file: a `.json` file's `chat_template`, such as a `tokenizer_config.json`'s, or the text of any
    /// other file; of a folder, its `chat_template.jinja` or its `tokenizer_config.json`. Where a file has several, `which`
    /// names the one to take: `default` where none is named.
    ///
    /// `bos_token` and the like are those of the `tokenizer_config.json` in the same folder, if there is one.
    ///
    /// # Errors
    /// [`ChatError::File`] where a file cannot be read or holds no such template; [`ChatError::Template`] where it is no
    /// Jinja.
    pub fn from_path(path: &Path, which: Option<&str>) -> Result<Self, ChatError> {
        let file = match path.is_dir() {
            true => in_folder(path)?,
            false => path.to_owned(),
        };
        let config_path = file.with_file_name(TOKENIZER_CONFIG_FILE);
        Self::from_file(&file, &config_path, which)
    }

    /// The template of a file, with the special tokens of the `tokenizer_config.json` at `config_path`.
    fn from_file(file: &Path, config_path: &Path, which: Option<&str>) -> Result<Self, ChatError> {
        let config = match config_path.is_file() {
            true => read_json(config_path)?,
            false => Value::Null,
        };
        let source = match is_json(file) {
            true if file == config_path => select(&config, which, file)?,
            true => select(&read_json(file)?, which, file)?,
            false if which.is_some() => {
                return Err(refuse(file, "it holds one template, which has no name"));
            }
            false => read_text(file, DESCRIPTION_LIMIT).map_err(|error| refuse(file, error))?,
        };
        let mut template = Self::parse(&file.display().to_string(), &source)?;
        template.add_specials(added_specials(&config));
        Ok(template.with_tokens(named_tokens(&config)))
    }

    /// The template that lies beside a model in `folder`: its `chat_template.jinja`, or what `tokenizer_config.json` or
    /// `chat_template.json` says; none where there is none.
    ///
    /// # Errors
    /// As [`ChatTemplate::from_path`], where there is one.
    pub fn beside_model(folder: &Path) -> Result<Option<Self>, ChatError> {
        match beside_model(folder)? {
            Some(file) => Self::from_path(&file, None).map(Some),
            None => Ok(None),
        }
    }

    /// The template for conversations with tools that belongs to the template `text`, as [`ChatTemplate::from_str`] reads it: the
    /// one named `tool_use` of the same file, or `additional_chat_templates/tool_use.jinja` in the same folder. `transformers` too
    /// takes it where there are tools. `None` if there is no such template.
    ///
    /// # Errors
    /// As [`ChatTemplate::from_path`], where there is one.
    pub fn for_tools(text: &str) -> Result<Option<Self>, ChatError> {
        let is_builtin = builtin::ALL.into_iter().any(|(name, _)| name == text);
        let path = Path::new(text);
        if is_builtin || !path.exists() {
            return Ok(None);
        }
        match path.is_dir() {
            true => Self::for_tools_of(&in_folder(path)?),
            false => Self::for_tools_of(path),
        }
    }

    /// [`ChatTemplate::for_tools`] of the template that lies beside a model in `folder`.
    ///
    /// # Errors
    /// As [`ChatTemplate::from_path`], where there is one.
    pub fn for_tools_beside(folder: &Path) -> Result<Option<Self>, ChatError> {
        match beside_model(folder)? {
            Some(file) => Self::for_tools_of(&file),
            None => Ok(None),
        }
    }

    fn for_tools_of(file: &Path) -> Result<Option<Self>, ChatError> {
        if is_json(file) {
            let config = read_json(file)?;
            let mut templates = config["chat_template"].as_array().into_iter().flatten();
            let is_there = templates.any(|template| template["name"] == TOOL_USE);
            return match is_there {
                true => Self::from_path(file, Some(TOOL_USE)).map(Some),
                false => Ok(None),
            };
        }
        let added = format!("{ADDITIONAL_FOLDER}/{TOOL_USE}.jinja");
        let added = file.with_file_name(added);
        match added.is_file() {
            true => {
                let config_path = file.with_file_name(TOKENIZER_CONFIG_FILE);
                Self::from_file(&added, &config_path, None).map(Some)
            }
            false => Ok(None),
        }
    }
}

/// The file that holds the template of a model in `folder`.
fn beside_model(folder: &Path) -> Result<Option<PathBuf>, ChatError> {
    let file = folder.join(TEMPLATE_FILE);
    if file.is_file() {
        return Ok(Some(file));
    }
    for name in [TOKENIZER_CONFIG_FILE, TEMPLATE_JSON_FILE] {
        let file = folder.join(name);
        if file.is_file() && !read_json(&file)?["chat_template"].is_null() {
            return Ok(Some(file));
        }
    }
    Ok(None)
}

fn is_json(file: &Path) -> bool {
    let extension = file.extension();
    extension.is_some_and(|extension| extension.eq_ignore_ascii_case("json"))
}

/// The file of a folder that holds a template.
fn in_folder(folder: &Path) -> Result<PathBuf, ChatError> {
    let files = [TEMPLATE_FILE, TOKENIZER_CONFIG_FILE].map(|name| folder.join(name));
    let reason = format!("this folder holds no {TEMPLATE_FILE} and no {TOKENIZER_CONFIG_FILE}");
    files
        .into_iter()
        .find(|file| file.is_file())
        .ok_or_else(|| refuse(folder, reason))
}

/// The template of a JSON file: a text, or of a list of named ones the one called `which`.
fn select(config: &Value, which: Option<&str>, path: &Path) -> Result<String, ChatError> {
    let templates = match (&config["chat_template"], which) {
        (Value::Null, _) => return Err(refuse(path, "it has no `chat_template`")),
        (Value::String(template), None) => return Ok(template.clone()),
        (Value::String(_), Some(_)) => {
            return Err(refuse(
                path,
                "its `chat_template` is one, which has no name",
            ));
        }
        (Value::Array(templates), _) => templates,
        _ => {
            let rule =
                "`chat_template` must be a text, or a list of objects with `name` and `template`";
            return Err(refuse(path, rule));
        }
    };
    let which = which.unwrap_or("default");
    let found = templates.iter().find(|template| template["name"] == which);
    if let Some(template) = found.and_then(|template| template["template"].as_str()) {
        return Ok(template.to_owned());
    }
    let names = templates.iter().filter_map(|t| t["name"].as_str());
    let shown: Vec<&str> = names.clone().take(SHOWN_NAMES).collect();
    let mut names = match names.count() - shown.len() {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    };
    names.truncate(names.floor_char_boundary(SHOWN_BYTES));
    Err(refuse(
        path,
        format!("its `chat_template` has none called {which:?}, but: {names}"),
    ))
}

/// `bos_token`, `eos_token` and the like: each a text, or an object with the text in `content`.
fn named_tokens(config: &Value) -> Vec<(String, String)> {
    let fields = config.as_object().into_iter().flatten();
    let named = fields.filter(|(name, _)| name.ends_with("_token"));
    named
        .filter_map(|(name, token)| {
            let text = token.as_str().or_else(|| token["content"].as_str())?;
            Some((name.clone(), text.to_owned()))
        })
        .collect()
}

/// The special tokens that a `tokenizer_config.json` lists.
fn added_specials(config: &Value) -> Vec<String> {
    let tokens = config["added_tokens_decoder"]
        .as_object()
        .into_iter()
        .flatten();
    let special = tokens.filter(|(_, token)| token["special"] == Value::Bool(true));
    special
        .filter_map(|(_, token)| token["content"].as_str().map(str::to_owned))
        .collect()
}

fn read_json(path: &Path) -> Result<Value, ChatError> {
    let bytes = read_bytes(path, DESCRIPTION_LIMIT).map_err(|error| refuse(path, error))?;
    serde_json::from_slice(&bytes).map_err(|error| refuse(path, format!("it is not JSON: {error}")))
}

fn refuse(path: &Path, reason: impl ToString) -> ChatError {
    ChatError::File {
        path: path.to_owned(),
        reason: reason.to_string(),
    }
}
