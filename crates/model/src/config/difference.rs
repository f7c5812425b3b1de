//! The first difference between two configurations of one kind.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::error::ConfigError;

/// Returns the first field in which `other` differs from `expected`, and its expected value. Fields of `except` are ignored.
pub(crate) fn first_difference<C: Serialize>(
    expected: &C,
    other: &C,
    except: &[&str],
) -> Option<(String, String)> {
    first_difference_by(expected, other, except, |expected, other| expected == other)
}

/// [`first_difference`] with another equality of values; `None` is that of an unset field.
pub(crate) fn first_difference_by<C: Serialize>(
    expected: &C,
    other: &C,
    except: &[&str],
    equal: impl Fn(Option<&Value>, Option<&Value>) -> bool,
) -> Option<(String, String)> {
    let (expected, other) = (object(expected), object(other));
    // Unset fields are absent, so a field that only `other` has differs too.
    let mut fields = expected.keys().chain(other.keys());
    let differs = |field: &&String| {
        !except.contains(&field.as_str()) && !equal(expected.get(*field), other.get(*field))
    };
    let field = fields.find(differs)?;
    Some((field.clone(), shown(&expected, field)))
}

/// Checks that weights of one configuration can be loaded for another.
///
/// # Errors
/// A field differs that is not one of `except`.
pub(crate) fn check_same<C: Serialize>(
    weights: &C,
    wanted: &C,
    except: &[&str],
) -> Result<(), ConfigError> {
    let Some((field, value)) = first_difference(weights, wanted, except) else {
        return Ok(());
    };
    Err(ConfigError {
        value: shown(&object(wanted), &field),
        field: field.into(),
        rule: format!("must be {value}, as in the weights"),
    })
}

/// Returns the fields of a configuration; those of the architecture by names such as `architecture.segments`.
pub(crate) fn object(config: &impl Serialize) -> Map<String, Value> {
    let Ok(Value::Object(mut fields)) = serde_json::to_value(config) else {
        return Map::new();
    };
    if let Some(Value::Object(own)) = fields.remove("architecture") {
        let own = own.into_iter();
        fields.extend(own.map(|(name, value)| (format!("architecture.{name}"), value)));
    }
    fields
}

fn shown(fields: &Map<String, Value>, field: &str) -> String {
    let value = fields.get(field);
    value.map_or("unset".to_owned(), Value::to_string)
}
