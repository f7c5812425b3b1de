//! The targets of references within a schema.

use std::collections::HashMap;

use percent_encoding::percent_decode_str;
use serde_json::Value;

/// A schema document.
#[derive(Debug)]
pub(super) struct Document<'a> {
    pub root: &'a Value,
    /// The JSON pointers of anchors and identifiers.
    named: HashMap<&'a str, String>,
}

impl<'a> Document<'a> {
    pub fn new(root: &'a Value) -> Self {
        let mut document = Self {
            root,
            named: HashMap::new(),
        };
        document.collect(root, &mut String::new());
        document
    }

    fn collect(&mut self, value: &'a Value, pointer: &mut String) {
        let length = pointer.len();
        match value {
            Value::Object(fields) => {
                for name in ["$id", "id", "$anchor", "$dynamicAnchor"] {
                    if let Some(text) = fields.get(name).and_then(Value::as_str) {
                        let text = text.trim_start_matches('#').trim_end_matches('#');
                        let named = self.named.entry(text);
                        named.or_insert_with(|| pointer.clone());
                    }
                }
                for (name, value) in fields {
                    push(pointer, name);
                    self.collect(value, pointer);
                    pointer.truncate(length);
                }
            }
            Value::Array(values) => {
                for (index, value) in values.iter().enumerate() {
                    push(pointer, &index.to_string());
                    self.collect(value, pointer);
                    pointer.truncate(length);
                }
            }
            _ => {}
        }
    }

    /// The JSON pointer and the schema of a reference's target.
    ///
    /// # Errors
    /// Returns the violated rule if the target is not in the schema.
    pub fn resolve(&self, reference: &str) -> Result<(String, &'a Value), String> {
        let (base, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let base = match base {
            "" => "",
            base => self.named.get(base).ok_or_else(|| {
                format!(
                    "must refer to a place within the schema (#/…), and is {}",
                    shown(reference)
                )
            })?,
        };
        let fragment = percent_decode_str(fragment).decode_utf8_lossy();
        let pointer = match self.named.get(&*fragment) {
            Some(anchored) if !fragment.is_empty() && !fragment.starts_with('/') => {
                anchored.clone()
            }
            _ => format!("{base}{fragment}"),
        };
        match self.root.pointer(&pointer) {
            Some(target) => Ok((pointer, target)),
            // A common way to write the root.
            None if pointer == "/" => Ok((String::new(), self.root)),
            None => Err(format!(
                "refers to nothing in the schema: {}",
                shown(reference)
            )),
        }
    }
}

/// Appends a name to a JSON pointer.
pub(super) fn push(pointer: &mut String, name: &str) {
    pointer.push('/');
    pointer.push_str(&name.replace('~', "~0").replace('/', "~1"));
}

/// The beginning of a text in quotes.
pub(super) fn shown(text: &str) -> String {
    const MAX_SHOWN: usize = 100;
    let mut shown: String = text.chars().take(MAX_SHOWN).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    format!("{shown:?}")
}
