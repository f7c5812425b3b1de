//! Rejects JSON objects with duplicate keys.
//!
//! `serde_json` keeps the last value of a duplicate key, and other readers the first. Without this check, validation
//! and use of a file could see different values.

use std::collections::HashSet;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// Checks every object in `json`, including nested ones.
///
/// # Errors
/// An object has a duplicate key, or the JSON is invalid. The error includes the position.
pub(super) fn check(json: &[u8]) -> Result<(), serde_json::Error> {
    serde_json::from_slice::<UniqueKeys>(json).map(|UniqueKeys| ())
}

/// Any JSON value without duplicate keys.
struct UniqueKeys;

impl<'de> Deserialize<'de> for UniqueKeys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Self)
    }
}

impl<'de> Visitor<'de> for UniqueKeys {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_unit<E>(self) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self, A::Error> {
        while items.next_element::<Self>()?.is_some() {}
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self, A::Error> {
        let mut seen = HashSet::new();
        while let Some(key) = entries.next_key::<String>()? {
            if seen.contains(&key) {
                let shown: String = key.chars().take(100).collect();
                return Err(A::Error::custom(format_args!(
                    "the key {shown:?} is repeated"
                )));
            }
            seen.insert(key);
            entries.next_value::<Self>()?;
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicate_keys_are_named() {
        for (json, key) in [
            (r#"{"a":1,"b":[1.5,null,true,-2],"a":"x"}"#, "a"),
            (r#"{"w":{"dtype":"F32","shape":[1],"shape":[2]}}"#, "shape"),
            (r#"[{"x":{"y":1,"z":{},"y":1}}]"#, "y"),
            // The same key, once with an escape sequence.
            (r#"{"a":1,"\u0061":2}"#, "a"),
        ] {
            let message = check(json.as_bytes()).unwrap_err().to_string();
            let expected = format!("the key {key:?} is repeated at line 1");
            assert!(message.starts_with(&expected), "{message}");
        }
    }

    #[test]
    fn different_objects_may_have_equal_keys() {
        check(br#"{"a":{"x":1},"b":{"x":1},"x":[{"x":1},{"x":1}]}"#).unwrap();
    }
}
