//! Typed access to the fields of a `config.json`. Errors name the field, its value and the violated rule. The fields that
//! are read are recorded, so that those that are not can be reported.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use serde_json::{Map, Value};

use crate::config::{Biases, limits};
use crate::error::HuggingFaceError;

const LARGEST_SIZE: u64 = limits::LARGEST_SIZE as u64;

/// The fields of one object in a `config.json`.
pub(crate) struct Fields<'a> {
    map: &'a Map<String, Value>,
    /// Path of the object with a trailing dot; empty for the top level.
    path: String,
    /// The paths of the fields that were read.
    read: Rc<RefCell<BTreeSet<String>>>,
}

type Read<T> = Result<T, HuggingFaceError>;

impl<'a> Fields<'a> {
    pub(crate) fn new(map: &'a Map<String, Value>) -> Self {
        Self {
            map,
            path: String::new(),
            read: Rc::default(),
        }
    }

    /// The path of a field, which is recorded as read.
    fn note(&self, name: &str) -> String {
        let path = format!("{}{name}", self.path);
        self.read.borrow_mut().insert(path.clone());
        path
    }

    /// The fields that were not read, and those of the objects that were.
    pub(crate) fn unread(&self) -> Map<String, Value> {
        let read = self.read.borrow();
        let mut unread = Map::new();
        for (name, value) in self.map {
            match value.as_object().filter(|_| read.contains(name)) {
                None if read.contains(name) => {}
                None => {
                    unread.insert(name.clone(), value.clone());
                }
                Some(object) => {
                    let nested = object
                        .iter()
                        .map(|(own, value)| (format!("{name}.{own}"), value));
                    let is_unread = |(path, _): &(String, &Value)| {
                        let within = format!("{path}.");
                        !read
                            .iter()
                            .any(|read| read == path || read.starts_with(&within))
                    };
                    let nested = nested.filter(is_unread);
                    unread.extend(nested.map(|(path, value)| (path, value.clone())));
                }
            }
        }
        unread
    }

    /// Builds an error about a field that violates `rule`.
    pub(crate) fn error(&self, name: &str, rule: impl Into<String>) -> HuggingFaceError {
        let value = self
            .map
            .get(name)
            .map_or("missing".to_owned(), Value::to_string);
        HuggingFaceError::Field {
            field: format!("{}{name}", self.path),
            value,
            rule: rule.into(),
        }
    }

    /// Returns the value of a field; `None` if it is absent or null.
    fn get(&self, name: &str) -> Option<&'a Value> {
        self.note(name);
        self.map.get(name).filter(|value| !value.is_null())
    }

    /// Returns true if the field has one of these values; an absent field counts as null.
    pub(crate) fn is_any_of(&self, name: &str, values: &[Value]) -> bool {
        self.note(name);
        values.contains(self.map.get(name).unwrap_or(&Value::Null))
    }

    /// Returns the object in the only field; `None` if there is not exactly one field.
    pub(crate) fn only_object(&self) -> Read<Option<Fields<'a>>> {
        match (self.map.len(), self.map.keys().next()) {
            (1, Some(name)) => self.object(name),
            _ => Ok(None),
        }
    }

    /// Returns true if the field is present, even if it is null.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.note(name);
        self.map.contains_key(name)
    }

    /// Number of fields.
    pub(crate) fn len(&self) -> usize {
        self.map.len()
    }

    /// Returns true if the object has no fields.
    pub(crate) fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// Reads a positive integer from the first of two alternative names that is present.
    pub(crate) fn size_by_names(&self, names: [&str; 2], default: usize) -> Read<usize> {
        match self.optional_size(names[0])? {
            Some(size) => Ok(size),
            None => self.size(names[1], default),
        }
    }

    /// Reads an object.
    pub(crate) fn object(&self, name: &str) -> Read<Option<Fields<'a>>> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::Object(map)) => Ok(Some(Fields {
                map,
                path: format!("{}{name}.", self.path),
                read: Rc::clone(&self.read),
            })),
            Some(_) => Err(self.error(name, "must be an object")),
        }
    }

    /// Reads a positive integer, if present.
    pub(crate) fn optional_size(&self, name: &str) -> Read<Option<usize>> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        match value.as_u64() {
            Some(size @ 1..=LARGEST_SIZE) => Ok(Some(size as usize)),
            _ => {
                let rule = format!("must be a whole number between 1 and {LARGEST_SIZE}");
                Err(self.error(name, rule))
            }
        }
    }

    /// Reads a positive integer.
    pub(crate) fn size(&self, name: &str, default: usize) -> Read<usize> {
        Ok(self.optional_size(name)?.unwrap_or(default))
    }

    /// Reads a non-negative integer.
    pub(crate) fn count(&self, name: &str, default: usize) -> Read<usize> {
        match self.get(name).map(Value::as_u64) {
            None => Ok(default),
            Some(Some(count @ 0..=LARGEST_SIZE)) => Ok(count as usize),
            Some(_) => Err(self.error(name, "must be a whole number of at least 0")),
        }
    }

    /// Checks that `size`, the value of field `name`, divides `whole`, the value of field `of`.
    pub(crate) fn divides(&self, name: &str, size: usize, of: &str, whole: usize) -> Read<()> {
        if whole.is_multiple_of(size) {
            Ok(())
        } else {
            Err(self.error(name, format!("must divide {of} = {whole}")))
        }
    }

    /// Reads a number.
    pub(crate) fn number(&self, name: &str, default: f64) -> Read<f64> {
        Ok(self.optional_number(name)?.unwrap_or(default))
    }

    /// Reads a number, if present.
    pub(crate) fn optional_number(&self, name: &str) -> Read<Option<f64>> {
        match self.get(name).map(Value::as_f64) {
            None => Ok(None),
            Some(Some(number)) => Ok(Some(number)),
            Some(None) => Err(self.error(name, "must be a number")),
        }
    }

    /// Reads a boolean.
    pub(crate) fn flag(&self, name: &str, default: bool) -> Read<bool> {
        match self.get(name) {
            None => Ok(default),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(_) => Err(self.error(name, "must be true or false")),
        }
    }

    /// Reads `attention_bias`, which applies to all of the attention's linear layers; the feed-forward layer has no biases.
    pub(crate) fn attention_biases(&self) -> Read<Biases> {
        Ok(Biases {
            feed_forward: false,
            ..Biases::all(self.flag("attention_bias", false)?)
        })
    }

    /// Reads a required string.
    pub(crate) fn text(&self, name: &str) -> Read<&'a str> {
        let text = self.optional_text(name)?;
        text.ok_or_else(|| self.error(name, "must be given"))
    }

    /// Reads a string, if present.
    pub(crate) fn optional_text(&self, name: &str) -> Read<Option<&'a str>> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(self.error(name, "must be a string")),
        }
    }

    /// Reads a list of strings, if present.
    pub(crate) fn optional_texts(&self, name: &str) -> Read<Option<Vec<&'a str>>> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        let texts = value
            .as_array()
            .and_then(|list| list.iter().map(Value::as_str).collect());
        let texts: Option<Vec<&str>> = texts;
        texts
            .map(Some)
            .ok_or_else(|| self.error(name, "must be a list of strings"))
    }

    /// Reads a list of numbers, if present.
    pub(crate) fn optional_numbers(&self, name: &str) -> Read<Option<Vec<f64>>> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        let numbers = value
            .as_array()
            .and_then(|list| list.iter().map(Value::as_f64).collect());
        let numbers: Option<Vec<f64>> = numbers;
        numbers
            .map(Some)
            .ok_or_else(|| self.error(name, "must be a list of numbers"))
    }

    /// Reads a list of non-negative integers, if present.
    pub(crate) fn optional_counts(&self, name: &str) -> Read<Option<Vec<usize>>> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        let count = |value: &Value| match value.as_u64() {
            Some(count @ 0..=LARGEST_SIZE) => Some(count as usize),
            _ => None,
        };
        let counts: Option<Vec<usize>> = value
            .as_array()
            .and_then(|list| list.iter().map(count).collect());
        counts
            .map(Some)
            .ok_or_else(|| self.error(name, "must be a list of whole numbers of at least 0"))
    }

    /// Returns the error `rule` unless a boolean field has its only supported value.
    pub(crate) fn only(&self, name: &str, value: bool, rule: &str) -> Read<()> {
        if self.flag(name, value)? == value {
            Ok(())
        } else {
            Err(self.error(name, rule))
        }
    }

    /// Returns the error `rule` if an unsupported field is set.
    pub(crate) fn refuse(&self, name: &str, rule: &str) -> Read<()> {
        match self.get(name) {
            None => Ok(()),
            Some(_) => Err(self.error(name, rule)),
        }
    }
}
