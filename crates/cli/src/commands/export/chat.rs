//! The tokenizer's settings and the chat template of an exported model.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use emberlm_checkpoint::Model;
use emberlm_tokenizer::chat::{
    ADDITIONAL_TEMPLATES, ChatEncoder, ChatTemplate, TEMPLATE_FILE, TOOL_USE,
};
use emberlm_tokenizer::{TOKENIZER_CONFIG_FILE, TOKENIZER_FILE, Tokenizer};
use serde_json::{Map, Value, json};

use super::write;
use crate::error::CliError;

/// Writes a model's tokenizer and chat template, without a directory to copy them from. Files of the model that it was
/// fine-tuned from are copied unchanged.
pub(super) fn write_tokenizer(
    model: &Model,
    tokenizer: &Tokenizer,
    folder: &Path,
) -> Result<(), CliError> {
    write(folder, TOKENIZER_FILE, tokenizer.to_tokenizer_json())?;
    model.source_files()?.export(folder)?;
    let files = ChatFiles::of(model, tokenizer, model.config().longest())?;
    if !files.keeps_config {
        let mut config = serde_json::to_vec_pretty(&files.config).map_err(unwritable)?;
        config.push(b'\n');
        write(folder, TOKENIZER_CONFIG_FILE, config)?;
    }
    write_template(files, folder)
}

/// Writes the chat template, unless the folder has it, and removes additional templates of another main template.
pub(super) fn write_template(files: ChatFiles, folder: &Path) -> Result<(), CliError> {
    let additional = folder.join(ADDITIONAL_TEMPLATES);
    if !files.keeps_templates && additional.exists() {
        fs::remove_dir_all(&additional).map_err(CliError::io("remove", &additional))?;
    }
    let is_there = |found: Option<ChatTemplate>, source: &String| {
        found.is_some_and(|found| found.source() == source)
    };
    if let Some(template) = files.template
        && !is_there(ChatTemplate::beside_model(folder)?, &template)
    {
        write(folder, TEMPLATE_FILE, template.into_bytes())?;
    }
    if let Some(template) = files.tool_use
        && !is_there(ChatTemplate::for_tools_beside(folder)?, &template)
    {
        fs::create_dir_all(&additional).map_err(CliError::io("create", &additional))?;
        write(
            &additional,
            &format!("{TOOL_USE}.jinja"),
            template.into_bytes(),
        )?;
    }
    Ok(())
}

/// The tokenizer's settings and the chat template that a model is exported with.
pub(super) struct ChatFiles {
    /// The fields of `tokenizer_config.json`.
    pub(super) config: Map<String, Value>,
    /// True if they are those of the model that this one was fine-tuned from.
    keeps_config: bool,
    /// The source of the template. It renders the ids that the model was trained with.
    pub(super) template: Option<String>,
    /// The source of the template for conversations with tools.
    pub(super) tool_use: Option<String>,
    /// The special tokens that the template is rendered with, by name.
    pub(super) tokens: BTreeMap<String, String>,
    /// True if the additional templates of the published model are for this one, too.
    pub(super) keeps_templates: bool,
}

impl ChatFiles {
    pub(super) fn of(
        model: &Model,
        tokenizer: &Tokenizer,
        max_length: Option<usize>,
    ) -> Result<Self, CliError> {
        let encoder = model.chat(tokenizer, None)?;
        let tokens = encoder.as_ref().map(|encoder| encoder.template().tokens());
        let tokens = tokens.cloned().unwrap_or_default();
        let kept = model.source_files()?.tokenizer_config();
        let keeps_config = kept.is_some();
        let mut config = match kept {
            Some(config) => config,
            None => serde_json::from_slice(&tokenizer.to_tokenizer_config_json(max_length))
                .map_err(unwritable)?,
        };
        // Libraries would add tokens that the tokenizer lacks to its vocabulary.
        let known = |token: &str| !keeps_config && tokenizer.special_id(token).is_some();
        for (name, token) in tokens.iter().filter(|(_, token)| known(token)) {
            config.entry(name.as_str()).or_insert_with(|| json!(token));
        }
        let source = |encoder: &ChatEncoder, template: &ChatTemplate| match keeps_config
            && encoder.template().is_published()
        {
            true => template.source().to_owned(),
            false => encoder.source_for(template, &config),
        };
        let template = encoder
            .as_ref()
            .map(|encoder| source(encoder, encoder.template()));
        let tool_use = encoder.as_ref().and_then(|encoder| {
            let template = encoder.template().tool_use()?;
            Some(source(encoder, template))
        });
        Ok(Self {
            template,
            tool_use,
            config,
            keeps_config,
            tokens,
            keeps_templates: model.keeps_templates()?,
        })
    }
}

fn unwritable(error: serde_json::Error) -> CliError {
    CliError::new(format!("cannot write {TOKENIZER_CONFIG_FILE}: {error}"))
}
