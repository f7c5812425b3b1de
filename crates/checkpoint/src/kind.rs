//! The kind of model that a directory holds.

use std::path::{Path, PathBuf};

use emberlm_model::ModelKind;
use emberlm_model::hugging_face::CONFIG_FILE;
use emberlm_model::hugging_face::encoder::is_encoder_type;
use emberlm_model::hugging_face::encoder_decoder::is_encoder_decoder_type;
use emberlm_system::read::{DESCRIPTION_LIMIT, read_text};

use crate::checkpoint::{FOLDER, listed};
use crate::error::{CheckpointError, ModelError};
use crate::model;

/// The kind of the model at `path`: a run, a checkpoint or a Hugging Face directory. It follows from the model type in
/// `config.json`; a directory without a known type counts as a decoder, whose opener reports what is wrong.
pub fn kind_of(path: impl AsRef<Path>) -> ModelKind {
    let path = path.as_ref();
    let newest = listed(path).ok().and_then(|mut listed| listed.pop());
    let folder = newest.map_or_else(|| path.to_owned(), |(_, folder)| folder);
    let text = read_text(&folder.join(CONFIG_FILE), DESCRIPTION_LIMIT);
    let fields = text.ok().and_then(|text| serde_json::from_str(&text).ok());
    match fields {
        Some(fields) if is_encoder_type(&fields) => ModelKind::Encoder,
        Some(fields) if is_encoder_decoder_type(&fields) => ModelKind::EncoderDecoder,
        _ => ModelKind::Decoder,
    }
}

/// The directory of the model at `path`: the newest intact checkpoint of a run, or else `path`. Also returns the errors
/// of newer checkpoints.
pub(crate) fn model_folder(path: &Path) -> Result<(PathBuf, Vec<CheckpointError>), ModelError> {
    if !path.join(FOLDER).exists() {
        return Ok((path.to_owned(), Vec::new()));
    }
    let (newest, passed_over) = model::newest(path)?;
    let none = || ModelError::NoCheckpoint {
        path: path.to_owned(),
    };
    Ok((newest.ok_or_else(none)?.path, passed_over))
}
