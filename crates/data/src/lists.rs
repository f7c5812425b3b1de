//! Formatting of parts of messages: of lists, the first items, then the number of the remaining ones.

use emberlm_system::file_kind::Compression;

/// The number of list items that a message shows.
const SHOWN_ITEMS: usize = 12;

/// The number of characters of a name that a message shows.
const SHOWN_CHARS: usize = 80;

/// Joins the first items of a list and appends the number of the remaining ones.
pub(crate) fn listed<T: AsRef<str>>(items: &[T], separator: &str) -> String {
    let shown: Vec<&str> = items.iter().take(SHOWN_ITEMS).map(AsRef::as_ref).collect();
    let shown = shown.join(separator);
    match items.len().saturating_sub(SHOWN_ITEMS) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// The compression that a file is inside of, after its kind.
pub(crate) fn inside(compression: Option<Compression>) -> String {
    compression.map_or_else(String::new, |outer| format!(" inside {}", outer.name()))
}

/// The reason that a split by position is empty.
pub(crate) fn empty_split(val_fraction: f64, characters: u64) -> String {
    match characters {
        0 => "the inputs have no text".to_owned(),
        _ => format!("`val_fraction` {val_fraction} of {characters} characters"),
    }
}

/// The reason that a split by documents leaves none for training.
pub(crate) fn no_train_documents(documents: u64) -> String {
    match documents {
        0 => "the inputs have no documents".to_owned(),
        1 => "the only document is for validation".to_owned(),
        documents => format!("all {documents} documents are for validation"),
    }
}

/// Joins the first names of a list, each quoted and truncated.
pub(crate) fn quoted<T: AsRef<str>>(names: &[T]) -> String {
    if names.is_empty() {
        return "none".to_owned();
    }
    let quoted = names.iter().take(SHOWN_ITEMS).map(|name| {
        let name = name.as_ref();
        match name.char_indices().nth(SHOWN_CHARS) {
            Some((end, _)) => format!("`{}…`", name[..end].escape_debug()),
            None => format!("`{}`", name.escape_debug()),
        }
    });
    let quoted: Vec<String> = quoted.collect();
    match names.len() - quoted.len() {
        0 => quoted.join(", "),
        more => format!("{} and {more} more", quoted.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_and_names_are_truncated() {
        let names: Vec<String> = (0..1_000_000).map(|i| format!("c{i}")).collect();
        assert!(quoted(&names).ends_with(", `c11` and 999988 more"));
        assert_eq!(quoted(&names[..2]), "`c0`, `c1`");
        assert_eq!(listed(&names[..13], "; ").split("; ").count(), 12);
        assert!(listed(&names[..13], "; ").ends_with("c11 and 1 more"));
        let long = "é".repeat(1_000_000);
        assert_eq!(quoted(&[long]), format!("`{}…`", "é".repeat(80)));
        assert_eq!(quoted(&[""; 0]), "none");
    }
}
