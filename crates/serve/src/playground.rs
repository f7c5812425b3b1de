//! The playground: the web page at `/`.

use axum::Router;
use axum::routing::get;

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
const FILES: [(&str, &str, &str); 19] = [
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
    script!("key.js"),
    script!("memory.js"),
    script!("play.js"),
    script!("server.js"),
    script!("settings.js"),
    script!("spelling.js"),
    script!("tokens.js"),
    script!("write.js"),
];

/// Routes of the page's files.
pub(crate) fn router<S: Clone + Send + Sync + 'static>() -> Router<S> {
    FILES
        .into_iter()
        .fold(Router::new(), |router, (path, kind, content)| {
            router.route(path, get(move || async move { Asset { kind, content } }))
        })
}

#[cfg(test)]
mod tests {
    use emberlm_generate::ranges;

    /// The number `key` in the line of `settings.js` that defines the field `name`.
    fn number(name: &str, key: &str) -> f64 {
        let script = include_str!("playground/page/settings.js");
        let named = format!("name: \"{name}\"");
        let line = script.lines().find(|line| line.contains(&named)).unwrap();
        let (_, rest) = line.split_once(&format!(" {key}: ")).unwrap();
        rest.split([',', ' ']).next().unwrap().parse().unwrap()
    }

    #[test]
    fn sliders_stay_within_the_ranges_of_their_settings() {
        // Logit bias is per token and has no slider.
        for setting in ranges::ALL {
            if setting == ranges::LOGIT_BIAS {
                continue;
            }
            let [least, most, value] =
                ["least", "most", "value"].map(|key| number(setting.name, key));
            assert!(
                least >= setting.least && most <= setting.most,
                "{setting:?}"
            );
            assert!(setting.allows(value), "{setting:?}");
        }
    }
}
