//! The page at `/`: a playground.

use axum::Router;
use axum::routing::get;

use crate::asset::Asset;

/// The page's files.
pub(crate) fn router<S: Clone + Send + Sync + 'static>() -> Router<S> {
    let asset = |kind, content| get(move || async move { Asset { kind, content } });
    Router::new().route(
        "/",
        asset(
            "text/html; charset=utf-8",
            include_str!("playground/page/index.html"),
        ),
    )
}
