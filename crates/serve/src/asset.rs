//! The pages' files, which are inside of the program.

use axum::http::{HeaderName, header};
use axum::response::{IntoResponse, Response};

/// A file of a page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asset {
    pub(crate) kind: &'static str,
    pub(crate) content: &'static str,
}

/// The content security policy of a page: its own server's files and answers, and nothing inline, so that a name or a text that
/// it shows can never become code.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
    img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

impl IntoResponse for Asset {
    fn into_response(self) -> Response {
        let headers: [(HeaderName, &str); 5] = [
            (header::CONTENT_TYPE, self.kind),
            (header::CONTENT_SECURITY_POLICY, POLICY),
            (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (header::REFERRER_POLICY, "no-referrer"),
            // The program may be another one the next time.
            (header::CACHE_CONTROL, "no-cache"),
        ];
        (headers, self.content).into_response()
    }
}
