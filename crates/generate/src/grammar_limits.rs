//! The limits of grammars, for the reference documentation.

use crate::expression::{MAX_CHARACTERS, MAX_NESTING, MAX_OPTIONAL};
use crate::grammar::MAX_SOURCE;
use crate::json_schema::MAX_VALUES;
use crate::lexer_memory::MAX_GROWTH;
use crate::vet::{MEMORY, STACK, THOROUGH};

/// The deepest nesting of a schema, which `serde_json` enforces.
const SCHEMA_NESTING: u64 = 128;

/// A documented limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitInfo {
    /// The limited quantity.
    pub name: &'static str,
    /// The largest allowed value.
    pub value: u64,
    /// The unit of the value.
    pub unit: Unit,
}

/// The unit of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A number of things.
    Count,
    /// Bytes.
    Bytes,
    /// Seconds.
    Seconds,
}

impl LimitInfo {
    /// A limit on a number of things.
    pub const fn count(name: &'static str, value: u64) -> Self {
        let unit = Unit::Count;
        Self { name, value, unit }
    }

    /// A limit on a size.
    pub const fn bytes(name: &'static str, value: u64) -> Self {
        let unit = Unit::Bytes;
        Self { name, value, unit }
    }

    /// A time limit.
    pub const fn seconds(name: &'static str, value: u64) -> Self {
        let unit = Unit::Seconds;
        Self { name, value, unit }
    }
}

/// The limits of grammars. A grammar that exceeds one is rejected before any text is generated, except by the last.
pub const GRAMMAR_LIMITS: [LimitInfo; 10] = [
    LimitInfo::bytes(
        "size of a schema, of an expression, or of all choices",
        MAX_SOURCE as u64,
    ),
    LimitInfo::count("values in a schema", MAX_VALUES as u64),
    LimitInfo::count("levels of nesting of a schema", SCHEMA_NESTING),
    LimitInfo::count(
        "optional parts of an expression (`a?`, `a*`, `(a|)`), with repetitions expanded",
        MAX_OPTIONAL,
    ),
    LimitInfo::count(
        "characters of an expression, with repetitions expanded",
        MAX_CHARACTERS,
    ),
    LimitInfo::count("nested groups of an expression", MAX_NESTING as u64),
    LimitInfo::bytes("memory to compile it, on Linux only", MEMORY),
    LimitInfo::bytes("stack to compile it", STACK as u64),
    LimitInfo::seconds("time to compile it", THOROUGH.as_secs()),
    LimitInfo::bytes(
        "growth of a grammar's memory while a text is generated; then the text ends with `constraint_not_met`",
        MAX_GROWTH as u64,
    ),
];
