//! Hostile requests, generated from the OpenAPI description of a server.
//!
//! The attacks on `emberlm serve` and its tests read `GET /openapi.json` and attack what it lists. A new field or endpoint is
//! therefore attacked as soon as it is described. A part of a description that the generator does not know is an error, so
//! that nothing is left out silently.
//!
//! | type | contents |
//! |---|---|
//! | [`Operation`] | an endpoint: its fields, its parameters, and the check of its answers |
//! | [`Field`] | a place in the body of a request, and the bodies with any value there |
//! | [`Fill`] | a value that fills the body up to a size |
//! | [`EDGES`] | values of a few bytes: extreme numbers, wrong types, empty and invalid values |
//!
//! ```
//! use emberlm_hostile::{Fill, operations};
//! use serde_json::json;
//!
//! let description = json!({ "paths": { "/v1/texts": { "post": {
//!     "requestBody": { "content": { "application/json": { "schema": {
//!         "type": "object",
//!         "properties": { "model": { "type": "string" }, "stop": { "type": "array", "items": { "type": "string" } } },
//!         "required": ["model"],
//!     } } } },
//!     "responses": { "200": {}, "400": {} },
//! } } } });
//! let known = json!({ "model": "m" });
//! let operations = operations(&description, &known)?;
//! let fields = &operations[0].fields;
//! let stop = fields.iter().find(|field| field.pointer == "/stop").unwrap();
//! assert_eq!(stop.body("1e308"), r#"{"model":"m","stop":1e308}"#);
//! assert_eq!(stop.filled(Fill::Lists, 40), r#"{"model":"m","stop":[[],[],[],[],[],[]]}"#);
//! # Ok::<(), emberlm_hostile::DescriptionError>(())
//! ```

mod answer;
mod fields;
mod operation;
mod parameters;
mod schema;
mod values;

pub use answer::{Outcome, has_reason};
pub use fields::Field;
pub use operation::{Operation, operations};
pub use schema::DescriptionError;
pub use values::{EDGES, Fill};
