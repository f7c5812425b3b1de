//! The fields of Ollama's requests, as of November 2026 (`ollama` 0.6.3 for Python), except for those that the server implements.

use super::Kind::{Flag, Number, Object, Text};
use super::Row;
use super::Treatment::{Ignored, Only, Refused};

const FIXED_CONTEXT: &str = "`serve --context` sets it";
const OWN_THREADS: &str = "the server uses its own threads and devices";
const SAMPLERS: &str = "this sampler is not supported; use `top_k`, `top_p` or `min_p`";
const WHOLE_TEXT: &str = "penalties count the whole text";
const TEXT_ONLY: &str = "the models read and write text only";

/// Rows of requests for text.
pub(super) const TEXT: &[Row] = &[
    ("options.embedding_only", Ignored(Flag, OWN_THREADS)),
    (
        "options.f16_kv",
        Ignored(Flag, "the server decides on the format of its caches"),
    ),
    ("options.logits_all", Ignored(Flag, OWN_THREADS)),
    ("options.low_vram", Ignored(Flag, OWN_THREADS)),
    ("options.main_gpu", Ignored(Number, OWN_THREADS)),
    ("options.mirostat", Only(&["0"], SAMPLERS)),
    (
        "options.mirostat_eta",
        Ignored(Number, "it belongs to `mirostat`, which must be 0"),
    ),
    (
        "options.mirostat_tau",
        Ignored(Number, "it belongs to `mirostat`, which must be 0"),
    ),
    ("options.num_batch", Ignored(Number, OWN_THREADS)),
    ("options.num_ctx", Ignored(Number, FIXED_CONTEXT)),
    ("options.num_gpu", Ignored(Number, OWN_THREADS)),
    (
        "options.num_keep",
        Ignored(
            Number,
            "a text that is longer than the context is an error, so nothing is discarded",
        ),
    ),
    ("options.num_thread", Ignored(Number, OWN_THREADS)),
    ("options.numa", Ignored(Flag, OWN_THREADS)),
    ("options.penalize_newline", Only(&["true"], WHOLE_TEXT)),
    ("options.repeat_last_n", Ignored(Number, WHOLE_TEXT)),
    ("options.tfs_z", Only(&["1"], SAMPLERS)),
    ("options.typical_p", Only(&["1"], SAMPLERS)),
    ("options.use_mlock", Ignored(Flag, OWN_THREADS)),
    ("options.use_mmap", Ignored(Flag, OWN_THREADS)),
    ("options.vocab_only", Only(&["false"], OWN_THREADS)),
];

/// Rows of requests for chats.
pub(super) const CHAT: &[Row] = &[("messages[].images", Only(&["[]"], TEXT_ONLY))];

/// Rows of requests for generated text.
pub(super) const GENERATE: &[Row] = &[
    (
        "context",
        Only(&["[]"], "send the conversation so far to /api/chat"),
    ),
    ("height", Refused(TEXT_ONLY)),
    ("images", Only(&["[]"], TEXT_ONLY)),
    ("steps", Refused(TEXT_ONLY)),
    (
        "suffix",
        Only(
            &["\"\""],
            "a text is only continued, not filled in; write the infilling tokens of the model into `prompt`",
        ),
    ),
    (
        "template",
        Only(&["\"\""], "`serve --chat-template` sets it"),
    ),
    ("width", Refused(TEXT_ONLY)),
];

/// Rows of requests for embeddings.
pub(super) const EMBED: &[Row] = &[("options", Ignored(Object, "embeddings have no settings"))];

/// Rows of requests for the description of a model.
pub(super) const SHOW: &[Row] = &[(
    "verbose",
    Ignored(Flag, "the description has all of its fields"),
)];

/// Rows of requests to fetch a model.
pub(super) const PULL: &[Row] = &[
    ("insecure", Ignored(Flag, "nothing is fetched")),
    ("password", Ignored(Text, "nothing is fetched")),
    ("username", Ignored(Text, "nothing is fetched")),
];
