//! The keywords of JSON Schema (drafts 4 to 2020-12) and of OpenAPI 3.0 and 3.1.

use serde_json::{Map, Value};

/// The keywords of a schema with their values.
pub(super) type Fields = Map<String, Value>;

/// A keyword of a schema.
#[derive(Clone, Copy, Debug)]
pub struct Keyword {
    /// The keyword.
    pub name: &'static str,
    /// Its treatment.
    pub role: Role,
    /// The only type that it restricts: with another `type` beside it, it has no effect. `None` for all types.
    pub of: Option<&'static str>,
}

/// The treatment of a keyword.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Restricts the values. The form is that of its value.
    Enforced(Form),
    /// Is rewritten to enforced keywords. Values that have no such form are not supported.
    Rewritten,
    /// Restricts no value, as all names that are not in the table.
    Annotation,
}

/// The form of an enforced keyword's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Any JSON.
    Any,
    /// A type, or a list of types.
    Types,
    /// A list of values that is not empty.
    Values,
    /// A number.
    Number,
    /// A number above 0.
    Divisor,
    /// A whole number, 0 or more.
    Count,
    /// A list of names.
    Names,
    /// A schema.
    Schema,
    /// A list of schemas that is not empty.
    Schemas,
    /// Schemas by name.
    NamedSchemas,
}

const fn keyword(name: &'static str, role: Role) -> Keyword {
    Keyword {
        name,
        role,
        of: None,
    }
}

const fn enforced(name: &'static str, form: Form) -> Keyword {
    keyword(name, Role::Enforced(form))
}

const fn rewritten(name: &'static str) -> Keyword {
    keyword(name, Role::Rewritten)
}

const fn annotation(name: &'static str) -> Keyword {
    keyword(name, Role::Annotation)
}

impl Keyword {
    const fn of(mut self, kind: &'static str) -> Self {
        self.of = Some(kind);
        self
    }

    /// Finds a keyword by its name.
    pub(super) fn find(name: &str) -> Option<&'static Self> {
        KEYWORDS.iter().find(|keyword| keyword.name == name)
    }
}

/// The table of keywords.
pub const KEYWORDS: [Keyword; 69] = [
    enforced("type", Form::Types),
    enforced("enum", Form::Values),
    enforced("const", Form::Any),
    enforced("allOf", Form::Schemas),
    enforced("anyOf", Form::Schemas),
    rewritten("oneOf"),
    rewritten("not"),
    rewritten("if"),
    rewritten("$ref"),
    rewritten("$dynamicRef"),
    rewritten("$recursiveRef"),
    rewritten("nullable"),
    // Part of `if`.
    annotation("then"),
    annotation("else"),
    enforced("minimum", Form::Number).of("number"),
    enforced("maximum", Form::Number).of("number"),
    rewritten("exclusiveMinimum").of("number"),
    rewritten("exclusiveMaximum").of("number"),
    enforced("multipleOf", Form::Divisor).of("number"),
    enforced("minLength", Form::Count).of("string"),
    enforced("maxLength", Form::Count).of("string"),
    rewritten("pattern").of("string"),
    rewritten("format").of("string"),
    enforced("prefixItems", Form::Schemas).of("array"),
    rewritten("items").of("array"),
    // Part of `items`.
    annotation("additionalItems").of("array"),
    enforced("minItems", Form::Count).of("array"),
    enforced("maxItems", Form::Count).of("array"),
    rewritten("uniqueItems").of("array"),
    rewritten("contains").of("array"),
    // Parts of `contains`.
    annotation("minContains").of("array"),
    annotation("maxContains").of("array"),
    rewritten("unevaluatedItems").of("array"),
    enforced("properties", Form::NamedSchemas).of("object"),
    enforced("required", Form::Names).of("object"),
    enforced("additionalProperties", Form::Schema).of("object"),
    rewritten("patternProperties").of("object"),
    rewritten("propertyNames").of("object"),
    rewritten("minProperties").of("object"),
    rewritten("maxProperties").of("object"),
    rewritten("unevaluatedProperties").of("object"),
    rewritten("dependencies").of("object"),
    rewritten("dependentRequired").of("object"),
    rewritten("dependentSchemas").of("object"),
    // Only the targets of references have an effect.
    annotation("$defs"),
    annotation("definitions"),
    annotation("components"),
    annotation("$schema"),
    annotation("$vocabulary"),
    annotation("$id"),
    annotation("id"),
    annotation("$anchor"),
    annotation("$dynamicAnchor"),
    annotation("$recursiveAnchor"),
    annotation("$comment"),
    annotation("title"),
    annotation("description"),
    annotation("default"),
    annotation("examples"),
    annotation("deprecated"),
    annotation("readOnly"),
    annotation("writeOnly"),
    annotation("contentEncoding"),
    annotation("contentMediaType"),
    annotation("contentSchema"),
    // OpenAPI.
    annotation("example"),
    annotation("discriminator"),
    annotation("xml"),
    annotation("externalDocs"),
];

/// The formats of strings that are enforced. All others are annotations.
pub(super) const FORMATS: [&str; 10] = [
    "date-time",
    "time",
    "date",
    "duration",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "uuid",
    "uri",
];

/// The types of JSON Schema.
pub(super) const TYPES: [&str; 7] = [
    "null", "boolean", "integer", "number", "string", "array", "object",
];

/// Returns true if every value matches a schema. References are not followed.
pub(super) fn is_any(schema: &Value) -> bool {
    match schema {
        Value::Bool(any) => *any,
        Value::Object(fields) => fields.iter().all(|(name, value)| {
            let keyword = Keyword::find(name);
            let annotates = keyword.is_none_or(|keyword| keyword.role == Role::Annotation);
            annotates || (value.is_null() && name != "const")
        }),
        _ => false,
    }
}
