//! The filters of generated answers: `filter_list` of a task file.

use regex_automata::meta::Regex;
use serde_json::{Map, Value};

/// Filters that are applied one after another, with the name of their metrics.
#[derive(Debug)]
pub(super) struct Pipeline {
    pub(super) name: String,
    filters: Vec<Filter>,
}

#[derive(Debug)]
enum Filter {
    /// A match of an expression.
    Regex {
        regex: Regex,
        /// The match; a negative number counts from the last one.
        select: i64,
        /// The answer without a match.
        fallback: String,
    },
    RemoveWhitespace,
    Lowercase,
    Uppercase,
    Map {
        values: Map<String, Value>,
        default: String,
    },
    /// There is only one answer.
    TakeFirst,
}

impl Pipeline {
    /// The answers as they are.
    pub(super) fn none() -> Self {
        Self {
            name: "none".to_owned(),
            filters: Vec::new(),
        }
    }

    /// Reads an entry of `filter_list`.
    pub(super) fn read(fields: &Map<String, Value>) -> Result<Self, String> {
        let name = fields.get("name").and_then(Value::as_str);
        let name = name.ok_or("`filter_list` must give each entry a `name`")?;
        let filters = fields.get("filter").and_then(Value::as_array);
        let filters =
            filters.ok_or_else(|| format!("the filter {name} must have a list `filter`"))?;
        let filters: Result<_, String> = filters.iter().map(Filter::read).collect();
        Ok(Self {
            name: name.to_owned(),
            filters: filters.map_err(|reason| format!("the filter {name}: {reason}"))?,
        })
    }

    /// The filtered answer.
    pub(super) fn apply(&self, answer: &str) -> String {
        let apply = |answer: String, filter: &Filter| filter.apply(answer);
        self.filters.iter().fold(answer.to_owned(), apply)
    }
}

impl Filter {
    fn read(value: &Value) -> Result<Self, String> {
        let field = |name: &str| value.get(name);
        let text = |name: &str, otherwise: &str| match field(name) {
            None => Ok(otherwise.to_owned()),
            Some(Value::String(text)) => Ok(text.clone()),
            Some(other) => Err(format!("`{name}` must be a text (got {other})")),
        };
        match text("function", "")?.as_str() {
            "regex" => Ok(Self::Regex {
                regex: regex(&text("regex_pattern", r"#### (\-?[0-9\.\,]+)")?)?,
                select: match field("group_select") {
                    None => 0,
                    Some(value) => value
                        .as_i64()
                        .ok_or_else(|| format!("`group_select` must be a number (got {value})"))?,
                },
                fallback: text("fallback", "[invalid]")?,
            }),
            "remove_whitespace" => Ok(Self::RemoveWhitespace),
            "lowercase" => Ok(Self::Lowercase),
            "uppercase" => Ok(Self::Uppercase),
            "take_first" => Ok(Self::TakeFirst),
            "map" => Ok(Self::Map {
                values: field("mapping_dict")
                    .and_then(Value::as_object)
                    .cloned()
                    .unwrap_or_default(),
                default: text("default_value", "None")?,
            }),
            other => Err(format!(
                "`function` must be one of regex, remove_whitespace, lowercase, uppercase, map and take_first (got {other:?})"
            )),
        }
    }

    fn apply(&self, answer: String) -> String {
        match self {
            Self::Regex {
                regex,
                select,
                fallback,
            } => {
                let found = selected(regex, &answer, *select);
                found.map_or_else(|| fallback.clone(), |text| text.trim().to_owned())
            }
            Self::RemoveWhitespace => answer.trim().to_owned(),
            Self::Lowercase => answer.to_lowercase(),
            Self::Uppercase => answer.to_uppercase(),
            Self::Map { values, default } => match values.get(&answer) {
                Some(Value::String(text)) => text.clone(),
                Some(value) => value.to_string(),
                None => default.clone(),
            },
            Self::TakeFirst => answer,
        }
    }
}

/// The text of match number `select` as `re.findall` returns it: the whole match, its group, or the first group that is not
/// empty. `None` if there is no such match, or all of several groups are empty.
fn selected<'a>(regex: &Regex, text: &'a str, select: i64) -> Option<&'a str> {
    let found: Vec<_> = regex.captures_iter(text).collect();
    let at = match usize::try_from(select) {
        Ok(at) => at,
        Err(_) => found
            .len()
            .checked_sub(usize::try_from(select.unsigned_abs()).ok()?)?,
    };
    let found = found.get(at)?;
    let group = |group: usize| {
        found
            .get_group(group)
            .map_or("", |span| &text[span.range()])
    };
    match found.group_len() {
        1 => Some(group(0)),
        2 => Some(group(1)),
        groups => (1..groups).map(group).find(|text| !text.is_empty()),
    }
}

/// Compiles an expression of Python's `re`.
pub(super) fn regex(pattern: &str) -> Result<Regex, String> {
    Regex::new(pattern).map_err(|error| {
        let reason = error
            .syntax_error()
            .map_or_else(|| error.to_string(), ToString::to_string);
        format!("the expression {pattern:?} is not supported: {reason}")
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn applied(filters: Value, answer: &str) -> String {
        let entry = json!({"name": "f", "filter": filters});
        Pipeline::read(entry.as_object().unwrap())
            .unwrap()
            .apply(answer)
    }

    /// The values that lm-evaluation-harness's filters return.
    #[test]
    fn expressions_select_matches_as_findall_does() {
        let flexible = |select: i64| json!([{"function": "regex", "group_select": select, "regex_pattern": "(-?[$0-9.,]{2,})|(-?[0-9]+)"}]);
        assert_eq!(applied(flexible(-1), "7 apples cost $12.50, so 3"), "3");
        assert_eq!(applied(flexible(0), "7 apples cost $12.50, so 3"), "7");
        assert_eq!(
            applied(flexible(1), "7 apples cost $12.50, so 3"),
            "$12.50,"
        );
        assert_eq!(applied(flexible(5), "7"), "[invalid]");
        assert_eq!(applied(flexible(0), "none"), "[invalid]");
        let strict = json!([{"function": "regex"}, {"function": "take_first"}]);
        assert_eq!(applied(strict.clone(), "so it is\n#### 1,234\n"), "1,234");
        assert_eq!(
            applied(
                json!([{"function": "regex", "regex_pattern": "[A-D]", "fallback": "?"}]),
                "x"
            ),
            "?"
        );
        assert_eq!(
            applied(
                json!([{"function": "remove_whitespace"}, {"function": "uppercase"}]),
                " b\n"
            ),
            "B"
        );
        let map = json!([{"function": "map", "mapping_dict": {"a": "1"}, "default_value": "0"}]);
        assert_eq!(
            (applied(map.clone(), "a"), applied(map, "b")),
            ("1".into(), "0".into())
        );
    }

    #[test]
    fn unknown_filters_and_expressions_are_refused() {
        let refusal = |filter: Value| {
            let entry = json!({"name": "f", "filter": [filter]});
            Pipeline::read(entry.as_object().unwrap()).unwrap_err()
        };
        assert!(refusal(json!({"function": "majority_vote"})).contains("must be one of regex"));
        let look_ahead = json!({"function": "regex", "regex_pattern": "(?=a)"});
        assert!(refusal(look_ahead).contains("look-around"));
    }
}
