//! The page of the HTTP API, from the server's OpenAPI description, error kinds, limits and metrics.

use clap::CommandFactory;
use emberlm_generate::grammar_limits::{LimitInfo, Unit};
use emberlm_serve::reference::{self, UnusedField};
use emberlm_system::digits::grouped;
use serde_json::Value;

use super::command_line::{meaning, spelling};
use super::schema::{Definitions, FieldTables};
use super::template::fill;
use super::{code, header, row};
use crate::commands::Cli;
use crate::error::CliError;

/// The text around the tables.
const TEMPLATE: &str = include_str!("http_api.md.in");

/// The headings of the options of `serve` that limit requests.
const LIMIT_HEADINGS: [&str; 2] = ["Capacity", "Time limits"];

/// The page as Markdown.
///
/// # Errors
/// The template names a table that does not exist.
pub fn page() -> Result<String, CliError> {
    let api = reference::api();
    let empty = Definitions::new();
    let definitions = api.document["components"]["schemas"].as_object();
    let tables = FieldTables {
        definitions: definitions.unwrap_or(&empty),
        of_requests: true,
    };
    let group = |name: &str| {
        let found = api.groups.iter().find(|(group, _)| *group == name);
        found.map_or(&Value::Null, |(_, schema)| schema)
    };
    let schemas: Vec<&Value> = api.groups.iter().map(|(_, schema)| schema).collect();
    fill(
        TEMPLATE,
        &[
            ("endpoints", endpoints(&api.document)),
            ("delivery", tables.table(group("delivery"))),
            ("settings", tables.table(group("settings"))),
            ("completions", tables.table(group("completions"))),
            ("chat", tables.table(group("chat"))),
            ("responses", tables.table(group("responses"))),
            ("embeddings", tables.table(group("embeddings"))),
            ("classify", tables.table(group("classify"))),
            ("rerank", tables.table(group("rerank"))),
            ("tokenize", tables.table(group("tokenize"))),
            ("detokenize", tables.table(group("detokenize"))),
            ("template", tables.table(group("template"))),
            ("messages", tables.table(group("messages"))),
            ("messages sending", tables.table(group("messages sending"))),
            ("ollama", tables.table(group("ollama"))),
            ("ollama chat", tables.table(group("ollama chat"))),
            ("ollama generate", tables.table(group("ollama generate"))),
            ("ollama embed", tables.table(group("ollama embed"))),
            ("ollama embed one", tables.table(group("ollama embed one"))),
            ("ollama show", tables.table(group("ollama show"))),
            ("ollama pull", tables.table(group("ollama pull"))),
            ("admin model", tables.table(group("admin model"))),
            ("load lora", tables.table(group("load lora"))),
            ("unload lora", tables.table(group("unload lora"))),
            ("play", tables.table(group("play"))),
            (
                "ignored fields",
                unused_fields(|field| field.is_accepted && field.only.is_none()),
            ),
            (
                "default fields",
                unused_fields(|field| field.only.is_some()),
            ),
            ("refused fields", unused_fields(|field| !field.is_accepted)),
            ("objects", tables.sections(&schemas, "###")),
            ("call formats", call_formats()),
            ("reasoning formats", reasoning_formats()),
            ("stream events", stream_events()),
            ("options", options()),
            ("fixed limits", limits(&reference::fixed_limits())),
            ("grammar limits", limits(&reference::grammar_limits())),
            ("errors", errors()),
            ("metrics", metrics()),
            ("buckets", buckets()),
        ],
    )
}

fn endpoints(document: &Value) -> String {
    let mut table = header(["path", "purpose", "body", "answer"]);
    let paths = document["paths"].as_object().into_iter().flatten();
    for (path, operations) in paths {
        let operations = operations.as_object().into_iter().flatten();
        // Parameters of the path stand next to its operations.
        for (method, operation) in operations.filter(|(_, operation)| operation.is_object()) {
            let name = format!("`{} {path}`", method.to_uppercase());
            let summary = operation["summary"].as_str().unwrap_or_default().to_owned();
            let types = |content: &Value| -> String {
                let types = content["content"].as_object().into_iter().flatten();
                let types: Vec<String> = types.map(|(kind, _)| code(kind)).collect();
                types.join(", ")
            };
            let (body, answer) = (&operation["requestBody"], &operation["responses"]["200"]);
            table.push_str(&row([name, summary, types(body), types(answer)]));
        }
    }
    table
}

/// The selected fields that the server does not implement, with the endpoints that have them.
fn unused_fields(is_selected: impl Fn(&UnusedField) -> bool) -> String {
    let endpoints = reference::unused_fields();
    let mut fields: Vec<(UnusedField, Vec<&str>)> = Vec::new();
    for (endpoint, unused) in &endpoints {
        let name = endpoint.trim_start_matches("/v1/");
        for field in unused.iter().filter(|field| is_selected(field)) {
            match fields.iter_mut().find(|(other, _)| other == field) {
                Some((_, names)) => names.push(name),
                None => fields.push((*field, vec![name])),
            }
        }
    }
    fields.sort_by_key(|(field, _)| field.path);
    let mut table = header(["field", "endpoints", "reason"]);
    for (field, names) in fields {
        let values = field.only.into_iter().flatten();
        let values: Vec<String> = values.map(|value| code(value)).collect();
        let value = match values.is_empty() {
            true => String::new(),
            false => format!(": {}", values.join(", ")),
        };
        let name = format!("{}{value}", code(field.path));
        table.push_str(&row([name, names.join(", "), field.reason.to_owned()]));
    }
    table
}

fn call_formats() -> String {
    let mut table = header(["models", "the template contains", "answer with calls"]);
    for format in reference::call_formats() {
        let example = code(&format.example.replace('\n', "⏎"));
        table.push_str(&row([format.models.to_owned(), format.template, example]));
    }
    table
}

fn reasoning_formats() -> String {
    let mut table = header(["models", "opening tag", "closing tag"]);
    for format in reference::reasoning_formats() {
        let models = format.models.to_owned();
        table.push_str(&row([models, code(format.open), code(format.close)]));
    }
    table
}

fn stream_events() -> String {
    let mut table = header(["path", "when", "events"]);
    for (path, stream) in reference::stream_events() {
        for (when, events) in stream {
            let events: Vec<String> = events.iter().map(|event| code(event)).collect();
            table.push_str(&row([code(path), (*when).to_owned(), events.join(", ")]));
        }
    }
    table
}

/// The options of `serve` that limit requests.
fn options() -> String {
    let mut program = Cli::command();
    program.build();
    let mut table = header(["option", "meaning"]);
    let serve = program.find_subcommand("serve");
    let arguments = serve.into_iter().flat_map(clap::Command::get_arguments);
    for argument in arguments {
        let heading = argument.get_help_heading().unwrap_or_default();
        if LIMIT_HEADINGS.contains(&heading) {
            table.push_str(&row([code(&spelling(argument)), meaning(argument)]));
        }
    }
    table
}

fn limits(limits: &[LimitInfo]) -> String {
    let mut table = header(["limit", "value"]);
    for limit in limits {
        let value = match limit.unit {
            Unit::Count => grouped(limit.value),
            Unit::Seconds => format!("{} s", limit.value),
            Unit::Bytes if limit.value.is_multiple_of(1 << 20) => {
                format!("{} MiB", limit.value >> 20)
            }
            Unit::Bytes => format!("{} KiB", limit.value >> 10),
        };
        table.push_str(&row([limit.name.to_owned(), value]));
    }
    table
}

fn errors() -> String {
    let mut table = header(["status", "`type`", "`code`", "cause"]);
    for error in reference::ERRORS {
        let name = error.code.map_or("none".to_owned(), code);
        let status = error.status.to_string();
        table.push_str(&row([
            status,
            code(error.kind),
            name,
            error.cause.to_owned(),
        ]));
    }
    table
}

fn metrics() -> String {
    let mut table = header(["metric", "type", "labels", "meaning"]);
    for metric in reference::METRICS {
        let labels: Vec<String> = metric.labels().iter().map(|label| code(label)).collect();
        table.push_str(&row([
            code(&metric.full_name()),
            metric.kind().to_owned(),
            labels.join(", "),
            metric.help().to_owned(),
        ]));
    }
    table
}

fn buckets() -> String {
    let bounds: Vec<String> = reference::BUCKETS.iter().map(ToString::to_string).collect();
    format!(
        "The upper bounds of the histograms' buckets, in seconds: {}.",
        bounds.join(", ")
    )
}
