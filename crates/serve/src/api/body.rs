//! Parses request bodies: JSON objects without unknown fields. Fields that are null count as missing, and fields of other
//! servers have tables (`fields`).

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use axum::extract::{FromRequest, Request};
use axum::http::header;
use emberlm_system::nearest::nearest;
use futures_util::StreamExt;
use schemars::{JsonSchema, Schema, SchemaGenerator, schema_for};
use serde::de::Error as _;
use serde::de::value::MapAccessDeserializer;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, Visitor,
};
use serde::ser::{Error as _, Serializer};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::timeout;

use super::App;
use super::error::{ApiError, shortened};
use super::fields::{FieldTable, without_nulls};
use crate::connection::Activity;
use crate::memory::Reservation;
use crate::request_log::Trace;

/// A complete body, received within the limits on size, time and memory.
pub(crate) struct Body {
    pub bytes: Vec<u8>,
    /// The memory of the request.
    pub account: Reservation,
}

/// Receives a body. Its bytes are counted as they arrive, whatever length the client declares.
async fn receive(
    body: axum::body::Body,
    limit: usize,
    account: &mut Reservation,
) -> Result<Vec<u8>, ApiError> {
    let mut parts = body.into_data_stream();
    let mut bytes = Vec::new();
    while let Some(part) = parts.next().await {
        let part = part.map_err(|error| {
            ApiError::invalid(format!("the request's body could not be received: {error}"))
        })?;
        if bytes.len().saturating_add(part.len()) > limit {
            return Err(ApiError::too_large(limit));
        }
        account.add(part.len())?;
        bytes.extend_from_slice(&part);
    }
    Ok(bytes)
}

impl FromRequest<App> for Body {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &App) -> Result<Self, ApiError> {
        let kind = request.headers().get(header::CONTENT_TYPE);
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        // A page of another origin cannot send this content type without a CORS preflight.
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
        let note = |receiving| {
            if let Some(activity) = &activity {
                activity.receive(receiving);
            }
        };
        let trace = request.extensions().get::<Arc<Trace>>().cloned();
        let mut account = app.memory().account();
        note(true);
        let received = receive(request.into_body(), limits.body, &mut account);
        let received = timeout(limits.body_time, received).await;
        note(false);
        let bytes = received.map_err(|_| ApiError::slow_body())??;
        if let Some(trace) = trace {
            trace.set_body(&bytes);
        }
        Ok(Self { bytes, account })
    }
}

/// The fields that requests to an endpoint may have, spread over the types of `T`, and a table of those that it does not
/// implement.
pub(crate) struct KnownFields<T> {
    names: BTreeSet<String>,
    table: &'static FieldTable,
    groups: PhantomData<fn() -> T>,
}

/// The fields of a request.
pub(crate) struct ReadFields<T> {
    pub fields: T,
    /// The paths of the fields without effect.
    pub ignored: Vec<&'static str>,
}

impl<T: FieldGroups> KnownFields<T> {
    /// `table` has the fields that the endpoint does not implement.
    pub fn new(table: &'static FieldTable) -> Self {
        let schemas = T::schemas();
        let names = schemas.iter().filter_map(|schema| {
            let properties = schema["properties"].as_object()?;
            Some(properties.keys().cloned())
        });
        Self {
            names: names.flatten().collect(),
            table,
            groups: PhantomData,
        }
    }

    /// Returns true if an endpoint's types have the field.
    pub fn has(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// Parses the fields of a request. Fields that are null count as missing.
    ///
    /// # Errors
    /// The body is not a JSON object, or a field is missing, has the wrong type, is rejected by the table or is unknown.
    /// Unknown fields are errors because a misspelt option would have no effect.
    pub fn read(&self, body: &[u8]) -> Result<ReadFields<T>, ApiError> {
        let value = serde_json::from_slice(body)
            .map_err(|error| ApiError::invalid(format!("the body is not JSON: {error}")))?;
        let Value::Object(mut fields) = without_nulls(value) else {
            return Err(ApiError::invalid("the body must be a JSON object"));
        };
        let ignored = self.table.apply(&mut fields)?;
        let fields = self.take(&Value::Object(fields))?;
        Ok(ReadFields { fields, ignored })
    }

    /// Parses the fields of an object.
    ///
    /// # Errors
    /// A field is missing, has the wrong type or is unknown.
    pub fn take(&self, value: &Value) -> Result<T, ApiError> {
        let fields = T::take(value)?;
        let mut names = value.as_object().into_iter().flatten();
        match names.find(|(name, _)| !self.names.contains(*name)) {
            Some((name, _)) => Err(self.unknown(name)),
            None => Ok(fields),
        }
    }

    fn unknown(&self, name: &str) -> ApiError {
        let shown: String = name.chars().take(100).collect();
        let mut rule = "this field is not supported".to_owned();
        let mut names: Vec<&str> = self.names.iter().map(String::as_str).collect();
        for name in self.table.ignored_names() {
            names.push(name);
        }
        if let Some(nearest) = nearest(&shown, names) {
            rule += &format!("; did you mean {nearest}?");
        }
        ApiError::field(shown, rule)
    }
}

/// A tuple of types that together define the fields of a request.
pub(crate) trait FieldGroups: Sized {
    /// The JSON schema of each type.
    fn schemas() -> Vec<Value>;

    /// Deserializes each type from the object, ignoring the fields of the others.
    fn take(fields: &Value) -> Result<Self, ApiError>;
}

/// A type that defines some fields of a request.
pub(crate) trait FieldGroup: DeserializeOwned + JsonSchema {
    /// Deserializes the fields from the object, ignoring others.
    ///
    /// # Errors
    /// A field is missing or has the wrong type.
    fn take(fields: &Value) -> Result<Self, ApiError> {
        take(fields)
    }
}

impl<A: FieldGroup> FieldGroups for (A,) {
    fn schemas() -> Vec<Value> {
        vec![schema::<A>()]
    }

    fn take(fields: &Value) -> Result<Self, ApiError> {
        Ok((A::take(fields)?,))
    }
}

impl<A: FieldGroup, B: FieldGroup> FieldGroups for (A, B) {
    fn schemas() -> Vec<Value> {
        vec![schema::<A>(), schema::<B>()]
    }

    fn take(fields: &Value) -> Result<Self, ApiError> {
        Ok((A::take(fields)?, B::take(fields)?))
    }
}

impl<A: FieldGroup, B: FieldGroup, C: FieldGroup> FieldGroups for (A, B, C) {
    fn schemas() -> Vec<Value> {
        vec![schema::<A>(), schema::<B>(), schema::<C>()]
    }

    fn take(fields: &Value) -> Result<Self, ApiError> {
        Ok((A::take(fields)?, B::take(fields)?, C::take(fields)?))
    }
}

impl<A, B, C, D> FieldGroups for (A, B, C, D)
where
    A: FieldGroup,
    B: FieldGroup,
    C: FieldGroup,
    D: FieldGroup,
{
    fn schemas() -> Vec<Value> {
        vec![schema::<A>(), schema::<B>(), schema::<C>(), schema::<D>()]
    }

    fn take(fields: &Value) -> Result<Self, ApiError> {
        Ok((
            A::take(fields)?,
            B::take(fields)?,
            C::take(fields)?,
            D::take(fields)?,
        ))
    }
}

/// Deserializes a value, with the path of a wrong field in the error.
///
/// # Errors
/// A field is missing or has the wrong type.
pub(crate) fn take<T: DeserializeOwned>(fields: &Value) -> Result<T, ApiError> {
    serde_path_to_error::deserialize(fields).map_err(|error| {
        let path = shortened(error.path().to_string());
        let reason = with_nearest(error.into_inner().to_string());
        match path.as_str() {
            "." => ApiError::invalid(reason),
            _ => ApiError::field(path, reason),
        }
    })
}

/// Adds the nearest of the expected names to Serde's message about an unknown field or variant.
fn with_nearest(reason: String) -> String {
    let names: Vec<&str> = reason.split('`').skip(1).step_by(2).collect();
    let nearest = match names.as_slice() {
        [name, expected @ ..] if reason.starts_with("unknown ") => {
            let shown: String = name.chars().take(100).collect();
            nearest(&shown, expected.iter().copied())
        }
        _ => None,
    };
    match nearest {
        Some(nearest) => format!("{reason}; did you mean {nearest}?"),
        None => reason,
    }
}

/// A value that must be a JSON object. Serde would also accept an array of a struct's fields. It is written with its fields in
/// the order in which they were read: chat templates show them in the client's order, as in training.
#[derive(Clone, Debug)]
pub(crate) struct Object<T>(pub T, Vec<String>);

impl<T> Object<T> {
    /// An object whose fields have the order of the type.
    pub const fn new(value: T) -> Self {
        Self(value, Vec::new())
    }

    /// The object with another value, written in the same order.
    pub fn map(self, convert: impl FnOnce(T) -> T) -> Self {
        Self(convert(self.0), self.1)
    }
}

impl<T: Serialize> Serialize for Object<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let value = serde_json::to_value(&self.0).map_err(S::Error::custom)?;
        let Value::Object(fields) = value else {
            return value.serialize(serializer);
        };
        let mut fields: Vec<(String, Value)> = fields.into_iter().collect();
        let place = |name: &String| self.1.iter().position(|read| read == name);
        fields.sort_by_key(|(name, _)| place(name).unwrap_or(usize::MAX));
        serializer.collect_map(fields)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Fieldwise(PhantomData))
    }
}

/// A value of an enum whose variant is named by its field `type`. Serde would also accept a number as the index of a variant.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(transparent)]
pub(crate) struct Tagged<T>(pub T);

impl<'de, T: DeserializeOwned> Deserialize<'de> for Tagged<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut value = Object::<Value>::deserialize(deserializer)?.0;
        if let Some(kind) = value.get_mut("type").filter(|kind| !kind.is_string()) {
            // An unknown name, whose error lists the known ones.
            *kind = kind.to_string().into();
        }
        T::deserialize(value).map(Self).map_err(D::Error::custom)
    }
}

struct Fieldwise<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Fieldwise<T> {
    type Value = Object<T>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<Self::Value, A::Error> {
        let mut order = Vec::new();
        let fields = OrderedFields {
            fields,
            order: &mut order,
        };
        let value = T::deserialize(MapAccessDeserializer::new(fields))?;
        Ok(Object(value, order))
    }
}

/// The fields of an object, whose names are noted.
struct OrderedFields<'o, A> {
    fields: A,
    order: &'o mut Vec<String>,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for OrderedFields<'_, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        let Some(name) = self.fields.next_key::<String>()? else {
            return Ok(None);
        };
        self.order.push(name.clone());
        seed.deserialize(name.into_deserializer()).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.fields.next_value_seed(seed)
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

/// The JSON schema of a type.
fn schema<T: JsonSchema>() -> Value {
    schema_for!(T).to_value()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::conversation::Tool;

    /// Templates show a tool as it is in the request, as they do in training.
    #[test]
    fn objects_keep_the_order_of_their_fields() {
        let text = r#"{"function":{"parameters":{"b":1,"a":{}},"description":"d","name":"f"},"type":"function"}"#;
        let tool: Object<Tool> = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&tool).unwrap(), text);
        let nulls =
            r#"{"type":"function","function":{"description":null,"strict":true,"name":"f"}}"#;
        let tool: Object<Tool> = serde_json::from_str(nulls).unwrap();
        let written = r#"{"type":"function","function":{"name":"f"}}"#;
        assert_eq!(serde_json::to_string(&tool).unwrap(), written);
        let error = serde_json::from_str::<Object<Tool>>(r#"{"type":"function","x":1}"#);
        assert!(error.unwrap_err().to_string().contains("unknown field `x`"));
    }
}
