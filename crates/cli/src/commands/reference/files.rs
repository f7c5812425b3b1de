//! The page of files, from the types that read and write them.

use emberlm_data::formats::{FileFormat, dataset_files};
use emberlm_trainer::formats::{checkpoint_files, events, run_files};
use serde_json::{Map, Value};

use super::schema::{Definitions, FieldTables, description};
use super::template::fill;
use super::{code, header, row};
use crate::commands::{scale, sweep};
use crate::error::CliError;
use crate::run_labels;
use crate::run_sessions;

/// The text around the tables.
const TEMPLATE: &str = include_str!("files.md.in");

/// The page as Markdown.
///
/// # Errors
/// The template names a table that does not exist.
pub fn page() -> Result<String, CliError> {
    let (dataset, checkpoint) = (dataset_files(), checkpoint_files());
    let mut run = run_files();
    run.extend([
        run_labels::format(),
        run_sessions::format(),
        sweep::early_stop_format(),
    ]);
    let mut sweep = sweep::formats();
    sweep.extend(scale::formats());
    let events = events().to_value();
    let described = [&dataset, &run, &checkpoint, &sweep].into_iter().flatten();
    let schemas: Vec<Value> = described
        .filter_map(|file| file.schema.clone())
        .map(schemars::Schema::to_value)
        .collect();
    let mut definitions = Definitions::new();
    for schema in schemas.iter().chain([&events]) {
        let named = schema["$defs"].as_object().into_iter().flatten();
        definitions.extend(named.map(|(name, schema)| (name.clone(), schema.clone())));
    }
    let tables = FieldTables {
        definitions: &definitions,
        of_requests: false,
    };
    // Definitions have a separate section, so they are left out of the roots.
    let roots: Vec<Value> = schemas
        .iter()
        .chain([&events])
        .map(without_definitions)
        .collect();
    let roots: Vec<&Value> = roots.iter().collect();
    fill(
        TEMPLATE,
        &[
            ("dataset files", list(&dataset)),
            ("dataset fields", fields(&dataset, &tables)),
            ("run files", list(&run)),
            ("run fields", fields(&run, &tables)),
            ("sweep files", list(&sweep)),
            ("sweep fields", fields(&sweep, &tables)),
            ("events", event_list(&events)),
            ("event fields", event_fields(&events, &tables)),
            ("checkpoint files", list(&checkpoint)),
            ("checkpoint fields", fields(&checkpoint, &tables)),
            ("objects", tables.sections(&roots, "###")),
        ],
    )
}

fn without_definitions(schema: &Value) -> Value {
    let mut schema = schema.clone();
    if let Some(fields) = schema.as_object_mut() {
        fields.remove("$defs");
    }
    schema
}

fn list(files: &[FileFormat]) -> String {
    let mut table = header(["file", "content"]);
    table.extend(
        files
            .iter()
            .map(|file| row([code(&file.name), file.content.clone()])),
    );
    table
}

/// The fields of each file that is JSON.
fn fields(files: &[FileFormat], tables: &FieldTables<'_>) -> String {
    let mut text = String::new();
    for file in files {
        let Some(schema) = &file.schema else { continue };
        let schema = schema.as_value();
        let fields = match schema["properties"].is_object() {
            true => tables.table(schema),
            false => format!("An {} by file name.\n", tables.kind(schema)),
        };
        text.push_str(&format!("Fields of `{}`:\n\n{fields}\n", file.name));
    }
    text
}

/// The name of an event.
fn name(event: &Value) -> &str {
    let name = &event["properties"]["event"]["const"];
    name.as_str().unwrap_or_default()
}

fn variants(events: &Value) -> impl Iterator<Item = &Value> {
    events["oneOf"].as_array().into_iter().flatten()
}

fn event_list(events: &Value) -> String {
    let mut table = header(["event", "meaning", "fields"]);
    for event in variants(events) {
        let fields = event["properties"].as_object().into_iter().flatten();
        let fields = fields.filter(|(field, _)| *field != "event");
        let fields: Vec<String> = fields.map(|(field, _)| code(field)).collect();
        table.push_str(&row([
            code(name(event)),
            description(event),
            fields.join(", "),
        ]));
    }
    table
}

/// The fields of each event, without its name.
fn event_fields(events: &Value, tables: &FieldTables<'_>) -> String {
    let mut text = String::new();
    for event in variants(events) {
        let mut fields = event.clone();
        let properties = event["properties"].as_object().into_iter().flatten();
        let properties = properties.filter(|(field, _)| *field != "event");
        fields["properties"] = properties
            .map(|(field, schema)| (field.clone(), schema.clone()))
            .collect::<Map<_, _>>()
            .into();
        let table = tables.table(&fields);
        text.push_str(&format!("Fields of `{}`:\n\n{table}\n", name(event)));
    }
    text
}
