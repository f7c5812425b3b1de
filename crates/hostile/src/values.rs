//! Hostile values.

use std::fmt::Write as _;

use super::fields::{Field, Part};

/// Levels of nesting of the deepest values.
const DEEP: usize = 100_000;
/// Levels that a parser with a limit of 128 levels accepts, with those of the rest of a body.
const NESTED: usize = 100;

/// Values of a few bytes: a name, and the text in the body. Some are not JSON.
pub const EDGES: [(&str, &str); 31] = [
    ("null", "null"),
    ("true", "true"),
    ("false", "false"),
    ("an empty text", "\"\""),
    ("an empty list", "[]"),
    ("an empty object", "{}"),
    ("a text", "\"x\""),
    ("a text with a number", "\"1\""),
    ("a list of null", "[null]"),
    ("a list of lists", "[[[]]]"),
    ("an object with an empty name", "{\"\":null}"),
    ("the same name twice", "{\"a\":1,\"a\":[]}"),
    ("zero", "0"),
    ("minus zero", "-0.0"),
    ("one", "1"),
    ("minus one", "-1"),
    ("a half", "0.5"),
    ("2^31", "2147483648"),
    ("2^32 - 1", "4294967295"),
    ("2^63", "9223372036854775808"),
    ("-2^63", "-9223372036854775808"),
    ("2^64", "18446744073709551616"),
    ("1e308", "1e308"),
    ("-1e308", "-1e308"),
    ("1e-320", "1e-320"),
    ("a number beyond numbers", "1e999"),
    ("not a number", "NaN"),
    ("a NUL", "\"\\u0000\""),
    ("control characters", "\"\\u001b[2J\\r\\n\\u202e\\ufeff\""),
    ("half of a surrogate pair", "\"\\ud800\""),
    ("no value", ""),
];

/// A value that fills a body up to a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// Empty lists in a list.
    Lists,
    /// Empty objects in a list.
    Objects,
    /// Objects with one member in a list.
    Members,
    /// Numbers in a list.
    Numbers,
    /// Empty texts in a list.
    Texts,
    /// Members of one object, with different names.
    Names,
    /// Lists in lists, as deep as parsers accept, in a list.
    Nested,
    /// Valid items or members of the field, which is a list or a map. There is one value for each kind of them.
    Parts(usize),
    /// One text of letters.
    Letters,
    /// One text of words.
    Words,
    /// One text of characters outside ASCII.
    Wide,
    /// One text of escaped control characters.
    Escapes,
    /// 100,000 lists, one in the other.
    DeepLists,
    /// 100,000 objects, one in the other.
    DeepObjects,
}

impl Fill {
    /// The values of every field, with their names for reports.
    const OF_ALL: [(Self, &'static str); 13] = [
        (Self::Lists, "lists"),
        (Self::Objects, "objects"),
        (Self::Members, "objects with a member"),
        (Self::Numbers, "numbers"),
        (Self::Texts, "texts"),
        (Self::Names, "names"),
        (Self::Nested, "nested lists"),
        (Self::Letters, "letters"),
        (Self::Words, "words"),
        (Self::Wide, "wide characters"),
        (Self::Escapes, "escapes"),
        (Self::DeepLists, "deep lists"),
        (Self::DeepObjects, "deep objects"),
    ];

    /// The name for reports.
    pub fn name(self) -> &'static str {
        let mut all = Self::OF_ALL.iter();
        let found = all.find(|(fill, _)| *fill == self);
        found.map_or("valid parts", |(_, name)| name)
    }

    /// The value with at most `bytes` bytes.
    fn value(self, bytes: usize, parts: &[Part]) -> String {
        let list = |item: &str| repeated("[", item, ",", "]", bytes);
        let text = |part: &str| repeated("\"", part, "", "\"", bytes);
        let deep = |open: &str, close: &str| {
            let levels = (bytes / (open.len() + close.len())).min(DEEP);
            open.repeat(levels) + &close.repeat(levels)
        };
        match self {
            Self::Lists => list("[]"),
            Self::Objects => list("{}"),
            Self::Members => list("{\"a\":0}"),
            Self::Numbers => list("0"),
            Self::Texts => list("\"\""),
            Self::Names => members("0", bytes),
            Self::Nested => list(&("[".repeat(NESTED) + &"]".repeat(NESTED))),
            Self::Parts(kind) => match parts.get(kind) {
                Some(Part::Member(member)) => members(member, bytes),
                Some(Part::Item(item)) => list(item),
                None => list("[]"),
            },
            Self::Letters => text("a"),
            Self::Words => text("1 and "),
            Self::Wide => text("\u{1f422}\u{e9}"),
            Self::Escapes => text("\\u0000\\n"),
            Self::DeepLists => deep("[", "]"),
            Self::DeepObjects => deep("{\"a\":", "}"),
        }
    }
}

impl Field {
    /// The values that can fill this place.
    pub fn fills(&self) -> impl Iterator<Item = Fill> {
        let parts = (0..self.parts.len()).map(Fill::Parts);
        let of_all = Fill::OF_ALL.into_iter().map(|(fill, _)| fill);
        of_all.chain(parts)
    }

    /// A body of at most `bytes` bytes, if a value fits, with this value at this place.
    pub fn filled(&self, fill: Fill, bytes: usize) -> String {
        let room = bytes.saturating_sub(self.rest());
        self.body(&fill.value(room, &self.parts))
    }
}

/// As many items as fit, at least one.
fn repeated(open: &str, item: &str, separator: &str, close: &str, bytes: usize) -> String {
    let each = item.len() + separator.len();
    let room = (bytes + separator.len()).saturating_sub(open.len() + close.len());
    let more = (room / each).saturating_sub(1);
    let mut text = String::with_capacity(bytes);
    text += open;
    text += &[item, separator].concat().repeat(more);
    text += item;
    text += close;
    text
}

/// An object with as many members as fit. Their names are numbers.
fn members(value: &str, bytes: usize) -> String {
    let mut text = String::with_capacity(bytes);
    text.push('{');
    for number in 0.. {
        let start = text.len();
        let separator = if number == 0 { "" } else { "," };
        // Writing to a string cannot fail.
        let _ = write!(text, "{separator}\"{number}\":{value}");
        if text.len() + 1 > bytes && number > 0 {
            text.truncate(start);
            break;
        }
    }
    text.push('}');
    text
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::fields::all;
    use super::super::schema::Schemas;
    use super::*;

    #[test]
    fn values_fill_bodies_up_to_their_size() {
        let schema = json!({ "type": "object", "properties": {
            "list": { "type": "array", "items": { "type": "object", "properties": { "a": { "type": "boolean" } }, "required": ["a"] } },
            "map": { "type": "object", "additionalProperties": { "type": "integer" } },
            "text": { "type": "string" },
        } });
        let schemas = Schemas {
            document: &json!({}),
            known: &json!({}),
        };
        let found = all(schemas, &schema, "POST /a").unwrap();
        let field = |pointer: &str| found.iter().find(|field| field.pointer == pointer).unwrap();
        for field in &found {
            for fill in field.fills() {
                let body = field.filled(fill, 4096);
                let name = fill.name();
                assert!(
                    (3600..=4096).contains(&body.len()),
                    "{name}: {}",
                    body.len()
                );
                let is_deep = matches!(fill, Fill::DeepLists | Fill::DeepObjects);
                let parsed: Result<Value, _> = serde_json::from_str(&body);
                assert_eq!(parsed.is_ok(), !is_deep, "{name}: {body}");
            }
        }
        let parts = |pointer: &str| field(pointer).filled(Fill::Parts(0), 64);
        let list = r#"{"list":[{"a":false},{"a":false},{"a":false},{"a":false}]}"#;
        assert_eq!(parts("/list"), list);
        assert!(parts("/map").starts_with(r#"{"map":{"0":1,"1":1,"#));
        assert!(field("/text").parts.is_empty());
    }
}
