//! Files of the web pages, embedded in the binary.

use axum::http::{HeaderName, header};
use axum::response::{IntoResponse, Response};

/// A file of a web page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asset {
    pub(crate) kind: &'static str,
    pub(crate) content: &'static str,
}

/// The content security policy of the pages: only files and responses of the page's server, and no inline
/// content. Text shown on a page can therefore never run as code.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
    img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

impl IntoResponse for Asset {
    fn into_response(self) -> Response {
        let headers: [(HeaderName, &str); 5] = [
            (header::CONTENT_TYPE, self.kind),
            (header::CONTENT_SECURITY_POLICY, POLICY),
            (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (header::REFERRER_POLICY, "no-referrer"),
            // A different version may be served after a restart.
            (header::CACHE_CONTROL, "no-cache"),
        ];
        (headers, self.content).into_response()
    }
}
