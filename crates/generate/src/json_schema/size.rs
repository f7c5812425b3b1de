//! The size of a schema.

use serde_json::Value;

/// The most JSON values of a schema, nested ones included.
pub(crate) const MAX_VALUES: usize = 50_000;

/// The number of values in a JSON value, itself included.
pub(crate) fn count_values(value: &Value) -> usize {
    let inner = match value {
        Value::Array(items) => items.iter().map(count_values).sum(),
        Value::Object(fields) => fields.values().map(count_values).sum(),
        _ => 0,
    };
    1 + inner
}
