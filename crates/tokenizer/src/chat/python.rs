//! Functions of Python and `transformers` for templates: `tojson` like `json.dumps`, `strftime_now`,
//! `raise_exception`, and string methods.

use std::fmt::Write;

use chrono::DateTime;
use minijinja::value::{Kwargs, ValueKind, from_args};
use minijinja::{Environment, Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat;
use regex_automata::meta::Regex;
use serde::Deserialize;

/// Registers all functions. `now` is the time that templates see, in seconds since 1970 (UTC).
pub(crate) fn install(env: &mut Environment<'static>, now: i64) {
    env.set_unknown_method_callback(method);
    env.add_filter("tojson", to_json);
    env.add_function("raise_exception", |message: String| {
        Err::<Value, _>(Error::new(ErrorKind::InvalidOperation, message))
    });
    env.add_function("strftime_now", move |format: String| strftime(now, &format));
}

fn strftime(now: i64, format: &str) -> Result<String, Error> {
    let refuse = || {
        Error::new(
            ErrorKind::InvalidOperation,
            format!("strftime_now cannot write {format:?}"),
        )
    };
    let time = DateTime::from_timestamp(now, 0).ok_or_else(refuse)?;
    let mut text = String::new();
    write!(text, "{}", time.format(format)).map_err(|_| refuse())?;
    Ok(text)
}

/// `re.sub` of lm-evaluation-harness's filter, for the expressions of a linear-time engine.
pub(crate) fn regex_replace(text: &str, pattern: &str, replacement: &str) -> Result<String, Error> {
    let refuse = |reason: String| Error::new(ErrorKind::InvalidOperation, reason);
    if replacement.contains('\\') {
        let reason = "regex_replace: groups in the replacement are not supported";
        return Err(refuse(reason.to_owned()));
    }
    let regex = Regex::new(pattern)
        .map_err(|error| refuse(format!("regex_replace: {pattern:?}: {error}")))?;
    let mut kept = String::with_capacity(text.len());
    let mut end = 0;
    for found in regex.find_iter(text) {
        kept.push_str(&text[end..found.start()]);
        kept.push_str(replacement);
        end = found.end();
    }
    kept.push_str(&text[end..]);
    Ok(kept)
}

/// Python's methods of strings and lists that `pycompat` lacks.
fn method(state: &mut State, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    if name == "index" && value.kind() == ValueKind::Seq {
        let (wanted,): (&Value,) = from_args(args)?;
        let place = value.try_iter()?.position(|item| item == *wanted);
        let refuse = || {
            let message = format!("{wanted} is not in the list");
            Error::new(ErrorKind::InvalidOperation, message)
        };
        return place.map(Value::from).ok_or_else(refuse);
    }
    let Some(text) = value.as_str() else {
        return pycompat::unknown_method_callback(state, value, name, args);
    };
    match name {
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            Ok(Value::from(text.strip_prefix(prefix).unwrap_or(text)))
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            Ok(Value::from(text.strip_suffix(suffix).unwrap_or(text)))
        }
        "partition" | "rpartition" => {
            let (separator,): (&str,) = from_args(args)?;
            let (found, otherwise) = match name {
                "partition" => (text.split_once(separator), [text, "", ""]),
                _ => (text.rsplit_once(separator), ["", "", text]),
            };
            let parts = found.map_or(otherwise, |(head, tail)| [head, separator, tail]);
            Ok(parts.into_iter().map(Value::from).collect())
        }
        "rsplit" => {
            let (separator, most): (&str, Option<usize>) = from_args(args)?;
            let most = most.map_or(usize::MAX, |most| most.saturating_add(1));
            let parts: Vec<&str> = text.rsplitn(most, separator).collect();
            Ok(parts.into_iter().rev().map(Value::from).collect())
        }
        _ => pycompat::unknown_method_callback(state, value, name, args),
    }
}

/// Writes a value like `json.dumps(value, ensure_ascii=False)`.
pub(crate) fn json_dumps(value: &serde_json::Value) -> String {
    let mut json = String::new();
    let value = Value::deserialize(value).unwrap_or_default();
    // Values of JSON can be written.
    let _ = JsonFormat::default().write(&value, 0, &mut json);
    json
}

/// The formatting options of `json.dumps`.
struct JsonFormat {
    indent: Option<usize>,
    ascii: bool,
    sorted: bool,
    between_items: String,
    after_key: String,
}

impl Default for JsonFormat {
    fn default() -> Self {
        Self {
            indent: None,
            ascii: false,
            sorted: false,
            between_items: ", ".to_owned(),
            after_key: ": ".to_owned(),
        }
    }
}

/// Implements `json.dumps(value, ensure_ascii=False)`. Unlike Jinja's own filter, it does not escape HTML.
fn to_json(value: &Value, kwargs: Kwargs) -> Result<String, Error> {
    let indent: Option<usize> = kwargs.get("indent")?;
    let separators: Option<Vec<String>> = kwargs.get("separators")?;
    let (between_items, after_key) = match separators.as_deref() {
        Some([items, keys]) => (items.clone(), keys.clone()),
        Some(_) => {
            let message = "tojson: separators must be two strings";
            return Err(Error::new(ErrorKind::InvalidOperation, message));
        }
        None if indent.is_some() => (",".to_owned(), ": ".to_owned()),
        None => (", ".to_owned(), ": ".to_owned()),
    };
    let format = JsonFormat {
        indent,
        ascii: kwargs.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false),
        sorted: kwargs.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
        between_items,
        after_key,
    };
    kwargs.assert_all_used()?;
    let mut json = String::new();
    format.write(value, 0, &mut json)?;
    Ok(json)
}

impl JsonFormat {
    fn write(&self, value: &Value, depth: usize, json: &mut String) -> Result<(), Error> {
        match value.kind() {
            ValueKind::None => json.push_str("null"),
            ValueKind::Bool => json.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number if value.is_integer() => json.push_str(&value.to_string()),
            ValueKind::Number => json.push_str(&float(f64::try_from(value.clone())?)),
            ValueKind::String => self.write_text(value.as_str().unwrap_or_default(), json),
            ValueKind::Seq | ValueKind::Iterable => {
                let items: Vec<Value> = value.try_iter()?.collect();
                json.push('[');
                for (rank, item) in items.iter().enumerate() {
                    self.begin_item(rank, depth + 1, json);
                    self.write(item, depth + 1, json)?;
                }
                self.end_items(items.is_empty(), depth, json);
                json.push(']');
            }
            ValueKind::Map => {
                let mut keys: Vec<Value> = value.try_iter()?.collect();
                if self.sorted {
                    keys.sort();
                }
                json.push('{');
                for (rank, key) in keys.iter().enumerate() {
                    self.begin_item(rank, depth + 1, json);
                    self.write_text(&key.to_string(), json);
                    json.push_str(&self.after_key);
                    self.write(&value.get_item(key)?, depth + 1, json)?;
                }
                self.end_items(keys.is_empty(), depth, json);
                json.push('}');
            }
            kind => {
                let message = format!("tojson cannot write a value of kind {kind}");
                return Err(Error::new(ErrorKind::BadSerialization, message));
            }
        }
        Ok(())
    }

    fn begin_item(&self, rank: usize, depth: usize, json: &mut String) {
        if rank > 0 {
            json.push_str(&self.between_items);
        }
        self.break_line(depth, json);
    }

    fn end_items(&self, empty: bool, depth: usize, json: &mut String) {
        if !empty {
            self.break_line(depth, json);
        }
    }

    fn break_line(&self, depth: usize, json: &mut String) {
        if let Some(indent) = self.indent {
            json.push('\n');
            json.extend(std::iter::repeat_n(
                ' ',
                indent.saturating_mul(depth).min(1 << 10),
            ));
        }
    }

    fn write_text(&self, text: &str, json: &mut String) {
        json.push('"');
        for character in text.chars() {
            match character {
                '"' => json.push_str("\\\""),
                '\\' => json.push_str("\\\\"),
                '\n' => json.push_str("\\n"),
                '\r' => json.push_str("\\r"),
                '\t' => json.push_str("\\t"),
                '\u{8}' => json.push_str("\\b"),
                '\u{C}' => json.push_str("\\f"),
                '\0'..=' ' if character != ' ' => escape(character, json),
                // Mark characters, from U+F0000, must not be escaped.
                '\u{7F}'..'\u{F0000}' if self.ascii => escape(character, json),
                _ => json.push(character),
            }
        }
        json.push('"');
    }
}

fn escape(character: char, json: &mut String) {
    for unit in character.encode_utf16(&mut [0; 2]) {
        json.push_str(&format!("\\u{unit:04x}"));
    }
}

/// Formats a float like Python: the shortest digits that round-trip, with an exponent below 1e-4 and from 1e16.
fn float(number: f64) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 {
            "Infinity"
        } else {
            "-Infinity"
        }
        .to_owned();
    }
    if number == 0.0 || (1e-4..1e16).contains(&number.abs()) {
        return format!("{number:?}");
    }
    let scientific = format!("{number:e}");
    match scientific.split_once('e') {
        Some((digits, exponent)) => {
            let (sign, exponent) = match exponent.strip_prefix('-') {
                Some(exponent) => ('-', exponent),
                None => ('+', exponent),
            };
            format!("{digits}e{sign}{exponent:0>2}")
        }
        None => scientific,
    }
}

#[cfg(test)]
mod tests {
    use minijinja::context;

    use super::*;

    /// Renders an expression of `value`.
    fn run(expression: &str, value: &str) -> Result<String, String> {
        let mut env = Environment::new();
        install(&mut env, 1_700_000_000);
        let value: Value = serde_json::from_str(value).unwrap();
        let source = format!("{{{{ {expression} }}}}");
        env.render_str(&source, context! { value })
            .map_err(|error| error.detail().unwrap_or_default().to_owned())
    }

    const JSON: &str = r#"{"b": [1, -2.5, 1e16, 1e-5, 0.0001, 123456789012345680.0, 3.0], "a": {"x": null, "y": true}, "t": "é<&>'\"\n\u0001\u007f🔥", "e": [{}, []]}"#;

    /// The expected values are the output of Python's `json.dumps`.
    #[test]
    fn json_matches_python() {
        assert_eq!(
            run("value|tojson", JSON).unwrap(),
            "{\"b\": [1, -2.5, 1e+16, 1e-05, 0.0001, 1.2345678901234568e+17, 3.0], \"a\": {\"x\": null, \"y\": true}, \
             \"t\": \"é<&>'\\\"\\n\\u0001\u{7f}🔥\", \"e\": [{}, []]}"
        );
        assert_eq!(
            run(
                "value|tojson(ensure_ascii=true, separators=[',', ':'])",
                r#"["é\u007f🔥"]"#
            )
            .unwrap(),
            "[\"\\u00e9\\u007f\\ud83d\\udd25\"]"
        );
        assert_eq!(
            run(
                "value|tojson(indent=2, sort_keys=true)",
                r#"{"b": [1, {}], "a": 2}"#
            )
            .unwrap(),
            "{\n  \"a\": 2,\n  \"b\": [\n    1,\n    {}\n  ]\n}"
        );
    }

    #[test]
    fn dates_follow_the_format_and_bad_formats_are_errors() {
        assert_eq!(run("strftime_now('%d %b %Y')", "0").unwrap(), "14 Nov 2023");
        assert!(
            run("strftime_now('%')", "0")
                .unwrap_err()
                .contains("cannot write")
        );
    }

    #[test]
    fn strings_have_python_methods() {
        let run = |expression: &str| run(expression, "\"<think>a</think>b\"").unwrap();
        assert_eq!(run("value.removeprefix('<think>')"), "a</think>b");
        assert_eq!(run("value.removesuffix('x')"), "<think>a</think>b");
        assert_eq!(
            run("value.rsplit('</think>', 1)|tojson"),
            r#"["<think>a", "b"]"#
        );
        assert_eq!(run("'a.b.c'.rsplit('.', 1)|tojson"), r#"["a.b", "c"]"#);
        assert_eq!(run("value.partition('</think>')[2]"), "b");
        assert_eq!(
            run("'a.b.c'.rpartition('.')|tojson"),
            r#"["a.b", ".", "c"]"#
        );
        assert_eq!(run("value.split('</think>')[-1].strip().upper()"), "B");
        assert_eq!(run("value.startswith('<think>')"), "True");
    }

    #[test]
    fn lists_have_an_index() {
        assert_eq!(run("value.index('b')", r#"["a", "b", "b"]"#).unwrap(), "1");
        let error = run("value.index('c')", r#"["a"]"#).unwrap_err();
        assert!(error.contains("c is not in the list"), "{error}");
    }

    #[test]
    fn templates_can_raise_exceptions() {
        assert_eq!(run("raise_exception('no')", "0").unwrap_err(), "no");
    }
}
