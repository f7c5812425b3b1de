//! The fields of OpenAI's published request schemas, as of November 2026 (`openai-python` 3.54.0). The names are listed in
//! `crates/serve/tests/published_fields.txt`, and a test compares that list with the server.

use super::Kind::{Flag, List, Number, Object, Text};
use super::Row;
use super::Treatment::{Ignored, Members, Only, Refused};

const NOT_STORED: &str = "nothing is stored";
const ONE_TIER: &str = "all requests are served in the order of their arrival";
const OWN_CACHE: &str = "the server reuses the longest cached beginning of a prompt by itself";
const NO_ABUSE_DETECTION: &str = "the server does not monitor users";
const LENGTH: &str = "the model decides on the length; `max_tokens` limits it";
const OWN_REASONING: &str =
    "the model decides on its reasoning; `chat_template_kwargs` has the variables of its template";
const NO_SUMMARY: &str = "the reasoning itself is returned";
const NO_MODERATION: &str = "no text is moderated; leave this field out";
const TEXT_ONLY: &str = "the models read and write text only";

/// Rows that chat completions and responses share.
pub(super) const SHARED: &[Row] = &[
    ("moderation", Refused(NO_MODERATION)),
    ("prompt_cache_key", Ignored(Text, OWN_CACHE)),
    (
        "prompt_cache_options.comparison_response_id",
        Ignored(Text, OWN_CACHE),
    ),
    ("prompt_cache_options.mode", Ignored(Text, OWN_CACHE)),
    (
        "prompt_cache_options.prewarm",
        Only(
            &["false"],
            "an answer is always generated; send `max_tokens` 1 to fill the cache",
        ),
    ),
    ("prompt_cache_options.ttl", Ignored(Text, OWN_CACHE)),
    ("prompt_cache_options", Members),
    ("prompt_cache_retention", Ignored(Text, OWN_CACHE)),
    ("safety_identifier", Ignored(Text, NO_ABUSE_DETECTION)),
    ("service_tier", Ignored(Text, ONE_TIER)),
    ("store", Ignored(Flag, NOT_STORED)),
    ("user", Ignored(Text, NO_ABUSE_DETECTION)),
];

/// Rows of chat completions.
pub(super) const CHAT: &[Row] = &[
    ("audio", Refused(TEXT_ONLY)),
    ("messages[].audio", Refused(TEXT_ONLY)),
    (
        "messages[].content[].prompt_cache_breakpoint",
        Ignored(Object, OWN_CACHE),
    ),
    ("metadata", Ignored(Object, NOT_STORED)),
    ("modalities", Only(&["[\"text\"]"], TEXT_ONLY)),
    (
        "prediction",
        Ignored(Object, "it would only make the same answer faster"),
    ),
    (
        "stream_options.include_obfuscation",
        Ignored(Flag, "no chunk is padded"),
    ),
    ("verbosity", Ignored(Text, LENGTH)),
    (
        "web_search_options",
        Refused("the server does not search the web; leave this field out"),
    ),
];

/// Rows of completions.
pub(super) const COMPLETIONS: &[Row] = &[
    ("metadata", Ignored(Object, NOT_STORED)),
    ("store", Ignored(Flag, NOT_STORED)),
    (
        "stream_options.include_obfuscation",
        Ignored(Flag, "no chunk is padded"),
    ),
    (
        "suffix",
        Only(
            &["\"\""],
            "a text is only continued, not filled in; write the infilling tokens of the model into `prompt`",
        ),
    ),
    ("user", Ignored(Text, NO_ABUSE_DETECTION)),
];

/// Rows of responses.
pub(super) const RESPONSES: &[Row] = &[
    (
        "access_programs.cyber",
        Only(&["\"standard\""], "the server has no access programs"),
    ),
    ("access_programs", Members),
    (
        "background",
        Only(&["false"], "a response is generated while the client waits"),
    ),
    (
        "background_options.completion_window",
        Ignored(Text, "no response is generated in the background"),
    ),
    (
        "background_options.continuation_id",
        Refused("no response is stored; send the conversation so far as input"),
    ),
    ("background_options", Members),
    (
        "context_management",
        Only(&["[]"], "no input is compacted; shorten the input"),
    ),
    (
        "conversation",
        Refused("no response is stored; send the conversation so far as input"),
    ),
    (
        "image.context_compression",
        Ignored(Text, "the input has no images"),
    ),
    ("image", Members),
    (
        "input[].caller",
        Ignored(Object, "the templates of conversations have no callers"),
    ),
    (
        "input[].content[].prompt_cache_breakpoint",
        Ignored(Object, OWN_CACHE),
    ),
    (
        "input[].namespace",
        Refused("functions have no namespaces; leave this field out"),
    ),
    (
        "max_tool_calls",
        Ignored(
            Number,
            "it limits tools that run on the server, and there are none",
        ),
    ),
    (
        "previous_response_id",
        Refused("no response is stored; send the conversation so far as input"),
    ),
    (
        "prompt",
        Refused("no prompt is stored; send it as instructions and input"),
    ),
    ("reasoning.context", Ignored(Text, OWN_REASONING)),
    ("reasoning.generate_summary", Ignored(Text, NO_SUMMARY)),
    ("reasoning.mode", Ignored(Text, OWN_REASONING)),
    ("reasoning.summary", Ignored(Text, NO_SUMMARY)),
    (
        "stream_options.include_obfuscation",
        Ignored(Flag, "no event is padded"),
    ),
    ("stream_options", Members),
    ("text.verbosity", Ignored(Text, LENGTH)),
    (
        "tools[].allowed_callers",
        Ignored(List, "the model makes every call"),
    ),
    (
        "tools[].defer_loading",
        Only(&["false"], "all functions are in the prompt"),
    ),
    (
        "tools[].output_schema",
        Ignored(Object, "the client runs the function"),
    ),
    (
        "truncation",
        Only(
            &["\"disabled\""],
            "an input that is longer than the context is an error; shorten it",
        ),
    ),
];

/// Rows of embeddings.
pub(super) const EMBEDDINGS: &[Row] = &[("user", Ignored(Text, NO_ABUSE_DETECTION))];
