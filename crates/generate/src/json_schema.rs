//! Simplifies JSON schemas before they are compiled: keywords that restrict no value are dropped, and the forms of older
//! drafts and of OpenAPI are rewritten to those of draft 2020-12 that a grammar can express.
//!
//! | module | contents |
//! |---|---|
//! | this module | [`simplify`] |
//! | `keywords` | the table of keywords |
//! | `rewrite` | the pass over one schema |
//! | `choices`, `objects`, `arrays` | keywords that are rewritten |
//! | `issue` | keywords at fault |
//! | `integers` | numbers with two notations |
//! | `references` | the targets of `$ref` |
//! | `overlap` | the alternatives of `oneOf` that exclude each other |
//! | `size` | the limit on a schema's size |
//! | `patterns` | regular expressions that a grammar can express |

mod arrays;
mod choices;
mod integers;
mod issue;
mod keywords;
mod objects;
mod overlap;
mod patterns;
mod references;
mod rewrite;
mod size;

use serde_json::{Value, json};

pub use integers::with_integers;
pub use issue::{SchemaIssue, Unsupported};
pub use keywords::{KEYWORDS, Keyword, Role};
use rewrite::Rewriter;
pub(crate) use size::{MAX_VALUES, count_values};

/// A schema with the keywords that a grammar can express.
#[derive(Clone, Debug, PartialEq)]
pub struct SimpleSchema {
    /// The schema.
    pub schema: Value,
    /// The keywords that were dropped although they restrict values.
    pub loosened: Vec<SchemaIssue>,
}

/// Simplifies a schema, in time linear in its size.
///
/// ```
/// use emberlm_generate::json_schema::{Unsupported, simplify};
/// use serde_json::json;
///
/// let schema = json!({ "type": "array", "uniqueItems": false, "title": "Names", "items": { "type": "string", "format": "binary" } });
/// let simple = simplify(&schema, Unsupported::Refuse)?;
/// assert_eq!(simple.schema, json!({ "type": "array", "items": { "type": "string" } }));
///
/// let error = simplify(&json!({ "uniqueItems": true }), Unsupported::Refuse).unwrap_err();
/// assert_eq!(error.to_string(), "`uniqueItems` at /uniqueItems is not supported");
/// # Ok::<(), emberlm_generate::json_schema::SchemaIssue>(())
/// ```
///
/// # Errors
/// A keyword has a value that JSON Schema does not allow, a reference has no target in the schema, or a keyword is not
/// supported and `unsupported` is [`Unsupported::Refuse`].
pub fn simplify(schema: &Value, unsupported: Unsupported) -> Result<SimpleSchema, SchemaIssue> {
    let mut rewriter = Rewriter::new(schema, unsupported);
    let mut simple = match rewriter.schema(schema)? {
        Value::Bool(true) => json!({}),
        simple => simple,
    };
    let definitions = rewriter.definitions()?;
    if let Some(fields) = simple.as_object_mut()
        && !definitions.is_empty()
    {
        fields.insert("$defs".to_owned(), definitions.into());
    }
    Ok(SimpleSchema {
        schema: simple,
        loosened: rewriter.loosened,
    })
}

/// Phrases of the compiler about schemas that it does not support, and their wording here.
const COMPILER: [(&str, &str); 5] = [
    (
        "patternProperty regexes",
        "`patternProperties` whose patterns may match the same name are not supported",
    ),
    (
        "circular references with sibling keys",
        "`$ref` with other keywords beside it in a cycle of references is not supported",
    ),
    (
        "min/maxProperties only supported",
        "`minProperties` and `maxProperties` beside optional `properties` are not supported",
    ),
    (
        "oneOf constraints are not supported",
        "`oneOf` is only supported if at most one alternative can match: use `anyOf`",
    ),
    (
        "lookarounds not supported",
        "`pattern` with an assertion inside, such as `a^b`, is not supported",
    ),
];

/// Rewords a compiler's message about a schema.
pub(crate) fn worded(message: &str) -> String {
    let found = COMPILER.iter().find(|(phrase, _)| message.contains(phrase));
    match found {
        Some((_, wording)) => (*wording).to_owned(),
        None => message.replace("Unsatisfiable schema: ", "no value matches the schema: "),
    }
}

/// Returns true if the rule of a [`SettingError`](crate::SettingError) is about a valid schema that is not supported.
pub fn is_unsupported(rule: &str) -> bool {
    COMPILER.iter().any(|(_, wording)| rule.contains(wording))
}

#[cfg(test)]
mod tests;
