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
    let mut findings = too_long(file, text);
    findings.extend(unsafe_code(file, &lines));
    findings.extend(family_named(file, &lines, families));
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

fn too_long(file: &str, text: &str) -> Vec<Finding> {
    let count = text.lines().count();
    if !in_crate_source(file) || count <= LONGEST {
        return Vec::new();
    }
    vec![Finding {
        file: file.to_owned(),
        line: LONGEST + 1,
        rule: "length",
        message: format!(
            "a file holds one concept in at most {LONGEST} lines; this one has {count}"
        ),
    }]
}

fn unsafe_code(file: &str, lines: &[Line]) -> Vec<Finding> {
    if file.starts_with(UNSAFE_HOME) {
        return Vec::new();
    }
    let broken = |line: &Line| words(&line.code).any(|word| word == "unsafe");
    let message = format!("unsafe code lives only in {UNSAFE_HOME}");
    found(file, lines, "unsafe", broken, |_| message.clone())
}

/// Refuses names of families outside their folder. Families differ in data only, so no other code may depend on
/// one.
fn family_named(file: &str, lines: &[Line], families: &[String]) -> Vec<Finding> {
    let exempt = [FAMILIES, PRESETS, ARCHITECTURES]
        .iter()
        .any(|place| file.starts_with(place));
    if exempt || !in_crate_source(file) || file.ends_with("/tests.rs") {
        return Vec::new();
    }
    let literals = !NAMES_OF_OTHER_THINGS
        .iter()
        .any(|place| file.starts_with(place));
    let name = |line: &Line| {
        let literal = line
            .strings
            .iter()
            .find(|text| literals && families.contains(text))
            .cloned();
        literal.or_else(|| family_path(&line.code, families))
    };
    let shipped = without_tests(lines);
    found(
        file,
        &shipped,
        "families",
        |line| name(line).is_some(),
        |line| {
            let name = name(line).unwrap_or_default();
            format!("no family is named outside {FAMILIES} and {PRESETS}; this line names `{name}`")
        },
    )
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
fn without_tests(lines: &[Line]) -> Vec<Line> {
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

fn found(
    file: &str,
    lines: &[Line],
    rule: &'static str,
    broken: impl Fn(&Line) -> bool,
    message: impl Fn(&Line) -> String,
) -> Vec<Finding> {
    let numbered = lines.iter().enumerate().filter(|(_, line)| broken(line));
    numbered
        .map(|(at, line)| Finding {
            file: file.to_owned(),
            line: at + 1,
            rule,
            message: message(line),
        })
        .collect()
}

fn words(code: &str) -> impl Iterator<Item = &str> {
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

    fn rules(file: &str, text: &str) -> Vec<(usize, &'static str)> {
        let families = ["pocket".to_owned(), "gpt2".to_owned()];
        check(file, text, &families)
            .into_iter()
            .map(|finding| (finding.line, finding.rule))
            .collect()
    }

    #[test]
    fn unsafe_code_is_found_outside_the_kernels() {
        let text =
            "// unsafe in a comment\n#![deny(unsafe_code)]\nlet x = unsafe { y(\"unsafe\") };";
        assert_eq!(rules("crates/data/src/shard.rs", text), [(3, "unsafe")]);
        assert_eq!(rules("crates/kernels/tests/simd.rs", text), [(3, "unsafe")]);
        assert!(rules("crates/kernels/src/flex/simd.rs", text).is_empty());
    }

    #[test]
    fn a_long_file_is_found() {
        assert!(rules("crates/data/src/a.rs", &"\n".repeat(450)).is_empty());
        assert_eq!(
            rules("crates/data/src/a.rs", &"\n".repeat(451)),
            [(451, "length")]
        );
        assert!(rules("crates/data/tests/a.rs", &"\n".repeat(451)).is_empty());
    }

    #[test]
    fn a_family_is_found_as_a_literal_a_variant_and_a_module() {
        let file = "crates/trainer/src/run.rs";
        assert_eq!(
            rules(file, "fn a() {}\nif name == \"gpt2\" {"),
            [(2, "families")]
        );
        assert_eq!(
            rules(file, "match f { Family::Pocket => 1 }"),
            [(1, "families")]
        );
        assert_eq!(
            rules(file, "use crate::families::pocket;"),
            [(1, "families")]
        );
        assert!(
            rules(
                file,
                "Family::ALL; Family::from_name(x); \"a gpt2 model\" // Family::Pocket"
            )
            .is_empty()
        );
    }

    #[test]
    fn presets_tokenizers_and_tests_may_use_the_names() {
        assert!(rules("crates/tokenizer/src/kind.rs", "\"gpt2\"").is_empty());
        assert!(rules("crates/trainer/src/config/presets.rs", "Family::Pocket").is_empty());
        assert!(rules("crates/model/src/families/gpt2.rs", "\"gpt2\"").is_empty());
        assert!(rules("crates/model/tests/parity.rs", "\"gpt2\"").is_empty());
        let inline = "#[cfg(test)]\nmod tests {\n fn a() { \"gpt2\" }\n}\n\"pocket\"";
        assert_eq!(
            rules("crates/model/src/count.rs", inline),
            [(5, "families")]
        );
        let apart = "#[cfg(test)]\nmod tests;\nmod b { \"pocket\" }";
        assert_eq!(rules("crates/model/src/lib.rs", apart), [(3, "families")]);
    }
}
