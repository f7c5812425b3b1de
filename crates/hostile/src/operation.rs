//! The operations of a description.

use std::collections::BTreeSet;

use serde_json::Value;

use super::fields::{self, Field};
use super::parameters;
use super::schema::{DescriptionError, Schemas, listed, unknown};

/// The keys of a path that are no operations.
const SHARED: [&str; 4] = ["description", "parameters", "servers", "summary"];
const JSON: &str = "application/json";

/// An endpoint with a method.
#[derive(Clone, Debug)]
pub struct Operation {
    /// The method, in capitals.
    pub method: String,
    /// The path. Its parameters are in braces.
    pub path: String,
    /// The fields of the body. Empty if the operation has no body.
    pub fields: Vec<Field>,
    /// The described statuses.
    pub(crate) statuses: BTreeSet<u16>,
    /// The names of the query parameters.
    pub(crate) queries: Vec<String>,
}

/// The operations of an OpenAPI description. `known` is an object of values for properties of these names, such as the name of
/// a model, without which every request would be rejected for the same reason.
///
/// # Errors
/// A part of the description is not supported, so its fields would not be attacked.
pub fn operations(description: &Value, known: &Value) -> Result<Vec<Operation>, DescriptionError> {
    let schemas = Schemas {
        document: description,
        known,
    };
    let mut operations = Vec::new();
    for (path, item) in members(description, "paths") {
        for (method, operation) in item.as_object().into_iter().flatten() {
            if SHARED.contains(&method.as_str()) {
                continue;
            }
            let method = method.to_uppercase();
            let name = format!("{method} {path}");
            let parameters = parameters_of(item).chain(parameters_of(operation));
            operations.push(Operation {
                queries: queries(parameters, &name)?,
                statuses: statuses(operation, &name)?,
                fields: body_fields(schemas, operation, &name)?,
                path: path.clone(),
                method,
            });
        }
    }
    match operations.is_empty() {
        true => Err(unknown("paths", "the description has no operations")),
        false => Ok(operations),
    }
}

impl Operation {
    /// The method and the path.
    pub fn name(&self) -> String {
        format!("{} {}", self.method, self.path)
    }

    /// Targets with hostile values in the parameters of the path and of the query, each with a name for reports. Every
    /// operation gets an unknown query parameter.
    pub fn targets(&self) -> Vec<(String, String)> {
        parameters::targets(&self.path, &self.queries)
    }
}

fn body_fields(
    schemas: Schemas<'_>,
    operation: &Value,
    name: &str,
) -> Result<Vec<Field>, DescriptionError> {
    let body = &operation["requestBody"];
    if body.is_null() {
        return Ok(Vec::new());
    }
    let mut kinds = members(body, "content");
    match (kinds.next(), kinds.next()) {
        (Some((kind, content)), None) if kind == JSON => {
            fields::all(schemas, &content["schema"], name)
        }
        _ => Err(unknown(name, format!("its body is not only `{JSON}`"))),
    }
}

/// The names of the query parameters.
fn queries<'a>(
    parameters: impl Iterator<Item = &'a Value>,
    operation: &str,
) -> Result<Vec<String>, DescriptionError> {
    let mut names = Vec::new();
    for parameter in parameters {
        match (parameter["in"].as_str(), parameter["name"].as_str()) {
            (Some("path"), Some(_)) => {}
            (Some("query"), Some(name)) => names.push(name.to_owned()),
            _ => {
                let reason = format!("the parameter {parameter} is not supported");
                return Err(unknown(operation, reason));
            }
        }
    }
    Ok(names)
}

fn statuses(operation: &Value, name: &str) -> Result<BTreeSet<u16>, DescriptionError> {
    let statuses = members(operation, "responses").map(|(status, _)| {
        let number = status.parse().ok();
        number.ok_or_else(|| unknown(name, format!("the status `{status}` is not supported")))
    });
    statuses.collect()
}

fn members<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    value[key].as_object().into_iter().flatten()
}

fn parameters_of(value: &Value) -> impl Iterator<Item = &Value> {
    let members = value.as_object().into_iter();
    members.flat_map(|members| listed(members, "parameters"))
}
