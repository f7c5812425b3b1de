//! The reward of a completion that is JSON of a schema.

use std::io::{self, Write};

use emberlm_generate::{Constraint, GenerateError, Grammar};
use serde::Serialize;
use serde_json::Value;
use serde_json::ser::{Formatter, Serializer};

use super::{Answer, Reward, share};
use crate::config::JsonSchemaConfig;
use crate::error::TrainError;

/// 1 for JSON of a schema, and 0 otherwise. White space is free.
pub(super) struct JsonSchema(Constraint);

impl JsonSchema {
    /// Compiles the schema.
    ///
    /// # Errors
    /// The schema is not supported.
    pub(super) fn new(config: &JsonSchemaConfig) -> Result<Self, TrainError> {
        let grammar = Grammar::JsonSchema(config.schema.clone());
        let constraint = Constraint::of_bytes(grammar).map_err(GenerateError::from)?;
        Ok(Self(constraint))
    }
}

impl Reward for JsonSchema {
    fn of(&self, answer: Answer<'_>) -> Result<f64, String> {
        let read = serde_json::from_str::<Value>(answer.completion);
        let written = read.ok().and_then(|value| spaced(&value));
        Ok(share(written.is_some_and(|text| self.0.allows(&text))))
    }
}

/// JSON with a space after each comma and colon, as the grammar of a schema has it.
fn spaced(value: &Value) -> Option<String> {
    struct Spaced;
    impl Formatter for Spaced {
        fn begin_array_value<W: ?Sized + Write>(
            &mut self,
            out: &mut W,
            first: bool,
        ) -> io::Result<()> {
            if first { Ok(()) } else { out.write_all(b", ") }
        }

        fn begin_object_key<W: ?Sized + Write>(
            &mut self,
            out: &mut W,
            first: bool,
        ) -> io::Result<()> {
            if first { Ok(()) } else { out.write_all(b", ") }
        }

        fn begin_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
            out.write_all(b": ")
        }
    }
    let mut bytes = Vec::new();
    let mut serializer = Serializer::with_formatter(&mut bytes, Spaced);
    value.serialize(&mut serializer).ok()?;
    String::from_utf8(bytes).ok()
}
