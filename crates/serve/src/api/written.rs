//! A value that is written once and sent several times.

use std::borrow::Cow;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};

use super::error::ApiError;

/// The JSON of a value. Long values of a request are written beside the thread that receives.
#[derive(Debug)]
pub(crate) struct Written<T>(Box<RawValue>, PhantomData<fn() -> T>);

impl<T: Serialize> Written<T> {
    /// Writes `value`.
    ///
    /// # Errors
    /// The value is not representable in JSON.
    pub fn new(value: &T) -> Result<Self, ApiError> {
        let text = to_raw_value(value).map_err(|error| ApiError::internal(error.to_string()))?;
        Ok(Self(text, PhantomData))
    }
}

impl<T> Default for Written<T> {
    fn default() -> Self {
        Self(RawValue::NULL.to_owned(), PhantomData)
    }
}

impl<T> Clone for Written<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone(), PhantomData)
    }
}

impl<T> Serialize for Written<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<T: JsonSchema> JsonSchema for Written<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn schema_id() -> Cow<'static, str> {
        T::schema_id()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}
