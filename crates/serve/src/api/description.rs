//! The OpenAPI 3.1 description, generated from the types that requests and answers are parsed into and written from.

use std::sync::LazyLock;

use axum::body::Bytes;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::chat::{Chat, ChatCompletion};
use super::completions::{Completion, Completions};
use super::delivery::Delivery;
use super::embeddings::{Embedded, Embeddings};
use super::error::ErrorAnswer;
use super::models::{List, Listed};
use super::responses::{ResponseBody, Responses};
use super::settings::Settings;

/// The description as JSON. It is generated once, so a repeated request costs only its bytes.
pub(crate) fn document() -> Bytes {
    static DOCUMENT: LazyLock<Bytes> = LazyLock::new(|| make().to_string().into());
    DOCUMENT.clone()
}

fn make() -> Value {
    let mut settings = SchemaSettings::draft2020_12();
    settings.definitions_path = "/components/schemas".into();
    let mut types = Types(settings.into_generator());
    let completions = all_of([
        types.of::<Delivery>(),
        types.of::<Completions>(),
        types.of::<Settings>(),
    ]);
    let chat = all_of([
        types.of::<Delivery>(),
        types.of::<Chat>(),
        types.of::<Settings>(),
    ]);
    let responses = all_of([types.of::<Responses>(), types.of::<Settings>()]);
    let embeddings = all_of([types.of::<Embeddings>()]);
    let paths = json!({
        "/v1/completions": { "post": types.post::<Completion>("Complete texts", completions, true) },
        "/v1/chat/completions": { "post": types.post::<ChatCompletion>("Answer a conversation", chat, true) },
        "/v1/responses": { "post": types.post::<ResponseBody>("Answer an input", responses, true) },
        "/v1/embeddings": { "post": types.post::<Embedded>("Compute embeddings of texts", embeddings, false) },
        "/v1/models": { "get": types.get::<List>("List the models") },
        "/v1/models/{name}": {
            "get": types.get::<Listed>("Describe a model"),
            "parameters": [{ "name": "name", "in": "path", "required": true, "schema": { "type": "string" } }],
        },
        "/health": { "get": {
            "summary": "Check the server's health",
            "security": [],
            "responses": { "200": answer("The server is running", json!({ "type": "object",
                "properties": { "status": { "const": "ok" } }, "required": ["status"] })) },
        } },
        "/metrics": { "get": {
            "summary": "Metrics for Prometheus",
            "responses": { "200": { "description": "The metrics", "content": {
                "application/openmetrics-text": { "schema": { "type": "string" } } } } },
        } },
    });
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "emberlm",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Models served by emberlm, in OpenAI's shape.",
        },
        "paths": paths,
        "components": {
            "schemas": types.0.take_definitions(true),
            "securitySchemes": { "key": { "type": "http", "scheme": "bearer" } },
        },
        // With and without a key, because the server decides if a key is required.
        "security": [{}, { "key": [] }],
    })
}

struct Types(SchemaGenerator);

impl Types {
    /// The schema of a type, inlined.
    fn of<T: JsonSchema>(&mut self) -> Value {
        T::json_schema(&mut self.0).to_value()
    }

    fn named<T: JsonSchema>(&mut self) -> Value {
        self.0.subschema_for::<T>().to_value()
    }

    fn post<A: JsonSchema>(&mut self, summary: &str, body: Value, streams: bool) -> Value {
        let mut answered = answer("The answer", self.named::<A>());
        if streams {
            answered["content"]["text/event-stream"] = json!({ "schema": {
                "type": "object",
                "description": "An event with a part of the answer. The last event is [DONE], except for /v1/responses",
                "properties": { "data": { "type": "string" } },
                "required": ["data"],
            } });
        }
        let mut operation = self.operation(summary, answered);
        operation["requestBody"] =
            json!({ "required": true, "content": { "application/json": { "schema": body } } });
        operation
    }

    fn get<A: JsonSchema>(&mut self, summary: &str) -> Value {
        let answered = answer("The answer", self.named::<A>());
        self.operation(summary, answered)
    }

    fn operation(&mut self, summary: &str, answered: Value) -> Value {
        let mut responses = Map::from_iter([("200".to_owned(), answered)]);
        for (status, description) in [
            ("400", "The request is invalid"),
            ("401", "The key is missing or wrong"),
            ("403", "The host or the page's origin is not allowed"),
            ("404", "The model does not exist"),
            ("408", "The body arrived too slowly"),
            ("413", "The body is too large"),
            ("415", "The body is not JSON"),
            (
                "429",
                "Too many concurrent requests, or too much memory in use",
            ),
            ("500", "The model failed"),
            ("504", "The request exceeded its time limit"),
        ] {
            let error = answer(description, self.named::<ErrorAnswer>());
            responses.insert(status.to_owned(), error);
        }
        json!({ "summary": summary, "responses": responses })
    }
}

fn answer(description: &str, schema: Value) -> Value {
    json!({ "description": description, "content": { "application/json": { "schema": schema } } })
}

/// An object schema with exactly the fields of several types.
fn all_of(parts: impl IntoIterator<Item = Value>) -> Value {
    let (mut properties, mut required) = (Map::new(), Vec::new());
    for mut part in parts {
        if let Value::Object(fields) = part["properties"].take() {
            properties.extend(fields);
        }
        if let Value::Array(names) = part["required"].take() {
            required.extend(names);
        }
    }
    json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false })
}
