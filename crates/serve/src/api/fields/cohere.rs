//! Fields of Cohere's and Jina's APIs for ranking documents, as of November 2026, except for those that the server implements.

use super::Kind::Number;
use super::Row;
use super::Treatment::{Ignored, Only, Refused};

/// Rows of requests to rank documents.
pub(super) const RERANK: &[Row] = &[
    (
        "max_chunks_per_doc",
        Ignored(Number, "a document is not split into chunks"),
    ),
    (
        "max_tokens_per_doc",
        Refused("`truncate` cuts a document to the model's context"),
    ),
    (
        "rank_fields",
        Refused("a document is its text; write its fields into the text"),
    ),
    (
        "return_embeddings",
        Only(
            &["false"],
            "a cross-encoder has no vectors of documents; use /v1/embeddings",
        ),
    ),
];
