//! Typed access to metadata.

use std::collections::HashMap;

use crate::error::GgufError;
use crate::value::{Array, Value};

/// The metadata of a file: keys with values, in the order of the file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metadata {
    pairs: Vec<(String, Value)>,
    places: HashMap<String, usize>,
}

type Read<T> = Result<T, GgufError>;

impl Metadata {
    /// Sets the value of a key. Returns false if the key already had one, which is replaced.
    pub fn insert(&mut self, key: impl Into<String>, value: Value) -> bool {
        let key = key.into();
        match self.places.get(&key) {
            Some(&place) => {
                self.pairs[place].1 = value;
                false
            }
            None => {
                self.places.insert(key.clone(), self.pairs.len());
                self.pairs.push((key, value));
                true
            }
        }
    }

    /// The keys and values in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.pairs.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.places.get(key).map(|&place| &self.pairs[place].1)
    }

    /// Builds an error about a key whose value violates `rule`.
    pub fn error(&self, key: &str, rule: impl Into<String>) -> GgufError {
        GgufError::Metadata {
            key: key.to_owned(),
            value: self
                .get(key)
                .map_or_else(|| "missing".to_owned(), Value::to_string),
            rule: rule.into(),
        }
    }

    fn read<'a, T>(
        &'a self,
        key: &str,
        rule: &str,
        convert: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Read<Option<T>> {
        match self.get(key) {
            None => Ok(None),
            Some(value) => convert(value)
                .map(Some)
                .ok_or_else(|| self.error(key, rule)),
        }
    }

    /// A string, if the key is present.
    ///
    /// # Errors
    /// The value has another type.
    pub fn text(&self, key: &str) -> Read<Option<&str>> {
        self.read(key, "must be a string", |value| match value {
            Value::String(text) => Some(text.as_str()),
            _ => None,
        })
    }

    /// A non-negative integer, if the key is present.
    ///
    /// # Errors
    /// The value has another type or is negative.
    pub fn count(&self, key: &str) -> Read<Option<u64>> {
        let rule = "must be a whole number of at least 0";
        self.read(key, rule, |value| u64::try_from(value.integer()?).ok())
    }

    /// A number, if the key is present.
    ///
    /// # Errors
    /// The value has another type.
    pub fn number(&self, key: &str) -> Read<Option<f64>> {
        self.read(key, "must be a number", Value::number)
    }

    /// A boolean, if the key is present.
    ///
    /// # Errors
    /// The value has another type.
    pub fn flag(&self, key: &str) -> Read<Option<bool>> {
        self.read(key, "must be true or false", |value| match value {
            Value::Bool(flag) => Some(*flag),
            _ => None,
        })
    }

    /// A list, if the key is present.
    ///
    /// # Errors
    /// The value has another type.
    pub fn array(&self, key: &str) -> Read<Option<&Array>> {
        self.read(key, "must be a list", |value| match value {
            Value::Array(array) => Some(array),
            _ => None,
        })
    }

    /// A list of strings, if the key is present.
    ///
    /// # Errors
    /// The value has another type.
    pub fn texts(&self, key: &str) -> Read<Option<&[String]>> {
        self.read(key, "must be a list of strings", |value| match value {
            Value::Array(Array::String(texts)) => Some(texts.as_slice()),
            _ => None,
        })
    }

    /// A list of numbers, if the key is present.
    ///
    /// # Errors
    /// The value has another type.
    pub fn numbers(&self, key: &str) -> Read<Option<Vec<f64>>> {
        self.read(key, "must be a list of numbers", |value| match value {
            Value::Array(array) => array.iter().map(|value| value.number()).collect(),
            _ => None,
        })
    }
}
