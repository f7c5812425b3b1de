//! The kind of model that a directory holds.

use std::path::Path;

use emberlm_model::ModelKind;
use emberlm_model::adapter::PeftAdapter;
use emberlm_model::config::Architecture;
use emberlm_model::hugging_face::{self, CONFIG_FILE};
use emberlm_system::read::{DESCRIPTION_LIMIT, read_text};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::checkpoint::{DESCRIPTION, listed};

/// The kind of the model at `path`: a run, a checkpoint, a Hugging Face directory, or PEFT's directory of an adapter. A
/// directory without a known type counts as a decoder, whose opener reports what is wrong.
pub fn kind_of(path: impl AsRef<Path>) -> ModelKind {
    let path = path.as_ref();
    let newest = listed(path).ok().and_then(|mut listed| listed.pop());
    let folder = newest.map_or_else(|| path.to_owned(), |(_, folder)| folder);
    let fields = |name: &str| -> Option<Map<String, Value>> {
        let text = read_text(&folder.join(name), DESCRIPTION_LIMIT).ok()?;
        serde_json::from_str(&text).ok()
    };
    if let Some(description) = fields(DESCRIPTION) {
        let stacks = description
            .get("model")
            .and_then(|model| model.get("architecture"));
        let stacks = stacks.and_then(|stacks| Architecture::deserialize(stacks).ok());
        return stacks.unwrap_or_default().kind();
    }
    if let Some(fields) = fields(CONFIG_FILE) {
        return hugging_face::kind_of(&fields).unwrap_or(ModelKind::Decoder);
    }
    let adapter = PeftAdapter::open(&folder).ok();
    let base = adapter.and_then(|adapter| Some(folder.join(adapter.base()?)));
    match base.filter(|base| *base != folder) {
        Some(base) => kind_of(base),
        None => ModelKind::Decoder,
    }
}
