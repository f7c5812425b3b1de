//! The fields of Anthropic's published request schemas, as of November 2026 (`anthropic` 2.14.0 for Python).

use super::Kind::{Flag, List, Object, Text};
use super::Row;
use super::Treatment::{Ignored, Only, Refused};

const OWN_CACHE: &str = "the server reuses the longest cached beginning of a prompt by itself";
const NO_SEARCH: &str = "the model calls each tool itself and sees all of them";
const NO_TOOLSETS: &str = "there are no sets of tools";

/// Rows of requests with a conversation.
pub(super) const CONVERSATION: &[Row] = &[
    ("cache_control", Ignored(Object, OWN_CACHE)),
    (
        "context_management",
        Ignored(Object, "nothing is removed from the conversation"),
    ),
    (
        "mcp_servers",
        Only(
            &["[]"],
            "the server calls no other servers; send their functions as tools",
        ),
    ),
    (
        "messages[].content[].toolset_name",
        Ignored(Text, NO_TOOLSETS),
    ),
    (
        "speed",
        Ignored(
            Text,
            "all requests are served in the order of their arrival",
        ),
    ),
    ("tools[].allowed_callers", Ignored(List, NO_SEARCH)),
    ("tools[].cache_control", Ignored(Object, OWN_CACHE)),
    (
        "tools[].defer_loading",
        Only(&["false"], "all tools are in the prompt"),
    ),
    (
        "tools[].eager_input_streaming",
        Ignored(Flag, "arguments are always streamed as they are generated"),
    ),
    (
        "tools[].input_examples",
        Ignored(List, "chat templates have no place for examples"),
    ),
    (
        "user_profile_id",
        Ignored(Text, "the server does not monitor users"),
    ),
    (
        "workspace_id",
        Ignored(Text, "the server has no workspaces"),
    ),
];

/// Rows of requests for an answer.
pub(super) const MESSAGES: &[Row] = &[
    (
        "container",
        Refused("the server runs no code; leave this field out"),
    ),
    ("diagnostics", Ignored(Object, "nothing is stored")),
    (
        "inference_geo",
        Ignored(Text, "the model runs on this server"),
    ),
    ("metadata", Ignored(Object, "nothing is stored")),
    (
        "service_tier",
        Ignored(
            Text,
            "all requests are served in the order of their arrival",
        ),
    ),
];
