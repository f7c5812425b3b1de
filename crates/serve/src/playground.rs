//! The playground: the web page at `/`.

use std::sync::LazyLock;

use axum::Router;
use axum::routing::get;
use emberlm_generate::{SETTINGS, SamplingSetting};
use serde_json::{Value, json};

use crate::asset::Asset;

const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

/// An entry of [`FILES`] for one of the page's own scripts.
macro_rules! script {
    ($name:literal) => {
        (
            concat!("/", $name),
            SCRIPT,
            include_str!(concat!("playground/page/", $name)),
        )
    };
}

/// The page's files: path, content type and content. Charts and base styles are shared with the watch page.
const FILES: [(&str, &str, &str); 27] = [
    (
        "/",
        "text/html; charset=utf-8",
        include_str!("playground/page/index.html"),
    ),
    ("/base.css", STYLE, include_str!("watch/page/base.css")),
    ("/play.css", STYLE, include_str!("playground/page/play.css")),
    ("/chart.js", SCRIPT, include_str!("watch/page/chart.js")),
    ("/limits.js", SCRIPT, include_str!("watch/page/limits.js")),
    ("/style.js", SCRIPT, include_str!("watch/page/style.js")),
    script!("actions.js"),
    script!("answer.js"),
    script!("card.js"),
    script!("chat.js"),
    script!("choices.js"),
    script!("elements.js"),
    script!("key.js"),
    script!("labels.js"),
    script!("memory.js"),
    script!("models.js"),
    script!("parts.js"),
    script!("play.js"),
    script!("ranking.js"),
    script!("server.js"),
    script!("settings.js"),
    script!("similarity.js"),
    script!("spelling.js"),
    script!("texts.js"),
    script!("tokens.js"),
    script!("tools.js"),
    script!("write.js"),
];

/// The script with the sampling settings, which `settings.js` shows.
static SAMPLING: LazyLock<String> = LazyLock::new(|| {
    let field = |setting: &SamplingSetting| {
        let mut field = json!(setting.slider);
        field["name"] = setting.name.into();
        field["hint"] = setting.hint.into();
        field
    };
    let fields: Value = SETTINGS.iter().map(field).collect();
    format!("export const SETTINGS = {fields};\n")
});

/// Routes of the page's files.
pub(crate) fn router<S: Clone + Send + Sync + 'static>() -> Router<S> {
    FILES
        .into_iter()
        .chain([("/sampling.js", SCRIPT, SAMPLING.as_str())])
        .fold(Router::new(), |router, (path, kind, content)| {
            router.route(path, get(move || async move { Asset { kind, content } }))
        })
}
