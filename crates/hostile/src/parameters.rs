//! Hostile targets of requests: paths and queries.

/// The name of a query parameter that no description has.
const UNKNOWN: &str = "unknown_parameter";

/// Values of path and query parameters: a name, and the text in the target.
fn values() -> Vec<(&'static str, String)> {
    let short = [
        ("an empty value", ""),
        ("a space", "%20"),
        ("the parent", ".."),
        ("parents", "../../../../etc/passwd"),
        ("encoded parents", "%2e%2e%2f%2e%2e%2fetc%2fpasswd"),
        ("parents, encoded twice", "%252e%252e%252f"),
        ("a slash", "/"),
        ("a backslash", "%5c..%5c"),
        ("a NUL", "%00"),
        ("line breaks", "a%0d%0aset-cookie:%20a=b"),
        ("an escape sequence", "%1b%5b2J"),
        ("invalid UTF-8", "%ff%fe"),
        ("half of an encoding", "%"),
        ("an invalid encoding", "%zz"),
        ("a query", "?a=b&a=c&&=="),
        ("a fragment", "#a"),
        ("a template", "{name}"),
        ("quotes", "\"'`"),
        ("wide characters", "\u{1f422}\u{e9}"),
        ("a raw control character", "a\u{1}b"),
        ("a number", "-1e999"),
    ];
    let long = [
        ("a long value", "a".repeat(50_000)),
        ("a long encoded value", "%00".repeat(20_000)),
        ("many slashes", "/a".repeat(20_000)),
        ("many parameters", "a&".repeat(20_000)),
        ("a value longer than a head", "a".repeat(200_000)),
    ];
    let short = short.map(|(name, value)| (name, value.to_owned()));
    short.into_iter().chain(long).collect()
}

/// The targets that have hostile values in the parameters of a path and in the query. Each has a name for reports.
pub(crate) fn targets(path: &str, queries: &[String]) -> Vec<(String, String)> {
    let mut targets = Vec::new();
    for (name, value) in values() {
        if path.contains('{') {
            targets.push((format!("{path}: {name}"), filled(path, &value)));
        }
        let path = filled(path, "a");
        for query in queries.iter().map(String::as_str).chain([UNKNOWN]) {
            let target = format!("{path}?{query}={value}");
            targets.push((format!("{path}?{query}: {name}"), target));
        }
    }
    targets
}

/// The path with a value for each parameter.
fn filled(path: &str, value: &str) -> String {
    let mut filled = String::new();
    let mut rest = path;
    while let Some((before, after)) = rest.split_once('{') {
        filled += before;
        filled += value;
        rest = after.split_once('}').map_or("", |(_, rest)| rest);
    }
    filled + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_replace_parameters_of_paths_and_queries() {
        let all = targets("/v1/models/{name}/x", &["limit".to_owned()]);
        assert_eq!(all.len(), 3 * values().len());
        for target in [
            "/v1/models/../x",
            "/v1/models/a/x?limit=..",
            "/v1/models/a/x?unknown_parameter=%00",
        ] {
            assert!(all.iter().any(|(_, known)| known == target), "{target}");
        }
    }
}
