//! Markers in a text that arrives in parts.

/// The length of the longest suffix of `text` that is a prefix of `marker`.
pub(crate) fn begun_marker(text: &str, marker: &str) -> usize {
    let (text, marker) = (text.as_bytes(), marker.as_bytes());
    let most = marker.len().min(text.len());
    (1..=most)
        .rev()
        .find(|&length| text.ends_with(&marker[..length]))
        .unwrap_or(0)
}
