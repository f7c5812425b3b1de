//! The sizes of a model that `emberlm info` lists.

use emberlm_model::TransformerConfig;
use emberlm_model::config::{Architecture, Position};
use emberlm_model::encoder::EncoderHeadConfig;

/// The name, the value and a note of each size but the vocabulary's. `longest_text` is that of an encoder's files.
pub fn rows(
    config: &TransformerConfig,
    longest_text: Option<usize>,
) -> Vec<(&'static str, String, String)> {
    let raw = config.raw();
    let mut rows = Vec::new();
    let mut row = |name, size: String, note: String| rows.push((name, size, note));
    match *config.position() {
        Position::Relative(positions) => {
            let from = positions.max_distance;
            let note = format!("relative; distances from {from} on are alike");
            row("position buckets", positions.buckets.to_string(), note);
        }
        _ => {
            let note = longest_text.map(|tokens| format!("texts of at most {tokens} tokens"));
            row("seq_len", raw.seq_len.to_string(), note.unwrap_or_default());
        }
    }
    let mut size = |name, size: usize| row(name, size.to_string(), String::new());
    size("d_model", raw.d_model);
    match raw.architecture {
        Architecture::EncoderDecoder { encoder_layers, .. } => {
            size("encoder layers", encoder_layers);
            size("decoder layers", raw.n_layers);
        }
        Architecture::Decoder | Architecture::Encoder { .. } => size("n_layers", raw.n_layers),
    }
    size("heads", raw.heads);
    size("kv_heads", raw.kv_heads_or_derived());
    size("head_dim", config.head_dim());
    let Architecture::Encoder { segments, head, .. } = raw.architecture else {
        return rows;
    };
    size("segments", segments);
    if let Some(window) = config.window() {
        let local = raw.n_layers - window.full_layers.layers(raw.n_layers).len();
        let note = format!("tokens on each side, in {local} of {} blocks", raw.n_layers);
        row("window", window.tokens.to_string(), note);
    }
    let (head, labels) = match &head {
        None => ("none", None),
        Some(EncoderHeadConfig::Pooler) => ("pooler", None),
        Some(EncoderHeadConfig::MaskedLm { .. }) => ("masked language model", None),
        Some(EncoderHeadConfig::Sequence { labels, .. }) => {
            ("classifier of texts", Some(labels.len()))
        }
        Some(EncoderHeadConfig::Token { labels, .. }) => {
            ("classifier of tokens", Some(labels.len()))
        }
    };
    let labels = labels.map(|labels| format!("{labels} labels"));
    row("head", head.to_owned(), labels.unwrap_or_default());
    rows
}
