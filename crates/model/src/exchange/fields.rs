//! The fields of a `config.json`, each with the default of its type. A field that requests an unsupported feature is rejected with its name.

use serde_json::{Map, Value};

use crate::error::HuggingFaceError;

/// Beyond any model published, as in the checked configuration.
const LARGEST_SIZE: u64 = 1 << 24;

/// The fields of an object within a `config.json`.
pub(crate) struct Fields<'a> {
    map: &'a Map<String, Value>,
    /// The object's own name with a point, empty for the whole.
    path: String,
}

type Read<T> = Result<T, HuggingFaceError>;

impl<'a> Fields<'a> {
    pub(crate) fn new(map: &'a Map<String, Value>) -> Self {
        Self {
            map,
            path: String::new(),
        }
    }

    /// An error of a field that is there.
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

    /// The value where it is there and not null.
    fn get(&self, name: &str) -> Option<&'a Value> {
        self.map.get(name).filter(|value| !value.is_null())
    }

    /// Returns true if the field has one of these values; a field that is not there is null.
    pub(crate) fn is_any_of(&self, name: &str, values: &[Value]) -> bool {
        values.contains(self.map.get(name).unwrap_or(&Value::Null))
    }

    /// The object in the only field; none where there is no field or several.
    pub(crate) fn only_object(&self) -> Read<Option<Fields<'a>>> {
        match (self.map.len(), self.map.keys().next()) {
            (1, Some(name)) => self.object(name),
            _ => Ok(None),
        }
    }

    /// Returns true if the field is present, also if it is null.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.map.contains_key(name)
    }

    /// Returns true if there is no field at all.
    pub(crate) fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// A whole number from 1 on by the first of its names that is there.
    pub(crate) fn size_by_names(&self, names: [&str; 2], default: usize) -> Read<usize> {
        match self.optional_size(names[0])? {
            Some(size) => Ok(size),
            None => self.size(names[1], default),
        }
    }

    /// An object's fields.
    pub(crate) fn object(&self, name: &str) -> Read<Option<Fields<'a>>> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::Object(map)) => Ok(Some(Fields {
                map,
                path: format!("{}{name}.", self.path),
            })),
            Some(_) => Err(self.error(name, "must be an object")),
        }
    }

    /// A whole number from 1 on, if it is there.
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

    /// A whole number from 1 on.
    pub(crate) fn size(&self, name: &str, default: usize) -> Read<usize> {
        Ok(self.optional_size(name)?.unwrap_or(default))
    }

    /// A whole number from 0 on.
    pub(crate) fn count(&self, name: &str, default: usize) -> Read<usize> {
        match self.get(name).map(Value::as_u64) {
            None => Ok(default),
            Some(Some(count @ 0..=LARGEST_SIZE)) => Ok(count as usize),
            Some(_) => Err(self.error(name, "must be a whole number from 0 on")),
        }
    }

    /// That a field's `size` divides that of another field.
    pub(crate) fn divides(&self, name: &str, size: usize, of: &str, whole: usize) -> Read<()> {
        if whole.is_multiple_of(size) {
            Ok(())
        } else {
            Err(self.error(name, format!("must divide {of} = {whole}")))
        }
    }

    /// A number.
    pub(crate) fn number(&self, name: &str, default: f64) -> Read<f64> {
        Ok(self.optional_number(name)?.unwrap_or(default))
    }

    /// A number, if it is there.
    pub(crate) fn optional_number(&self, name: &str) -> Read<Option<f64>> {
        match self.get(name).map(Value::as_f64) {
            None => Ok(None),
            Some(Some(number)) => Ok(Some(number)),
            Some(None) => Err(self.error(name, "must be a number")),
        }
    }

    /// True or false.
    pub(crate) fn flag(&self, name: &str, default: bool) -> Read<bool> {
        match self.get(name) {
            None => Ok(default),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(_) => Err(self.error(name, "must be true or false")),
        }
    }

    /// A text that must be there.
    pub(crate) fn text(&self, name: &str) -> Read<&'a str> {
        let text = self.optional_text(name)?;
        text.ok_or_else(|| self.error(name, "must be given"))
    }

    /// A text, if it is there.
    pub(crate) fn optional_text(&self, name: &str) -> Read<Option<&'a str>> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(self.error(name, "must be a text")),
        }
    }

    /// A list of texts, if it is there.
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
            .ok_or_else(|| self.error(name, "must be a list of texts"))
    }

    /// A list of numbers, if it is there.
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

    /// A flag that has one value here.
    pub(crate) fn only(&self, name: &str, value: bool, why: &str) -> Read<()> {
        if self.flag(name, value)? == value {
            Ok(())
        } else {
            Err(self.error(name, why))
        }
    }

    /// A field that must not be there.
    pub(crate) fn refuse(&self, name: &str, why: &str) -> Read<()> {
        match self.get(name) {
            None => Ok(()),
            Some(_) => Err(self.error(name, why)),
        }
    }
}
