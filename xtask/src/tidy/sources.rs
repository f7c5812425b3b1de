//! The rules for single source files.

use std::path::Path;

use super::{
    Finding, entries,
    lexer::{Line, lines},
};
use crate::error::Error;

const LONGEST: usize = 450;
const UNSAFE_HOME: &str = "crates/kernels/src/";
const FAMILIES: &str = "crates/model/src/families/";
/// Folders in which a string such as "gpt2" can be the name of a tokenizer or a preset.
const NAMES_OF_OTHER_THINGS: [&str; 4] = [
    "crates/tokenizer/",
    "crates/data/",
    "crates/cli/",
    "crates/bench/",
];
/// The table of training presets, by name.
const PRESETS: &str = "crates/trainer/src/config/presets.rs";
/// The tables of the architectures of GGUF files, by name.
const ARCHITECTURES: &str = "crates/model/src/gguf/";

/// Checks one Rust file.
pub fn check(file: &str, text: &str, families: &[String]) -> Vec<Finding> {
    let lines = lines(text);
    let mut findings = Vec::new();
    let count = text.lines().count();
    if in_crate_source(file) && count > LONGEST {
        let message =
            format!("a file holds one concept in at most {LONGEST} lines; this one has {count}");
        findings.push(Finding::new(file, LONGEST + 1, "length", message));
    }
    for (number, line) in (1..).zip(&lines) {
        if !file.starts_with(UNSAFE_HOME) && words(&line.code).any(|word| word == "unsafe") {
            let message = format!("unsafe code lives only in {UNSAFE_HOME}");
            findings.push(Finding::new(file, number, "unsafe", message));
        }
    }
    let exempt = [FAMILIES, PRESETS, ARCHITECTURES];
    let is_exempt = exempt.iter().any(|place| file.starts_with(place));
    if is_exempt || !in_crate_source(file) || file.ends_with("/tests.rs") {
        return findings;
    }
    for (number, line) in (1..).zip(without_tests(&lines)) {
        if let Some(name) = family_named(file, &line, families) {
            let message = format!(
                "no family is named outside {FAMILIES} and {PRESETS}; this line names `{name}`"
            );
            findings.push(Finding::new(file, number, "families", message));
        }
    }
    findings
}

/// The names of the families, from the files of `model/src/families/`, so that the list cannot be stale.
pub fn family_names(root: &Path) -> Result<Vec<String>, Error> {
    let folder = root.join(FAMILIES);
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let stems = entries(&folder)?
        .into_iter()
        .filter_map(|path| path.file_stem()?.to_str().map(str::to_owned));
    Ok(stems.filter(|stem| stem != "mod").collect())
}

/// The name of a family in a line. Families differ in data only, so no other code may depend on one.
fn family_named(file: &str, line: &Line, families: &[String]) -> Option<String> {
    let mut others = NAMES_OF_OTHER_THINGS.iter();
    let literals = !others.any(|place| file.starts_with(place));
    let mut strings = line.strings.iter();
    let literal = strings.find(|text| literals && families.contains(text));
    literal
        .cloned()
        .or_else(|| family_path(&line.code, families))
}

/// Finds a variant such as `Family::Pocket`, or a module such as `families::pocket`. `Family::ALL` is allowed.
fn family_path(code: &str, families: &[String]) -> Option<String> {
    let segments: Vec<&str> = code.split("::").collect();
    segments.windows(2).find_map(|pair| {
        let [before, after] = pair else { return None };
        let (owner, name) = (words(before).last()?, words(after).next()?);
        let variant = owner == "Family"
            && name.starts_with(char::is_uppercase)
            && name.contains(char::is_lowercase);
        let module = owner == "families" && families.iter().any(|family| family == name);
        (variant || module).then(|| format!("{owner}::{name}"))
    })
}

/// Blanks code under `#[cfg(test)]`, but keeps the line numbers.
pub(super) fn without_tests(lines: &[Line]) -> Vec<Line> {
    let mut kept = Vec::with_capacity(lines.len());
    let (mut waiting, mut depth) = (false, 0_usize);
    for line in lines {
        let test_attribute = line.code.contains("#[cfg(test)]");
        let inside = waiting || test_attribute || depth > 0;
        kept.push(if inside {
            Line::default()
        } else {
            line.clone()
        });
        if inside {
            depth = (depth + line.code.matches('{').count())
                .saturating_sub(line.code.matches('}').count());
            let item = line.code.contains(['{', ';']);
            waiting = (waiting || test_attribute) && !item;
        }
    }
    kept
}

pub(super) fn words(code: &str) -> impl Iterator<Item = &str> {
    code.split(|next: char| !next.is_alphanumeric() && next != '_')
        .filter(|word| !word.is_empty())
}

fn in_crate_source(file: &str) -> bool {
    let mut parts = file.split('/');
    parts.next() == Some("crates") && parts.nth(1) == Some("src")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn violations_are_found_in_the_files_that_a_rule_covers() {
        let run = "crates/trainer/src/run.rs";
        let unsafe_code =
            "// unsafe in a comment\n#![deny(unsafe_code)]\nlet x = unsafe { y(\"unsafe\") };";
        let long = "\n".repeat(451);
        let allowed = "Family::ALL; Family::from_name(x); \"a gpt2 model\" // Family::Pocket";
        let tests_inside = "#[cfg(test)]\nmod tests {\n fn a() { \"gpt2\" }\n}\n\"pocket\"";
        let tests_apart = "#[cfg(test)]\nmod tests;\nmod b { \"pocket\" }";
        let family = |line| Some((line, "families"));
        for (file, text, expected) in [
            ("crates/data/src/shard.rs", unsafe_code, Some((3, "unsafe"))),
            (
                "crates/kernels/tests/simd.rs",
                unsafe_code,
                Some((3, "unsafe")),
            ),
            ("crates/kernels/src/flex/simd.rs", unsafe_code, None),
            ("crates/data/src/a.rs", &long, Some((451, "length"))),
            ("crates/data/src/a.rs", &long[1..], None),
            ("crates/data/tests/a.rs", &long, None),
            (run, "fn a() {}\nif name == \"gpt2\" {", family(2)),
            (run, "match f { Family::Pocket => 1 }", family(1)),
            (run, "use crate::families::pocket;", family(1)),
            (run, allowed, None),
            (
                "crates/model/src/transformer/count.rs",
                tests_inside,
                family(5),
            ),
            ("crates/model/src/lib.rs", tests_apart, family(3)),
            // Presets, tokenizers and tests may use the names.
            ("crates/tokenizer/src/kind.rs", "\"gpt2\"", None),
            (
                "crates/trainer/src/config/presets.rs",
                "Family::Pocket",
                None,
            ),
            ("crates/model/src/families/gpt2.rs", "\"gpt2\"", None),
            ("crates/model/tests/parity.rs", "\"gpt2\"", None),
        ] {
            let families = ["pocket".to_owned(), "gpt2".to_owned()];
            let found = check(file, text, &families).into_iter();
            let found: Vec<_> = found.map(|finding| (finding.line, finding.rule)).collect();
            assert_eq!(found, Vec::from_iter(expected), "{file}: {text}");
        }
    }
}
