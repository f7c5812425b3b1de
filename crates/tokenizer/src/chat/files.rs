//! Loads templates by name and from the files of Hugging Face libraries.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use emberlm_gguf::{GgufFile, is_gguf};
use emberlm_system::read::{DESCRIPTION_LIMIT, check_text, read_bytes, read_text};
use serde_json::Value;

use super::{ChatError, ChatTemplate, builtin};
use crate::{GgufTokenizer, TOKENIZER_CONFIG_FILE};

/// The name of the template file in a model directory.
pub const TEMPLATE_FILE: &str = "chat_template.jinja";

/// The name of the template that `transformers` uses for conversations with tools.
pub const TOOL_USE: &str = "tool_use";

/// The folder of additional templates in a model directory, each in the file `NAME.jinja`.
pub const ADDITIONAL_TEMPLATES: &str = "additional_chat_templates";

/// The file of special tokens in directories of earlier versions of `transformers`.
const SPECIAL_TOKENS_MAP_FILE: &str = "special_tokens_map.json";

/// The maximum number of template names in an error message, and their maximum length in bytes.
const SHOWN_NAMES: usize = 12;
const SHOWN_BYTES: usize = 1000;

/// The template file of a multimodal preprocessor.
const TEMPLATE_JSON_FILE: &str = "chat_template.json";

impl FromStr for ChatTemplate {
    type Err = ChatError;

    /// Loads the template chosen by the user: `chatml`, `llama3` or a path. Names take precedence.
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
    /// Loads a template from a file or folder. In a `.json` file, such as `tokenizer_config.json`, it is the
    /// `chat_template`; any other file is the template itself. A folder needs a `chat_template.jinja` or a
    /// `tokenizer_config.json`. If a file has several templates, `which` selects one by name; the default is
    /// `default`. Of a GGUF file, it is the one in its metadata.
    ///
    /// Special tokens such as `bos_token` come from the `tokenizer_config.json` in the same folder, if there is
    /// one.
    ///
    /// # Errors
    /// [`ChatError::File`] if a file cannot be read or has no such template. [`ChatError::Template`] if the
    /// template is not valid Jinja.
    pub fn from_path(path: &Path, which: Option<&str>) -> Result<Self, ChatError> {
        if is_gguf(path) {
            let missing = || refuse(path, "it has no chat template");
            return Self::in_gguf(path, which)?.ok_or_else(missing);
        }
        let file = match path.is_dir() {
            true => in_folder(path)?,
            false => path.to_owned(),
        };
        let config_path = file.with_file_name(TOKENIZER_CONFIG_FILE);
        let template = Self::from_file(&file, &config_path, which)?;
        Ok(
            match path.is_dir() || is_json(&file) || config_path.is_file() {
                true => template.published(),
                false => template,
            },
        )
    }

    /// Loads the template in the metadata of a GGUF file: the one named `which`, by default the main one.
    fn in_gguf(path: &Path, which: Option<&str>) -> Result<Option<Self>, ChatError> {
        let file = GgufFile::open(path).map_err(|error| refuse(path, error))?;
        let tokenizer =
            GgufTokenizer::read(file.metadata()).map_err(|error| refuse(path, error))?;
        match tokenizer {
            Some(tokenizer) => tokenizer.chat_template(&path.display().to_string(), which),
            None => Ok(None),
        }
    }

    /// Loads a template, with the special tokens of the `tokenizer_config.json` at `config_path`.
    fn from_file(file: &Path, config_path: &Path, which: Option<&str>) -> Result<Self, ChatError> {
        let config = folder_config(config_path)?;
        let source = match is_json(file) {
            true if file == config_path => select(&config, which, file)?,
            true => select(&read_json(file)?, which, file)?,
            false if which.is_some() => {
                return Err(refuse(file, "it has one template without a name"));
            }
            false => read_text(file, DESCRIPTION_LIMIT).map_err(|error| refuse(file, error))?,
        };
        let mut template = Self::parse(&file.display().to_string(), &source)?;
        template.add_specials(added_specials(&config));
        Ok(template.with_tokens(named_tokens(&config)))
    }

    /// Parses a template in the contents of a `tokenizer_config.json`: the one named `which`, by default the main one.
    /// `name` identifies it in error messages. Returns `None` if there is no such template.
    ///
    /// # Errors
    /// See [`ChatTemplate::parse`].
    pub fn from_config(
        name: &str,
        config: &Value,
        which: Option<&str>,
    ) -> Result<Option<Self>, ChatError> {
        let named = |name: &str| {
            let mut templates = config["chat_template"].as_array().into_iter().flatten();
            templates.any(|template| template["name"] == name)
        };
        let is_there = match (&config["chat_template"], which) {
            (Value::String(_), which) => which.is_none(),
            (_, which) => named(which.unwrap_or("default")),
        };
        if !is_there {
            return Ok(None);
        }
        let source = select(config, which, Path::new(name))?;
        let mut template = Self::parse(name, &source)?;
        template.add_specials(added_specials(config));
        Ok(Some(template.with_tokens(named_tokens(config)).published()))
    }

    /// Loads the template of the model in `folder`, from `chat_template.jinja`, `tokenizer_config.json` or
    /// `chat_template.json`. Returns `None` if there is none.
    ///
    /// # Errors
    /// See [`ChatTemplate::from_path`].
    pub fn beside_model(folder: &Path) -> Result<Option<Self>, ChatError> {
        match beside_model(folder)? {
            Some(file) => Ok(Some(Self::from_path(&file, None)?.published())),
            None => Ok(None),
        }
    }

    /// Loads the tool-use variant of the template `text`, which is interpreted as in
    /// [`ChatTemplate::from_str`]: the template named `tool_use` in the same file, or
    /// `additional_chat_templates/tool_use.jinja` in the same folder. Like `transformers`, use it for
    /// conversations with tools. Returns `None` if there is no such template.
    ///
    /// # Errors
    /// See [`ChatTemplate::from_path`].
    pub fn for_tools(text: &str) -> Result<Option<Self>, ChatError> {
        let is_builtin = builtin::ALL.into_iter().any(|(name, _)| name == text);
        let path = Path::new(text);
        if is_builtin || !path.exists() {
            return Ok(None);
        }
        match path.is_dir() {
            true => Self::for_tools_of(&in_folder(path)?),
            false if is_gguf(path) => Self::in_gguf(path, Some(TOOL_USE)),
            false => Self::for_tools_of(path),
        }
    }

    /// Like [`ChatTemplate::for_tools`], for the template of the model in `folder`.
    ///
    /// # Errors
    /// See [`ChatTemplate::from_path`].
    pub fn for_tools_beside(folder: &Path) -> Result<Option<Self>, ChatError> {
        match beside_model(folder)? {
            Some(file) => Self::for_tools_of(&file),
            None => Ok(None),
        }
    }

    /// Reads the sources of the additional templates in a model's `folder`, by name.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn additional(folder: &Path) -> Result<BTreeMap<String, String>, ChatError> {
        let files = std::fs::read_dir(folder.join(ADDITIONAL_TEMPLATES));
        let files = files.into_iter().flatten().flatten();
        let files = files.map(|file| file.path());
        let templates = files.filter_map(|file| {
            let name = file.file_stem()?.to_str()?.to_owned();
            let is_template = file.extension().is_some_and(|end| end == "jinja") && file.is_file();
            is_template.then_some((name, file))
        });
        let read = templates.map(|(name, file)| {
            let source = read_text(&file, DESCRIPTION_LIMIT);
            Ok((name, source.map_err(|error| refuse(&file, error))?))
        });
        read.collect()
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
        let added = format!("{ADDITIONAL_TEMPLATES}/{TOOL_USE}.jinja");
        let added = file.with_file_name(added);
        match added.is_file() {
            true => {
                let config_path = file.with_file_name(TOKENIZER_CONFIG_FILE);
                let template = Self::from_file(&added, &config_path, None)?;
                Ok(Some(template.published()))
            }
            false => Ok(None),
        }
    }
}

impl GgufTokenizer {
    /// The chat template named `which`, by default the main one. `name` identifies it in messages.
    ///
    /// # Errors
    /// The template is not valid Jinja, or exceeds a limit.
    pub fn chat_template(
        &self,
        name: &str,
        which: Option<&str>,
    ) -> Result<Option<ChatTemplate>, ChatError> {
        ChatTemplate::from_config(name, &Value::Object(self.config().clone()), which)
    }
}

/// Returns the file with the template of the model in `folder`.
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

/// Returns the file with the template in a folder chosen by the user.
fn in_folder(folder: &Path) -> Result<PathBuf, ChatError> {
    let files = [TEMPLATE_FILE, TOKENIZER_CONFIG_FILE].map(|name| folder.join(name));
    let reason = format!("this folder has neither {TEMPLATE_FILE} nor {TOKENIZER_CONFIG_FILE}");
    files
        .into_iter()
        .find(|file| file.is_file())
        .ok_or_else(|| refuse(folder, reason))
}

/// Selects the template of a JSON file: a single string, or the one named `which` in a list.
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
                "`chat_template` must be a string, or a list of objects with `name` and `template`";
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

/// Reads a `tokenizer_config.json`. As in `transformers`, the special tokens in `special_tokens_map.json` replace its own,
/// unless it has the field `added_tokens_decoder`.
fn folder_config(path: &Path) -> Result<Value, ChatError> {
    let mut config = match path.is_file() {
        true => read_json(path)?,
        false => Value::Null,
    };
    let map = path.with_file_name(SPECIAL_TOKENS_MAP_FILE);
    if config["added_tokens_decoder"].is_null() && map.is_file() {
        let fields = read_json(&map)?;
        let fields = fields.as_object().into_iter().flatten();
        for (name, token) in fields.filter(|(name, _)| name.ends_with("_token")) {
            config[name] = token.clone();
        }
    }
    Ok(config)
}

/// Returns `bos_token`, `eos_token` and similar fields. Each is a string, or an object with the string in
/// `content`.
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

/// Returns the special tokens listed by a `tokenizer_config.json`.
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
    check_text(&bytes).map_err(|error| refuse(path, error))?;
    serde_json::from_slice(&bytes).map_err(|error| refuse(path, format!("it is not JSON: {error}")))
}

fn refuse(path: &Path, reason: impl ToString) -> ChatError {
    ChatError::File {
        path: path.to_owned(),
        reason: reason.to_string(),
    }
}
