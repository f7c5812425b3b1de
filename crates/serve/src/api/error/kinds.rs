//! The kinds of errors.

/// A kind of error: its status, `type` and `code`, and its cause for the documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorKind {
    /// The status.
    pub status: u16,
    /// The `type`.
    pub kind: &'static str,
    /// The `code`, if there is one.
    pub code: Option<&'static str>,
    /// The cause.
    pub cause: &'static str,
}

impl ErrorKind {
    const fn new(status: u16, code: &'static str, cause: &'static str) -> Self {
        Self {
            code: Some(code),
            ..Self::without_code(status, "invalid_request_error", cause)
        }
    }

    const fn without_code(status: u16, kind: &'static str, cause: &'static str) -> Self {
        Self {
            status,
            kind,
            code: None,
            cause,
        }
    }
}

pub(super) const INVALID: ErrorKind = ErrorKind::without_code(
    400,
    "invalid_request_error",
    "an unsupported field or an invalid value, named by `param`",
);
pub(super) const CONTEXT: ErrorKind = ErrorKind::new(
    400,
    "context_length_exceeded",
    "the prompt and the new tokens exceed the context",
);
pub(super) const REQUEST_MEMORY: ErrorKind = ErrorKind::new(
    400,
    "request_too_large",
    "the request and its answers would exceed `--max-request-memory`",
);
pub(super) const CONSTRAINT: ErrorKind = ErrorKind::new(
    400,
    "constraint_not_met",
    "no token can continue the text within its schema or expression; may also end a stream",
);
pub(super) const TASK: ErrorKind = ErrorKind::new(
    400,
    "model_not_supported",
    "models of this kind do not answer at this path",
);
pub(super) const KEY: ErrorKind = ErrorKind::new(
    401,
    "invalid_api_key",
    "the key of `--api-key-file` (for an administrator, of `--admin-key-file`) is missing or wrong",
);
pub(super) const NO_ADMIN: ErrorKind = ErrorKind::new(
    403,
    "admin_disabled",
    "the server was started without `--admin-key-file`",
);
pub(super) const MODEL_PATH: ErrorKind = ErrorKind::new(
    403,
    "path_not_allowed",
    "models may not be loaded from this path: it is not below a `--model-root`",
);
pub(crate) const HOST: ErrorKind = ErrorKind::new(
    403,
    "host_not_allowed",
    "the server does not answer requests for this host",
);
pub(crate) const ORIGIN: ErrorKind = ErrorKind::new(
    403,
    "origin_not_allowed",
    "the request is from a page of another origin",
);
pub(super) const MODEL: ErrorKind =
    ErrorKind::new(404, "model_not_found", "the model does not exist");
pub(super) const PATH: ErrorKind = ErrorKind::new(404, "not_found", "the path does not exist");
pub(super) const METHOD: ErrorKind = ErrorKind::new(
    405,
    "method_not_allowed",
    "the path does not support the method",
);
pub(super) const MODEL_EXISTS: ErrorKind = ErrorKind::new(
    409,
    "model_exists",
    "a served model has the name or the alias already",
);
pub(super) const SLOW_BODY: ErrorKind =
    ErrorKind::new(408, "request_timeout", "the body arrived too slowly");
pub(super) const BODY_SIZE: ErrorKind =
    ErrorKind::new(413, "body_too_large", "the body exceeds `--max-body`");
pub(super) const MEDIA_TYPE: ErrorKind = ErrorKind::new(
    415,
    "unsupported_media_type",
    "the body is not declared as `application/json`",
);
pub(super) const BUSY: ErrorKind = ErrorKind {
    kind: "rate_limit_error",
    ..ErrorKind::new(
        429,
        "rate_limit_exceeded",
        "a queue or the memory of all requests is full; `Retry-After` has the seconds to wait",
    )
};
pub(super) const INTERNAL: ErrorKind =
    ErrorKind::without_code(500, "server_error", "an internal error");
pub(super) const TIMEOUT: ErrorKind = ErrorKind {
    kind: "timeout_error",
    ..ErrorKind::new(504, "timeout", "the request exceeded `--timeout`")
};

pub(super) const NO_MEMORY: ErrorKind = ErrorKind {
    kind: "server_error",
    ..ErrorKind::new(
        507,
        "insufficient_memory",
        "the model to load does not fit into memory",
    )
};

/// All kinds of errors, ordered by status.
pub const ERRORS: [ErrorKind; 21] = [
    INVALID,
    CONTEXT,
    REQUEST_MEMORY,
    CONSTRAINT,
    TASK,
    KEY,
    NO_ADMIN,
    MODEL_PATH,
    HOST,
    ORIGIN,
    MODEL,
    PATH,
    METHOD,
    SLOW_BODY,
    MODEL_EXISTS,
    BODY_SIZE,
    MEDIA_TYPE,
    BUSY,
    INTERNAL,
    TIMEOUT,
    NO_MEMORY,
];
