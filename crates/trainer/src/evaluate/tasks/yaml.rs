//! Reads YAML as lm-evaluation-harness does (YAML 1.1, as PyYAML's safe loader), with the line of each key of the top level.

use std::collections::BTreeMap;

use saphyr_parser::{Event, Parser, ScalarStyle, Span, Tag};
use serde_json::{Map, Number, Value};

/// Levels of collections within each other.
const MAX_DEPTH: usize = 64;
/// Values in a document, those that aliases repeat included.
const MAX_VALUES: usize = 100_000;

/// The mapping of a document's top level.
pub(super) struct Document {
    /// The values by key, in the order of the file.
    pub(super) fields: Map<String, Value>,
    /// The line of each key, from 1.
    pub(super) lines: BTreeMap<String, usize>,
}

/// A violated rule and its line.
pub(super) type Fault = (usize, String);

/// A collection whose end has not been read.
enum Open {
    List(Vec<Value>),
    Mapping(Map<String, Value>, Option<String>),
}

/// Reads one document.
///
/// # Errors
/// The line and the reason, if it is not YAML, its top level is not a mapping, or it has a key twice, a tag such as
/// `!function`, or a merge key.
pub(super) fn read(text: &str) -> Result<Document, Fault> {
    let mut open: Vec<(Open, usize)> = Vec::new();
    let mut anchors: BTreeMap<usize, Value> = BTreeMap::new();
    let mut lines = BTreeMap::new();
    let mut values = 0;
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| {
            (
                error.marker().line(),
                format!("it is not YAML: {}", error.info()),
            )
        })?;
        let line = line_of(&span);
        let (value, anchor) = match event {
            Event::Scalar(text, style, anchor, tag) => {
                (scalar(&text, style, tag.as_deref(), line)?, anchor)
            }
            Event::Alias(anchor) => {
                let value = anchors.get(&anchor).cloned();
                (
                    value.ok_or((line, "an alias has no anchor before it".to_owned()))?,
                    0,
                )
            }
            Event::SequenceStart(anchor, tag) => {
                check_tag(tag.as_deref(), None, line)?;
                open.push((Open::List(Vec::new()), anchor));
                continue;
            }
            Event::MappingStart(anchor, tag) => {
                check_tag(tag.as_deref(), None, line)?;
                open.push((Open::Mapping(Map::new(), None), anchor));
                continue;
            }
            Event::SequenceEnd | Event::MappingEnd => match open.pop() {
                Some((Open::List(items), anchor)) => (Value::Array(items), anchor),
                Some((Open::Mapping(fields, _), anchor)) => (Value::Object(fields), anchor),
                None => continue,
            },
            Event::DocumentEnd | Event::StreamEnd => break,
            Event::StreamStart | Event::DocumentStart(_) | Event::Nothing => continue,
        };
        values += count(&value);
        if open.len() > MAX_DEPTH || values > MAX_VALUES {
            return Err((
                line,
                format!("it has more than {MAX_DEPTH} levels or {MAX_VALUES} values, the limits"),
            ));
        }
        if anchor > 0 {
            anchors.insert(anchor, value.clone());
        }
        let is_top = open.len() == 1;
        match open.last_mut() {
            Some((Open::List(items), _)) => items.push(value),
            Some((Open::Mapping(fields, key @ None), _)) => {
                let name = key_of(&value).ok_or((line, "a key must be a text".to_owned()))?;
                if fields.contains_key(&name) {
                    return Err((line, format!("`{name}` is given twice")));
                }
                if is_top {
                    lines.insert(name.clone(), line);
                }
                *key = Some(name);
            }
            Some((Open::Mapping(fields, key), _)) => {
                fields.insert(key.take().unwrap_or_default(), value);
            }
            None => {
                return match value {
                    Value::Object(fields) => Ok(Document { fields, lines }),
                    _ => Err((line, "it must be a mapping of keys to values".to_owned())),
                };
            }
        }
    }
    Err((1, "it is empty".to_owned()))
}

fn line_of(span: &Span) -> usize {
    span.start.line().max(1)
}

fn count(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(count).sum::<usize>(),
        Value::Object(fields) => 1 + fields.values().map(count).sum::<usize>(),
        _ => 1,
    }
}

fn key_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) if text != "<<" => Some(text.clone()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        _ => None,
    }
}

/// Rejects tags other than those of YAML's own types.
fn check_tag(tag: Option<&Tag>, of: Option<&str>, line: usize) -> Result<(), Fault> {
    match tag {
        Some(tag) if !tag.is_yaml_core_schema() => {
            let of = of.map(|text| format!(" {text}")).unwrap_or_default();
            let name = format!("{}{}{of}", tag.handle, tag.suffix);
            Err((
                line,
                format!("`{name}` is not supported: a task must not need Python code"),
            ))
        }
        _ => Ok(()),
    }
}

/// The value of a scalar. A plain one may be a number, a truth value or null.
fn scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>, line: usize) -> Result<Value, Fault> {
    check_tag(tag, Some(text), line)?;
    let is_text = style != ScalarStyle::Plain || tag.is_some_and(|tag| tag.suffix == "str");
    if is_text {
        return Ok(Value::from(text));
    }
    Ok(match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => Value::Bool(true),
        "false" | "False" | "FALSE" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => {
            Value::Bool(false)
        }
        _ => number(text).map_or_else(|| Value::from(text), Value::Number),
    })
}

/// A decimal number. As in PyYAML, one with an exponent must have a point.
fn number(text: &str) -> Option<Number> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if !digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return None;
    }
    if digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.parse::<i64>().ok().map(Number::from);
    }
    let value = digits.contains('.').then(|| text.parse::<f64>().ok())??;
    Number::from_f64(value)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_those_of_pyyaml() {
        let text = "# a comment\ntask: t\nn: 5\nx: -1.5\nfolded: >\n  a\n  b\nblock: |-\n  c\n  d\nlist: [\"A\", 'b', no, ~]\n\
                    nested:\n  - function: regex\n    pattern: \"#### (\\\\-?[0-9]+)\"\nbase: &b {k: v}\nuse: *b\n\
                    exponent: 1e-3\nempty:\n";
        let read = read(text)
            .map_err(|(line, reason)| format!("{line}: {reason}"))
            .unwrap();
        assert_eq!(
            Value::Object(read.fields),
            json!({
                "task": "t", "n": 5, "x": -1.5, "folded": "a b\n", "block": "c\nd", "list": ["A", "b", false, null],
                "nested": [{"function": "regex", "pattern": "#### (\\-?[0-9]+)"}], "base": {"k": "v"}, "use": {"k": "v"},
                "exponent": "1e-3", "empty": null,
            })
        );
        assert_eq!((read.lines["task"], read.lines["nested"]), (2, 12));
    }

    #[test]
    fn faults_have_their_line() {
        for (text, line, reason) in [
            ("", 1, "empty"),
            ("- a", 1, "must be a mapping"),
            ("a: 1\nb: [", 2, "not YAML"),
            ("a: 1\na: 2", 2, "`a` is given twice"),
            (
                "a: 1\nb: !function utils.process",
                2,
                "`!function utils.process` is not supported",
            ),
            ("a: *x", 1, "not YAML"),
        ] {
            let Err(found) = read(text) else {
                panic!("{text}")
            };
            assert!(found.1.contains(reason), "{text:?}: {found:?}");
            assert!(found.0 >= line, "{text:?}: {found:?}");
        }
        let deep = "[".repeat(100_000);
        assert!(read(&format!("a: {deep}")).is_err());
        let bomb: String = (1..30)
            .map(|n| format!("a{n}: &a{n} [*a{0}, *a{0}]\n", n - 1))
            .collect();
        assert!(read(&format!("a0: &a0 x\n{bomb}")).is_err());
    }
}
