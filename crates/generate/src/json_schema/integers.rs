//! Numbers that JSON writes in two ways.

use serde_json::Value;

/// 2^63.
const LARGEST: f64 = 9_223_372_036_854_775_808.0;

/// Writes floats with whole values, such as 5.0, as integers, at every level: JSON schemas treat both as the same value.
pub fn with_integers(value: Value) -> Value {
    match value {
        Value::Number(number) => match number.as_f64() {
            // Every value in this range fits an i64.
            Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() < LARGEST => {
                (float as i64).into()
            }
            _ => number.into(),
        },
        Value::Array(values) => values.into_iter().map(with_integers).collect(),
        Value::Object(fields) => fields
            .into_iter()
            .map(|(name, value)| (name, with_integers(value)))
            .collect(),
        value => value,
    }
}
