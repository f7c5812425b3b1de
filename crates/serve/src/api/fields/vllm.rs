//! Additions of vLLM to OpenAI's schemas, as of `vllm` 0.11, except for those that the server implements.

use super::Kind::{Flag, Number, Object, Text};
use super::Row;
use super::Treatment::{Ignored, Only, Refused};

const ONE_BACKEND: &str = "all forms of text have one implementation";
const OWN_IDS: &str = "the server chooses the ids of its answers";
const ARRIVAL: &str = "all requests are served in the order of their arrival";
const NO_BEAMS: &str = "the server samples; `emberlm generate --beams` searches with beams";

/// Rows of every request for text.
pub(super) const GENERATION: &[Row] = &[
    (
        "allowed_token_ids",
        Refused("restrict the text by `structured_outputs`, or the tokens by `logit_bias`"),
    ),
    (
        "bad_words",
        Only(&["[]"], "exclude tokens by a `logit_bias` of -100"),
    ),
    (
        "cache_salt",
        Refused("cached prompts are shared between clients; start a server per client instead"),
    ),
    ("guided_decoding_backend", Ignored(Text, ONE_BACKEND)),
    (
        "guided_grammar",
        Only(
            &["\"\""],
            "grammars are not accepted; send `guided_json`, `guided_regex` or `guided_choice`",
        ),
    ),
    (
        "guided_whitespace_pattern",
        Refused(
            "the text has one blank after each comma and colon; `x-guidance` in the schema changes that",
        ),
    ),
    (
        "include_stop_str_in_output",
        Only(&["false"], "the text ends before a stop string; append it"),
    ),
    (
        "kv_transfer_params",
        Refused("the caches of the server are not transferred"),
    ),
    ("length_penalty", Only(&["1"], NO_BEAMS)),
    (
        "logits_processors",
        Only(&["[]"], "the server runs no code of clients"),
    ),
    (
        "mm_processor_kwargs",
        Ignored(Object, "the models read text only"),
    ),
    ("priority", Ignored(Number, ARRIVAL)),
    (
        "prompt_logprobs",
        Refused("send `echo` with `logprobs` to /v1/completions for those of a prompt"),
    ),
    ("request_id", Ignored(Text, OWN_IDS)),
    (
        "return_tokens_as_token_ids",
        Only(&["false"], "log-probabilities have the texts of tokens"),
    ),
    (
        "skip_special_tokens",
        Ignored(
            Flag,
            "the token that ends a text is not part of it, and others are written by name",
        ),
    ),
    (
        "spaces_between_special_tokens",
        Ignored(Flag, "special tokens are written without blanks"),
    ),
    (
        "stream_options.continuous_usage_stats",
        Only(&["false"], "the token counts are in the last chunk"),
    ),
    (
        "structural_tag",
        Refused("send the form of the text as `structured_outputs`, or functions as `tools`"),
    ),
    (
        "truncate_prompt_tokens",
        Refused("a prompt is never truncated; shorten it"),
    ),
    ("use_beam_search", Only(&["false"], NO_BEAMS)),
    ("vllm_xargs", Only(&["{}"], "the server has no extensions")),
];

/// Rows of chat completions.
pub(super) const CHAT: &[Row] = &[
    (
        "add_special_tokens",
        Only(&["false"], "the chat template writes all special tokens"),
    ),
    (
        "chat_template",
        Refused("a template is chosen when the server starts, by `serve --chat-template`"),
    ),
    (
        "echo",
        Only(
            &["false"],
            "the answer is the new text; append it to the message",
        ),
    ),
    (
        "return_token_ids",
        Only(&["false"], "only /v1/completions returns token ids"),
    ),
];

/// Rows of completions.
pub(super) const COMPLETIONS: &[Row] = &[(
    "add_special_tokens",
    Only(
        &["true"],
        "a text is encoded as in training; send token ids for other prompts",
    ),
)];

/// Rows of embeddings.
pub(super) const EMBEDDINGS: &[Row] = &[
    (
        "add_special_tokens",
        Only(
            &["true"],
            "a text is encoded as the model needs it; send token ids for other inputs",
        ),
    ),
    (
        "normalize",
        Refused("the model decides on the normalization; leave this field out"),
    ),
    ("priority", Ignored(Number, ARRIVAL)),
    ("request_id", Ignored(Text, OWN_IDS)),
    (
        "truncate_prompt_tokens",
        Refused("`truncate` cuts a text to the model's context"),
    ),
];

/// Rows of requests for scores of labels.
pub(super) const SCORING: &[Row] = &[
    (
        "activation",
        Only(
            &["true"],
            "the scores are those of the model's problem type",
        ),
    ),
    (
        "mm_processor_kwargs",
        Ignored(Object, "the models read text only"),
    ),
    ("priority", Ignored(Number, ARRIVAL)),
    ("request_id", Ignored(Text, OWN_IDS)),
    (
        "softmax",
        Only(
            &["true"],
            "the scores are those of the model's problem type",
        ),
    ),
    (
        "truncate_prompt_tokens",
        Refused("`truncate` cuts a text to the model's context"),
    ),
    (
        "use_activation",
        Only(
            &["true"],
            "the scores are those of the model's problem type",
        ),
    ),
    ("user", Ignored(Text, "the server does not monitor users")),
];

/// Rows of requests for labels.
pub(super) const CLASSIFY: &[Row] = &[
    (
        "add_special_tokens",
        Only(
            &["true"],
            "a text is encoded as the model needs it; send token ids for other inputs",
        ),
    ),
    (
        "messages",
        Refused("a classifier reads texts; send them as `input`"),
    ),
];

/// Rows of requests to load an adapter.
pub(super) const LOAD_LORA: &[Row] = &[(
    "load_inplace",
    Only(
        &["false"],
        "remove the adapter first, and then load it again",
    ),
)];

/// Rows of requests to remove an adapter.
pub(super) const UNLOAD_LORA: &[Row] = &[(
    "lora_int_id",
    Ignored(Number, "an adapter is found by its name"),
)];
