//! A request's body: JSON whose fields are all known.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::header;
use schemars::{JsonSchema, Schema, SchemaGenerator, schema_for};
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::timeout;

use super::App;
use super::error::ApiError;
use crate::connection::Activity;
use crate::request_log::Trace;

/// A body that was read whole, within the limits of size and time.
pub(crate) struct Body(pub Bytes);

impl FromRequest<App> for Body {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &App) -> Result<Self, ApiError> {
        let kind = request.headers().get(header::CONTENT_TYPE);
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        // A page elsewhere cannot send this kind without being asked for leave first.
        let essence = kind.split(';').next().unwrap_or_default().trim();
        if !essence.eq_ignore_ascii_case("application/json") {
            return Err(ApiError::media_type());
        }
        let limits = app.limits();
        let length = request.headers().get(header::CONTENT_LENGTH);
        let length = length.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
        if length.is_some_and(|length| length > limits.body as u64) {
            return Err(ApiError::too_large(limits.body));
        }
        let activity = request.extensions().get::<Arc<Activity>>().cloned();
        let receive = |receiving| {
            if let Some(activity) = &activity {
                activity.receive(receiving);
            }
        };
        let trace = request.extensions().get::<Arc<Trace>>().cloned();
        receive(true);
        let read = timeout(limits.body_time, Bytes::from_request(request, app)).await;
        receive(false);
        match read {
            Ok(Ok(bytes)) => {
                if let Some(trace) = trace {
                    trace.set_body(&bytes);
                }
                Ok(Self(bytes))
            }
            Ok(Err(rejection)) if rejection.status().as_u16() == 413 => {
                Err(ApiError::too_large(limits.body))
            }
            Ok(Err(rejection)) => Err(ApiError::invalid(rejection.body_text())),
            Err(_) => Err(ApiError::slow_body()),
        }
    }
}

/// A body's fields, of which several types take theirs.
pub(crate) struct Fields(Value);

impl Fields {
    /// # Errors
    /// It is no JSON, or no object.
    pub fn new(body: &[u8]) -> Result<Self, ApiError> {
        let value = serde_json::from_slice(body)
            .map_err(|error| ApiError::invalid(format!("the body is not JSON: {error}")))?;
        match value {
            Value::Object(_) => Ok(Self(with_integers(value))),
            _ => Err(ApiError::invalid("the body must be a JSON object")),
        }
    }

    /// The fields of `T`; others are left alone.
    ///
    /// # Errors
    /// One is missing or of another type.
    pub fn take<T: DeserializeOwned>(&self) -> Result<T, ApiError> {
        serde_path_to_error::deserialize(&self.0).map_err(|error| {
            let path = error.path().to_string();
            let reason = error.into_inner().to_string();
            match path.as_str() {
                "." => ApiError::invalid(reason),
                _ => ApiError::field(path, reason),
            }
        })
    }

    /// Whether all fields are of one of these schemas.
    ///
    /// # Errors
    /// One is not: a misspelt option would have no effect.
    pub fn check_known(&self, schemas: &[Value]) -> Result<(), ApiError> {
        let fields = self.0.as_object().into_iter().flatten();
        for (name, _) in fields {
            let known = |schema: &Value| schema["properties"].get(name).is_some();
            if !schemas.iter().any(known) {
                let shown: String = name.chars().take(100).collect();
                return Err(ApiError::field(shown, "this field is not known here"));
            }
        }
        Ok(())
    }
}

/// The value with 5 in place of 5.0, which is an integer to JSON's schemas.
fn with_integers(value: Value) -> Value {
    match value {
        Value::Number(number) => match number.as_f64() {
            // An i64 holds all of these.
            Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() < EXACT => {
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

/// 2^63.
const EXACT: f64 = 9_223_372_036_854_775_808.0;

/// A JSON object within a body, and nothing else: serde would take a list of a struct's fields for it.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(transparent)]
pub(crate) struct Object<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Fieldwise(PhantomData))
    }
}

struct Fieldwise<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Fieldwise<T> {
    type Value = Object<T>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<Self::Value, A::Error> {
        T::deserialize(MapAccessDeserializer::new(fields)).map(Object)
    }
}

impl<T: JsonSchema> JsonSchema for Object<T> {
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

/// A type's JSON schema.
pub(crate) fn schema<T: JsonSchema>() -> Value {
    schema_for!(T).to_value()
}
