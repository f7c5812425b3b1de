//! The functions that an answer may call, with simplified schemas.

use emberlm_generate::json_schema::{Unsupported, simplify};
use serde_json::{Map, Value};

use super::tools::ToolFunction;
use crate::api::error::ApiError;
use crate::request_log::Trace;
use crate::tools::{ToolFormat, closed, inexpressible, unenforced};

/// A function that may be called.
#[derive(Clone, Debug)]
pub(super) struct Callable {
    /// Its index in the request.
    pub index: usize,
    /// The simplified schema of the arguments. `None` if there are none.
    pub schema: Option<Map<String, Value>>,
    /// Why parts of the schema are not enforced.
    pub loosened: Vec<String>,
}

impl Callable {
    /// Simplifies the schema of a function's arguments.
    ///
    /// # Errors
    /// The schema is invalid, or a part of it is not supported and the function is strict.
    pub fn new(
        index: usize,
        function: &ToolFunction,
        format: &'static ToolFormat,
    ) -> Result<Self, ApiError> {
        let mut callable = Self {
            index,
            schema: None,
            loosened: Vec::new(),
        };
        let Some(parameters) = &function.parameters else {
            return Ok(callable);
        };
        let unsupported = match function.strict {
            Some(true) => Unsupported::Refuse,
            _ => Unsupported::Loosen,
        };
        let simple = simplify(&closed(parameters), unsupported);
        let simple = simple.map_err(|issue| callable.refused(&issue.to_string()))?;
        let Value::Object(schema) = simple.schema else {
            return Err(callable.refused("no object matches the schema"));
        };
        if let Some(rule) = inexpressible(format, &schema) {
            return Err(callable.refused(&rule));
        }
        callable.loosened = simple.loosened.iter().map(ToString::to_string).collect();
        let mut unenforced = unenforced(format, &schema);
        if let (Unsupported::Refuse, Some(rule)) = (unsupported, unenforced.first()) {
            return Err(callable.refused(rule));
        }
        callable.loosened.append(&mut unenforced);
        callable.schema = Some(schema);
        Ok(callable)
    }

    fn field(&self) -> String {
        format!("tools[{}].function.parameters", self.index)
    }

    pub fn refused(&self, rule: &str) -> ApiError {
        ApiError::field(self.field(), rule)
    }

    pub fn warn(&self, trace: &Trace, reason: &str) {
        trace.warn(&format!("{}: not enforced: {reason}", self.field()));
    }
}
