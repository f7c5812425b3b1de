//! The API's own description: OpenAPI 3.1, made of the types that requests and answers are read and written by.

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

/// The description as JSON, written once: whoever asks for it many times costs no more than its bytes.
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
        "/v1/completions": { "post": types.post::<Completion>("Continue texts", completions, true) },
        "/v1/chat/completions": { "post": types.post::<ChatCompletion>("Answer a conversation", chat, true) },
        "/v1/responses": { "post": types.post::<ResponseBody>("Answer an input", responses, true) },
        "/v1/embeddings": { "post": types.post::<Embedded>("Turn texts into vectors", embeddings, false) },
        "/v1/models": { "get": types.get::<List>("List the models") },
        "/v1/models/{name}": {
            "get": types.get::<Listed>("Look at a model"),
            "parameters": [{ "name": "name", "in": "path", "required": true, "schema": { "type": "string" } }],
        },
        "/health": { "get": {
            "summary": "Whether the server answers",
            "security": [],
            "responses": { "200": answer("It does", json!({ "type": "object",
                "properties": { "status": { "const": "ok" } }, "required": ["status"] })) },
        } },
        "/metrics": { "get": {
            "summary": "How the server fares, for Prometheus",
            "responses": { "200": { "description": "The numbers", "content": {
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
        // With and without a key: whether one is needed is the server's to say.
        "security": [{}, { "key": [] }],
    })
}

struct Types(SchemaGenerator);

impl Types {
    /// A type's schema, in place.
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
                "description": "An event: a piece of the answer; but for /v1/responses, [DONE] at the end",
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
            ("400", "A request that cannot be answered as it is"),
            ("401", "The key is missing or wrong"),
            (
                "403",
                "The server does not answer for this host, or not to pages of this origin",
            ),
            ("404", "There is no such model"),
            ("408", "The body took too long to come"),
            ("413", "The body is too large"),
            ("415", "The body is no JSON"),
            (
                "429",
                "Too many requests are under way, or they take too much memory",
            ),
            ("500", "The model failed"),
            ("504", "The answer took too long"),
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

/// An object with the fields of several types, and no others.
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
