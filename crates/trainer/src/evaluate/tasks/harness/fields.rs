//! The texts, targets and choices of documents: `doc_to_text`, `doc_to_target` and `doc_to_choice`.

use std::collections::BTreeSet;

use emberlm_data::TextTemplate;
use serde_json::{Map, Value};

use crate::evaluate::tasks::lines::Fields;
use crate::evaluate::tasks::literal;

/// The value of a document, and true if a template wrote it.
pub(super) type FieldValue = Result<(Value, bool), String>;

/// A rule that gives a value of each document.
#[derive(Debug)]
pub(super) enum Field {
    /// The same value for every document.
    Constant(Value),
    /// The value of a column.
    Column(String),
    /// A text by a Jinja template.
    Template(TextTemplate),
}

/// The rules for the prompt, the target and the choices.
#[derive(Debug)]
pub(super) struct DocRules {
    text: Field,
    target: Field,
    choice: Option<Field>,
}

/// The values of one document. An error names the rule that failed.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Doc {
    /// A text, or the number of a choice.
    pub(super) text: Value,
    /// A text, the number of a choice, or a list of either.
    pub(super) target: Value,
    pub(super) choices: Option<Vec<String>>,
}

impl Field {
    /// Reads a rule. A text that names one of `columns` is that column, and any other a template.
    pub(super) fn read(value: &Value, columns: &BTreeSet<String>) -> Result<Self, String> {
        match value {
            Value::String(name) if columns.contains(name) => Ok(Self::Column(name.clone())),
            Value::String(source) => match TextTemplate::parse(source) {
                Ok(template) => Ok(Self::Template(template)),
                Err(error) => Err(format!("is not a valid Jinja template: {error}")),
            },
            Value::Object(fields) => Ok(Self::Constant(fields.values().cloned().collect())),
            Value::Number(_) | Value::Array(_) => Ok(Self::Constant(value.clone())),
            Value::Null | Value::Bool(_) => {
                Err(format!("must be a text, a number or a list (got {value})"))
            }
        }
    }

    /// The value of each document, and true for those that a template wrote.
    pub(super) fn values(&self, docs: &[&Fields]) -> Result<Vec<FieldValue>, String> {
        match self {
            Self::Constant(value) => Ok(vec![Ok((value.clone(), false)); docs.len()]),
            Self::Column(name) => {
                let value = |doc: &&Fields| Ok((doc.get(name).cloned().unwrap_or_default(), false));
                Ok(docs.iter().map(value).collect())
            }
            Self::Template(template) => {
                let texts = template.render(docs).map_err(|error| error.to_string())?;
                let text = |text: Result<String, _>| match text {
                    Ok(text) => Ok((Value::from(text), true)),
                    Err(error) => Err(format!("the template fails: {error}")),
                };
                Ok(texts.into_iter().map(text).collect())
            }
        }
    }
}

impl DocRules {
    /// Reads the rules. The error names the key.
    pub(super) fn read(
        text: &Value,
        target: &Value,
        choice: Option<&Value>,
        columns: &BTreeSet<String>,
    ) -> Result<Self, (&'static str, String)> {
        let field = |key: &'static str, value: &Value| {
            Field::read(value, columns).map_err(|reason| (key, format!("`{key}` {reason}")))
        };
        Ok(Self {
            text: field("doc_to_text", text)?,
            target: field("doc_to_target", target)?,
            choice: choice
                .map(|value| field("doc_to_choice", value))
                .transpose()?,
        })
    }

    /// The values of `docs`, in order.
    ///
    /// # Errors
    /// Templates cannot be run at all.
    pub(super) fn apply(&self, docs: &[&Fields]) -> Result<Vec<Result<Doc, String>>, String> {
        let mut texts = self.text.values(docs)?.into_iter();
        let mut targets = self.target.values(docs)?.into_iter();
        let mut choices = match &self.choice {
            Some(field) => Some(field.values(docs)?.into_iter()),
            None => None,
        };
        let has_choices = choices.is_some();
        let mut next = || {
            let value = |found: Option<FieldValue>, key: &str| {
                let found = found.unwrap_or_else(|| Err("a text is missing".to_owned()));
                found.map_err(|reason| format!("`{key}`: {reason}"))
            };
            let text = value(texts.next(), "doc_to_text");
            let target = value(targets.next(), "doc_to_target");
            let choices = choices
                .as_mut()
                .map(|choices| value(choices.next(), "doc_to_choice"));
            Ok(Doc {
                text: number_of_choice(text?, has_choices),
                target: target_of(target?, has_choices),
                choices: choices.transpose()?.map(choices_of).transpose()?,
            })
        };
        Ok(docs.iter().map(|_| next()).collect())
    }
}

/// Digits that a template writes are the number of a choice, in a task with choices.
fn number_of_choice((value, rendered): (Value, bool), has_choices: bool) -> Value {
    let digits = |text: &&str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = value
        .as_str()
        .filter(|_| rendered && has_choices)
        .filter(digits);
    match number.and_then(|text| text.parse::<u64>().ok()) {
        Some(number) => Value::from(number),
        None => value,
    }
}

/// A template may also write a list.
fn target_of((value, rendered): (Value, bool), has_choices: bool) -> Value {
    let list = value
        .as_str()
        .filter(|text| rendered && text.starts_with('['))
        .and_then(literal::list);
    match list {
        Some(list) => Value::Array(list),
        None => number_of_choice((value, rendered), has_choices),
    }
}

fn choices_of((value, rendered): (Value, bool)) -> Result<Vec<String>, String> {
    let list = match &value {
        Value::String(text) if rendered => literal::list(text),
        Value::Array(items) => Some(items.clone()),
        _ => None,
    };
    let texts = |list: Vec<Value>| {
        list.into_iter()
            .map(|item| item.as_str().map(str::to_owned))
            .collect()
    };
    let texts: Option<Vec<String>> = list.and_then(texts);
    match texts {
        Some(texts) if texts.is_empty() => Err("`doc_to_choice` has no choice".to_owned()),
        Some(texts) if texts.iter().any(String::is_empty) => {
            Err("`doc_to_choice` has an empty choice".to_owned())
        }
        Some(texts) => Ok(texts),
        None => Err(format!(
            "`doc_to_choice` must be a list of texts (got {value})"
        )),
    }
}

impl Doc {
    /// The prompt as a text.
    pub(super) fn prompt(&self) -> Result<&str, String> {
        let text = self.text.as_str();
        text.ok_or_else(|| format!("`doc_to_text` must be a text (got {})", self.text))
    }

    /// The choice whose number is given instead of a prompt, for a task with several prompts and one target.
    pub(super) fn prompt_number(&self) -> Option<usize> {
        self.text
            .as_u64()
            .and_then(|number| usize::try_from(number).ok())
    }

    /// The target as a text: the first one of a list; the choice, if it is a number.
    pub(super) fn target_text(&self) -> Result<String, String> {
        let first = match &self.target {
            Value::Array(list) => list.first().ok_or("`doc_to_target` is an empty list")?,
            value => value,
        };
        match (first, &self.choices) {
            (Value::String(text), _) => Ok(text.clone()),
            (value, Some(choices)) => Ok(choices[number(value, choices)?].clone()),
            (value @ (Value::Number(_) | Value::Bool(_)), None) => Ok(value.to_string()),
            (value, None) => Err(format!("`doc_to_target` must be a text (got {value})")),
        }
    }

    /// The numbers of the correct choices.
    pub(super) fn correct(&self) -> Result<Vec<usize>, String> {
        let choices = self.choices.as_deref().unwrap_or_default();
        if let Some(number) = self.prompt_number() {
            return Ok(vec![self::number(&Value::from(number), choices)?]);
        }
        match &self.target {
            Value::Array(list) if list.is_empty() => {
                Err("`doc_to_target` is an empty list".to_owned())
            }
            Value::Array(list) => list.iter().map(|value| number(value, choices)).collect(),
            value => Ok(vec![number(value, choices)?]),
        }
    }

    /// The texts that a generated answer is compared with.
    pub(super) fn references(&self) -> Result<Vec<String>, String> {
        match &self.target {
            Value::Array(list) if self.choices.is_none() => {
                let text = |value: &Value| {
                    value
                        .as_str()
                        .map_or_else(|| value.to_string(), str::to_owned)
                };
                Ok(list.iter().map(text).collect())
            }
            _ => Ok(vec![self.target_text()?]),
        }
    }
}

/// The number of a choice, which may be given by its text.
fn number(value: &Value, choices: &[String]) -> Result<usize, String> {
    let count = choices.len();
    let found = match value {
        Value::String(text) => choices.iter().position(|choice| choice == text),
        Value::Bool(yes) => Some(usize::from(*yes)),
        value => value
            .as_u64()
            .and_then(|number| usize::try_from(number).ok()),
    };
    found.filter(|number| *number < count).ok_or_else(|| {
        format!(
            "the target is {value}: must be one of the {count} choices, or its number from 0 to {}",
            count.saturating_sub(1)
        )
    })
}

/// The names of the columns of documents.
pub(super) fn columns<'a>(
    docs: impl IntoIterator<Item = &'a Map<String, Value>>,
) -> BTreeSet<String> {
    docs.into_iter()
        .flat_map(|doc| doc.keys().cloned())
        .collect()
}
