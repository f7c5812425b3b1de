//! The OpenAPI 3.1 description, generated from the types that requests and answers are parsed into and written from.

use std::sync::LazyLock;

use axum::body::Bytes;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::admin::{AdminModel, AdminModels, LoadLora, Removed, UnloadLora};
use super::anthropic::{self, AnthropicError};
use super::chat::{Chat, ChatCompletion};
use super::classify::{Classified, Classify};
use super::completions::{Completion, Completions};
use super::conversation::TemplateOptions;
use super::delivery::Delivery;
use super::embeddings::{Embedded, Embeddings};
use super::error::{ERRORS, ErrorAnswer};
use super::fields::{self, FieldTable};
use super::models::{List, Listed};
use super::ollama::{self, OllamaError};
use super::play::Play;
use super::rerank::{Rerank, Reranked};
use super::responses::{ResponseBody, Responses};
use super::settings::Settings;
use super::tokens::{Detokenize, Detokenized, Tokenize, Tokenized};
use super::{HEALTH, RERANK};
use crate::model_entry::ModelEntry;

/// The description as JSON. It is generated once, so a repeated request costs only its bytes.
pub(crate) fn document() -> Bytes {
    static DOCUMENT: LazyLock<Bytes> =
        LazyLock::new(|| Description::new().document.to_string().into());
    DOCUMENT.clone()
}

/// The OpenAPI document, and the schemas of requests by the types that read their fields.
pub(crate) struct Description {
    pub document: Value,
    /// Each group with its name.
    pub groups: Vec<(&'static str, Value)>,
}

impl Description {
    pub fn new() -> Self {
        let mut settings = SchemaSettings::draft2020_12();
        settings.definitions_path = "/components/schemas".into();
        let mut types = Types::new(settings.into_generator());
        let groups = vec![
            ("delivery", types.of::<Delivery>()),
            ("completions", types.of::<Completions>()),
            ("chat", types.of::<Chat>()),
            ("responses", types.of::<Responses>()),
            ("template", types.of::<TemplateOptions>()),
            ("settings", types.of::<Settings>()),
            ("embeddings", types.of::<Embeddings>()),
            ("classify", types.of::<Classify>()),
            ("rerank", types.of::<Rerank>()),
            ("tokenize", types.of::<Tokenize>()),
            ("detokenize", types.of::<Detokenize>()),
            ("messages", types.of::<anthropic::Prompt>()),
            ("messages sending", types.of::<anthropic::Sending>()),
            ("ollama", types.of::<ollama::TextRequest>()),
            ("ollama chat", types.of::<ollama::Chat>()),
            ("ollama generate", types.of::<ollama::Generate>()),
            ("ollama embed", types.of::<ollama::Embed>()),
            ("ollama embed one", types.of::<ollama::EmbedOne>()),
            ("ollama show", types.of::<ollama::Show>()),
            ("ollama pull", types.of::<ollama::Pull>()),
            ("admin model", types.of::<ModelEntry>()),
            ("load lora", types.of::<LoadLora>()),
            ("unload lora", types.of::<UnloadLora>()),
            ("play", types.of::<Play>()),
        ];
        let document = document_of(&mut types, &groups);
        Self { document, groups }
    }
}

fn document_of(types: &mut Types, groups: &[(&'static str, Value)]) -> Value {
    let body = |names: &[&str], table: &FieldTable| {
        let named = names
            .iter()
            .filter_map(|name| groups.iter().find(|group| group.0 == *name));
        let mut body = all_of(named.map(|(_, schema)| schema.clone()));
        if let Some(properties) = body["properties"].as_object_mut() {
            properties.extend(table.properties());
        }
        if let Some(summary) = table.summary() {
            body["description"] = summary.into();
        }
        body
    };
    let completions = body(
        &["delivery", "completions", "settings"],
        &fields::COMPLETIONS,
    );
    let chat = body(&["delivery", "chat", "template", "settings"], &fields::CHAT);
    let responses = body(&["responses", "template", "settings"], &fields::RESPONSES);
    let embeddings = body(&["embeddings"], &fields::EMBEDDINGS);
    let classify = body(&["classify"], &fields::CLASSIFY);
    let rerank = body(&["rerank"], &fields::RERANK);
    let tokenize = body(&["tokenize", "template"], &fields::TOKENIZE);
    let detokenize = body(&["detokenize"], &fields::NONE);
    let messages = body(
        &["messages", "messages sending", "settings"],
        &fields::MESSAGES,
    );
    let count_tokens = body(&["messages"], &fields::COUNT_TOKENS);
    let ollama_chat = body(&["ollama", "ollama chat"], &fields::OLLAMA_CHAT);
    let ollama_generate = body(&["ollama", "ollama generate"], &fields::OLLAMA_GENERATE);
    let ollama_embed = body(&["ollama embed"], &fields::OLLAMA_EMBED);
    let ollama_embed_one = body(&["ollama embed one"], &fields::OLLAMA_EMBED);
    let ollama_show = body(&["ollama show"], &fields::OLLAMA_SHOW);
    let ollama_pull = body(&["ollama pull"], &fields::OLLAMA_PULL);
    let play = body(&["play", "settings"], &fields::NONE);
    let mut paths = json!({
        "/v1/completions": { "post": types.post::<Completion>("Continue texts or tokens", completions, true) },
        "/v1/chat/completions": { "post": types.post::<ChatCompletion>(
            "Answer a conversation, formatted by the model's chat template", chat, true) },
        "/v1/responses": { "post": types.post::<ResponseBody>(
            "Answer an input as OpenAI's Responses API does; nothing is stored", responses, true) },
        "/v1/embeddings": { "post": types.post::<Embedded>(
            "Compute the embeddings of texts: by an encoder's pooling and normalization, or the mean of a decoder's last hidden states, normalized to length 1",
            embeddings, false) },
        "/classify": { "post": types.post::<Classified>(
            "Return the labels of texts by an encoder's classifier, as vLLM does", classify, false) },
        "/tokenize": { "post": types.post::<Tokenized>(
            "Return the tokens of a text or a conversation, as vLLM and llama.cpp do", tokenize, false) },
        "/detokenize": { "post": types.post::<Detokenized>("Return the text of tokens", detokenize, false) },
        "/v1/models": { "get": types.get::<List>("List the served models and their aliases") },
        "/v1/models/{name}": {
            "get": types.get::<Listed>("Describe a served model or an alias"),
            "parameters": [{ "name": "name", "in": "path", "required": true, "schema": { "type": "string" } }],
        },
        "/metrics": { "get": {
            "summary": "Return metrics for Prometheus",
            "responses": { "200": { "description": "The metrics", "content": {
                "application/openmetrics-text": { "schema": { "type": "string" } } } } },
        } },
        "/openapi.json": { "get": {
            "summary": "Return this description",
            "security": [],
            "responses": { "200": answer("The description", json!({ "type": "object" })) },
        } },
        "/api/models": { "get": types.operation("Describe the models for the playground",
            answer("The models", json!({ "type": "object",
                "properties": { "models": { "type": "array", "items": { "type": "object" } } }, "required": ["models"] }))) },
        "/api/play": { "post": types.with_body("Stream a text for the playground, token by token with alternatives", play,
            json!({ "description": "The answer", "content": { "text/event-stream": { "schema": events(
                "An event with one of the fields `begin`, `token`, `rest`, `end` and `error`") } } })) },
        "/": { "get": {
            "summary": "Show the playground",
            "security": [],
            "responses": { "200": { "description": "The page", "content": {
                "text/html": { "schema": { "type": "string" } } } } },
        } },
    });
    let ranked = types.post::<Reranked>(
        "Rank documents by their relevance to a query with a cross-encoder, as Cohere and Jina do",
        rerank,
        false,
    );
    for path in RERANK {
        paths[path] = json!({ "post": ranked });
    }
    let added = body(&["admin model"], &fields::NONE);
    let load_lora = body(&["load lora"], &fields::LOAD_LORA);
    let unload_lora = body(&["unload lora"], &fields::UNLOAD_LORA);
    paths["/admin/models"] = json!({
        "get": types.get::<AdminModels>("List the models with their paths and memory, for an administrator"),
        "post": types.post::<AdminModel>("Load a model, for an administrator", added, false),
    });
    paths["/admin/models/{name}"] = json!({
        "delete": types.get::<Removed>("Remove a model, for an administrator; running requests finish"),
        "parameters": [{ "name": "name", "in": "path", "required": true, "schema": { "type": "string" } }],
    });
    paths["/v1/load_lora_adapter"] = json!({ "post": types.post::<AdminModel>(
        "Load an adapter as vLLM does, for an administrator", load_lora, false) });
    paths["/v1/unload_lora_adapter"] = json!({ "post": types.post::<Removed>(
        "Remove an adapter as vLLM does, for an administrator", unload_lora, false) });
    types.error = types.named::<AnthropicError>();
    paths["/v1/messages"] = json!({ "post": types.post::<anthropic::Message>(
        "Answer a conversation as Anthropic's Messages API does", messages, true) });
    paths["/v1/messages/count_tokens"] = json!({ "post": types.post::<anthropic::TokenCount>(
        "Count the tokens of a conversation as Anthropic's Messages API does", count_tokens, false) });
    types.error = types.named::<OllamaError>();
    paths["/api/chat"] = json!({ "post": types.post_lines::<ollama::ChatAnswer>(
        "Answer a conversation as Ollama does", ollama_chat) });
    paths["/api/generate"] = json!({ "post": types.post_lines::<ollama::GenerateAnswer>(
        "Answer a prompt, or continue a text, as Ollama does", ollama_generate) });
    paths["/api/embed"] = json!({ "post": types.post::<ollama::Embedded>(
        "Compute the embeddings of texts as Ollama does", ollama_embed, false) });
    paths["/api/embeddings"] = json!({ "post": types.post::<ollama::EmbeddedOne>(
        "Compute the embedding of a text as Ollama does", ollama_embed_one, false) });
    paths["/api/tags"] = json!({ "get": types.get::<ollama::Tags>("List the served models and their aliases as Ollama does") });
    paths["/api/show"] = json!({ "post": types.post::<ollama::Shown>(
        "Describe a served model as Ollama does", ollama_show, false) });
    paths["/api/ps"] = json!({ "get": types.get::<ollama::Running>("List the models as Ollama lists those in memory") });
    paths["/api/pull"] = json!({ "post": types.post_lines::<ollama::Pulled>(
        "Confirm that a model is served, as Ollama does after fetching it", ollama_pull) });
    paths["/api/version"] = json!({ "get": types.get::<ollama::Version>("Return the version of Ollama whose API this is") });
    for path in HEALTH {
        paths[path] = json!({ "get": {
            "summary": "Return `{\"status\":\"ok\"}` while the server answers",
            "security": [],
            "responses": { "200": answer("The server is running", json!({ "type": "object",
                "properties": { "status": { "const": "ok" } }, "required": ["status"] })) },
        } });
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "emberlm",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Models served by emberlm, in OpenAI's shape.",
        },
        "paths": paths,
        "components": {
            "schemas": types.generator.take_definitions(true),
            "securitySchemes": {
                "key": { "type": "http", "scheme": "bearer" },
                "header": { "type": "apiKey", "in": "header", "name": "x-api-key" },
            },
        },
        // With and without a key, because the server decides if a key is required.
        "security": [{}, { "key": [] }, { "header": [] }],
    })
}

struct Types {
    generator: SchemaGenerator,
    /// The schema of errors in the next operations.
    error: Value,
}

impl Types {
    fn new(mut generator: SchemaGenerator) -> Self {
        let error = generator.subschema_for::<ErrorAnswer>().to_value();
        Self { generator, error }
    }

    /// The schema of a type, inlined.
    fn of<T: JsonSchema>(&mut self) -> Value {
        T::json_schema(&mut self.generator).to_value()
    }

    fn named<T: JsonSchema>(&mut self) -> Value {
        self.generator.subschema_for::<T>().to_value()
    }

    fn post<A: JsonSchema>(&mut self, summary: &str, body: Value, streams: bool) -> Value {
        let mut answered = answer("The answer", self.named::<A>());
        if streams {
            let events = events(
                "An event with a part of the answer. The last event of completions and chat completions is [DONE]",
            );
            answered["content"]["text/event-stream"] = json!({ "schema": events });
        }
        self.with_body(summary, body, answered)
    }

    fn post_lines<A: JsonSchema>(&mut self, summary: &str, body: Value) -> Value {
        let mut answered = answer("The answer", self.named::<A>());
        answered["content"]["application/x-ndjson"] = json!({ "schema": {
            "type": "string",
            "description": "Lines of JSON with parts of the answer",
        } });
        self.with_body(summary, body, answered)
    }

    fn with_body(&mut self, summary: &str, body: Value, answered: Value) -> Value {
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
        // An operation's method is supported.
        for status in ERRORS
            .map(|kind| kind.status)
            .into_iter()
            .filter(|&status| status != 405)
        {
            let causes = ERRORS.iter().filter(|kind| kind.status == status);
            let causes: Vec<&str> = causes.map(|kind| kind.cause).collect();
            let error = answer(&causes.join("; or "), self.error.clone());
            responses.insert(status.to_string(), error);
        }
        json!({ "summary": summary, "responses": responses })
    }
}

fn answer(description: &str, schema: Value) -> Value {
    json!({ "description": description, "content": { "application/json": { "schema": schema } } })
}

/// The schema of the events of a stream.
fn events(description: &str) -> Value {
    json!({
        "type": "object",
        "description": description,
        "properties": { "data": { "type": "string" } },
        "required": ["data"],
    })
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
