//! The file type of a GGUF file, and the tokens and the chat template that a model's texts have.

use emberlm_checkpoint::Model;
use emberlm_gguf::GgufFile;
use emberlm_model::gguf;
use emberlm_system::text::escaped;
use emberlm_tokenizer::Tokenizer;
use indicatif::HumanCount;
use serde::Serialize;

use crate::error::CliError;
use crate::output::{Align, Table};

/// Properties of a model's texts and file.
#[derive(Debug, Serialize)]
pub struct ModelTexts {
    /// The type of a GGUF file.
    file_type: Option<String>,
    /// The tensors of a GGUF file by their type: the number and the type's name.
    #[serde(skip)]
    tensors: Vec<(usize, &'static str)>,
    /// The token that begins a text without a prompt, or every target.
    begin_token: Option<NamedToken>,
    /// The tokens that end a text.
    end_tokens: Vec<NamedToken>,
    /// The chat template's name.
    chat_template: Option<String>,
    /// The template's name with the number of its characters, or the reason why it cannot be read.
    #[serde(skip)]
    template_note: String,
}

/// A token.
#[derive(Debug, Serialize)]
struct NamedToken {
    id: u32,
    /// The special token's name, or the text. `None` without a tokenizer.
    text: Option<String>,
}

impl NamedToken {
    fn new(id: u32, tokenizer: Option<&Tokenizer>) -> Self {
        let named = tokenizer.and_then(|tokenizer| {
            let mut specials = tokenizer.special_tokens().into_iter();
            let special = specials.find(|(_, special)| *special == id);
            let name = special.map(|(name, _)| name);
            name.or_else(|| tokenizer.decode(&[id]).ok())
        });
        Self { id, text: named }
    }

    fn shown(&self) -> String {
        match &self.text {
            Some(text) => format!("{} ({})", escaped(text), self.id),
            None => self.id.to_string(),
        }
    }
}

impl ModelTexts {
    /// Reads those of a model.
    ///
    /// # Errors
    /// The tokenizer cannot be read.
    pub fn of(model: &Model) -> Result<Self, CliError> {
        let tokenizer = model.tokenizer()?;
        let file = model.hugging_face().and_then(|source| source.gguf());
        let begin = || model.beginning(tokenizer.as_ref()?);
        let begin = model.config().start_token().or_else(begin);
        let ends = model.stop_tokens(tokenizer.as_ref());
        let named = |id| NamedToken::new(id, tokenizer.as_ref());
        let (chat_template, template_note) = match model.chat_template() {
            Ok(None) => (None, "none".to_owned()),
            Ok(Some(template)) => {
                let length = HumanCount(template.source().chars().count() as u64);
                let note = format!("{} ({length} characters)", template.name());
                (Some(template.name().to_owned()), note)
            }
            // The other properties are still of use.
            Err(error) => (None, format!("invalid: {error}")),
        };
        Ok(Self {
            file_type: file.map(gguf::type_name),
            tensors: file.map(tensors).unwrap_or_default(),
            begin_token: begin.map(named),
            end_tokens: ends.into_iter().map(named).collect(),
            chat_template,
            template_note,
        })
    }

    /// The output for people.
    pub fn text(&self) -> String {
        let none = || "none".to_owned();
        let mut table = Table::new([Align::Left, Align::Left]);
        if let Some(file_type) = &self.file_type {
            let tensors = self.tensors.iter();
            let tensors: Vec<String> = tensors
                .map(|(count, name)| format!("{count} of {name}"))
                .collect();
            let tensors = tensors.join(", ");
            table.row(["file type", &format!("{file_type} (tensors: {tensors})")]);
        }
        let begin = self
            .begin_token
            .as_ref()
            .map_or_else(none, NamedToken::shown);
        table.row(["begin token", &begin]);
        let ends: Vec<String> = self.end_tokens.iter().map(NamedToken::shown).collect();
        let ends = match ends.is_empty() {
            true => none(),
            false => ends.join(", "),
        };
        table.row(["end tokens", &ends]);
        table.row(["chat template", &self.template_note]);
        format!("\nTexts\n{}", table.render())
    }
}

/// The number of tensors of each type, the most frequent first.
fn tensors(file: &GgufFile) -> Vec<(usize, &'static str)> {
    let mut counts: Vec<(usize, &'static str)> = Vec::new();
    for tensor in file.tensors() {
        let name = tensor.tensor_type.name();
        match counts.iter_mut().find(|(_, known)| *known == name) {
            Some((count, _)) => *count += 1,
            None => counts.push((1, name)),
        }
    }
    counts.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    counts
}
