//! Additions of llama.cpp's server to OpenAI's schemas, as of November 2026, except for those that the server implements.

use super::Kind::{Flag, List, Number, Text};
use super::Row;
use super::Treatment::{Ignored, Only, Refused};

const GRAMMAR: &str = "grammars are not accepted; send `json_schema`, or `structured_outputs` with `regex` or `choice`";
const OWN_SLOTS: &str = "the server chooses slots and reuses their caches by itself";
const FIXED_CONTEXT: &str =
    "a text that is longer than the context is an error, so nothing is discarded";
const ONLY_TEXT: &str = "the answer has no timings or progress";
const OF_DRY: &str = "it belongs to `dry_multiplier`, which must be 0";
const OF_MIROSTAT: &str = "it belongs to `mirostat`, which must be 0";
const SAMPLERS: &str = "this sampler is not supported; use `top_k`, `top_p` or `min_p`";

/// Rows of requests that are not for chat completions.
pub(super) const REASONING: &[Row] = &[(
    "reasoning_format",
    Ignored(Text, "the API has one place for reasoning"),
)];

/// Rows of requests for tokens.
pub(super) const TOKENIZE: &[Row] = &[(
    "parse_special",
    Only(
        &["false"],
        "special tokens are not recognized in a text, so that a text cannot contain them",
    ),
)];

/// Rows of every request for text.
pub(super) const GENERATION: &[Row] = &[
    (
        "adaptive_decay",
        Ignored(Number, "it belongs to `adaptive_target`, which must be -1"),
    ),
    ("adaptive_target", Only(&["-1"], SAMPLERS)),
    (
        "backend_sampling",
        Ignored(Flag, "the tokens are the same on every backend"),
    ),
    ("cache_prompt", Ignored(Flag, OWN_SLOTS)),
    ("dry_allowed_length", Ignored(Number, OF_DRY)),
    ("dry_base", Ignored(Number, OF_DRY)),
    (
        "dry_multiplier",
        Only(
            &["0"],
            "this penalty is not supported; use `repetition_penalty` or `frequency_penalty`",
        ),
    ),
    ("dry_penalty_last_n", Ignored(Number, OF_DRY)),
    ("dry_sequence_breakers", Ignored(List, OF_DRY)),
    (
        "dynatemp_exponent",
        Ignored(Number, "it belongs to `dynatemp_range`, which must be 0"),
    ),
    ("dynatemp_range", Only(&["0"], SAMPLERS)),
    ("grammar", Only(&["\"\""], GRAMMAR)),
    ("grammar_lazy", Only(&["false"], GRAMMAR)),
    ("grammar_triggers", Only(&["[]"], GRAMMAR)),
    ("id_slot", Ignored(Number, OWN_SLOTS)),
    ("image_data", Only(&["[]"], "the models read text only")),
    (
        "lora",
        Only(&["[]"], "the field `model` selects an adapter"),
    ),
    ("min_keep", Only(&["0"], SAMPLERS)),
    ("mirostat", Only(&["0"], SAMPLERS)),
    ("mirostat_eta", Ignored(Number, OF_MIROSTAT)),
    ("mirostat_tau", Ignored(Number, OF_MIROSTAT)),
    ("n_cache_reuse", Ignored(Number, OWN_SLOTS)),
    ("n_cmpl", Only(&["1"], "request several answers by `n`")),
    ("n_discard", Ignored(Number, FIXED_CONTEXT)),
    (
        "n_indent",
        Only(&["0"], "use `structured_outputs` with `regex`"),
    ),
    ("n_keep", Ignored(Number, FIXED_CONTEXT)),
    (
        "n_probs",
        Only(&["0"], "request log-probabilities by `logprobs`"),
    ),
    (
        "parse_tool_calls",
        Only(&["true"], "calls of `tools` are always parsed"),
    ),
    (
        "post_sampling_probs",
        Only(
            &["false"],
            "log-probabilities are those of the model's own distribution",
        ),
    ),
    (
        "reasoning_in_content",
        Only(
            &["false"],
            "reasoning that is streamed in the content too would be there twice; use `reasoning_format` of chat completions",
        ),
    ),
    (
        "repeat_last_n",
        Only(&["-1", "64"], "penalties count the whole text"),
    ),
    (
        "repeat_penalty",
        Only(
            &["1"],
            "use `repetition_penalty`, which counts the whole text",
        ),
    ),
    (
        "response_fields",
        Ignored(List, "an answer has all of its fields"),
    ),
    ("return_progress", Ignored(Flag, ONLY_TEXT)),
    (
        "return_tokens",
        Only(
            &["false"],
            "`return_token_ids` of /v1/completions returns token ids",
        ),
    ),
    (
        "samplers",
        Refused("the samplers have a fixed order; leave this field out"),
    ),
    (
        "sse_ping_interval",
        Ignored(Number, "a stream has a comment every 15 s"),
    ),
    (
        "t_max_predict_ms",
        Only(&["-1", "0"], "`serve --timeout` limits the time"),
    ),
    (
        "thinking_forced_open",
        Only(&["false"], "the chat template begins the answer"),
    ),
    ("timings_per_token", Ignored(Flag, ONLY_TEXT)),
    ("top_n_sigma", Only(&["-1"], SAMPLERS)),
    ("typical_p", Only(&["1"], SAMPLERS)),
    (
        "verbose",
        Ignored(Flag, "`serve --verbose` is an option of the server"),
    ),
    ("xtc_probability", Only(&["0"], SAMPLERS)),
    (
        "xtc_threshold",
        Ignored(Number, "it belongs to `xtc_probability`, which must be 0"),
    ),
];
