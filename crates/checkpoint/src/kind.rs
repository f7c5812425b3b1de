//! The kind of the model in a directory.

use std::path::Path;

use emberlm_model::encoder::is_encoder_type;
use emberlm_model::encoder_decoder::is_encoder_decoder_type;
use emberlm_model::hugging_face::CONFIG_FILE;
use emberlm_system::read::{DESCRIPTION_LIMIT, read_text};

/// The kind of a model, which decides the type that opens its directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelKind {
    /// [`Model`](crate::Model) opens it.
    Decoder,
    /// [`EncoderModel`](crate::EncoderModel) opens it.
    Encoder,
    /// [`EncoderDecoderModel`](crate::EncoderDecoderModel) opens it.
    EncoderDecoder,
}

impl ModelKind {
    /// The kind of the model at `path`, by the `model_type` in its `config.json`. A decoder unless the file names another
    /// kind: [`Model::open`](crate::Model::open) reports what is missing or damaged.
    pub fn of(path: &Path) -> Self {
        let text = read_text(&path.join(CONFIG_FILE), DESCRIPTION_LIMIT);
        let fields = text.ok().and_then(|text| serde_json::from_str(&text).ok());
        match fields {
            Some(fields) if is_encoder_type(&fields) => Self::Encoder,
            Some(fields) if is_encoder_decoder_type(&fields) => Self::EncoderDecoder,
            _ => Self::Decoder,
        }
    }

    /// The name, for messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Decoder => "decoder",
            Self::Encoder => "encoder",
            Self::EncoderDecoder => "encoder–decoder",
        }
    }
}
