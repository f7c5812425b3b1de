//! Circles of imports between the top-level modules of a crate.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use super::{
    Finding, below,
    lexer::{Line, lines},
    read, relative,
    sources::without_tests,
};
use crate::error::Error;

const RULE: &str = "modules";

/// The source files of a crate: their paths below `src`, and their text.
pub type Sources = BTreeMap<String, String>;

/// Reads the source files of the crate in a folder.
pub fn sources(folder: &Path) -> Result<Sources, Error> {
    let folder = folder.join("src");
    let files = below(&folder, &|_| true)?.into_iter();
    files
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .map(|path| Ok((relative(&folder, &path), read(&path)?)))
        .collect()
}

/// The names of the modules that each module uses.
type Imports = BTreeMap<String, BTreeSet<String>>;

/// Checks a crate whose root is `root`.
pub fn check(root: &str, sources: &Sources) -> Vec<Finding> {
    let circles = circles(&imports(sources)).into_iter();
    circles
        .map(|circle| {
            let message = format!("these modules use each other: {}", circle.join(", "));
            Finding::new(root, 1, RULE, message)
        })
        .collect()
}

fn imports(sources: &Sources) -> Imports {
    let of_root = ["lib.rs", "main.rs"]
        .iter()
        .find_map(|name| sources.get(*name));
    let root = of_root.map_or_else(String::new, |text| code(text));
    let tops: BTreeSet<String> = sources.keys().filter_map(|file| top(file)).collect();
    // Names that the root exports stand for the module that has them.
    let mut exports = BTreeMap::new();
    for statement in root.split("pub use ").skip(1) {
        let tree = statement.split(';').next().unwrap_or_default();
        for path in expanded(tree) {
            if let [first, .., name] = path.as_slice() {
                exports.insert(name.clone(), first.clone());
            }
        }
    }
    let mut imports = Imports::new();
    for (file, text) in sources {
        let Some(own) = top(file) else { continue };
        let used = imports.entry(own.clone()).or_default();
        for path in absolute(file, &code(text)) {
            let Some(first) = path.first() else { continue };
            let module = tops.get(first).or_else(|| exports.get(first));
            used.extend(module.filter(|module| **module != own).cloned());
        }
    }
    imports
}

/// The circles, each sorted: the modules that reach each other.
fn circles(imports: &Imports) -> Vec<Vec<String>> {
    let reached = |from: &String| {
        let mut seen = BTreeSet::new();
        let mut next = vec![from];
        while let Some(module) = next.pop() {
            for used in imports.get(module).into_iter().flatten() {
                if seen.insert(used.clone()) {
                    next.push(used);
                }
            }
        }
        seen
    };
    let reached: BTreeMap<&String, _> = imports.keys().map(|from| (from, reached(from))).collect();
    let circles = reached.iter().filter_map(|(from, to)| {
        let back = |module: &&String| reached.get(module).is_some_and(|to| to.contains(*from));
        let circle: Vec<String> = to.iter().filter(back).cloned().collect();
        (circle.first() == Some(*from)).then_some(circle)
    });
    circles.filter(|circle| circle.len() > 1).collect()
}

/// The code of a file without its tests, in one line.
fn code(text: &str) -> String {
    let lines = without_tests(&lines(text)).into_iter();
    lines.map(|Line { code, .. }| code + " ").collect()
}

/// The module path of a file below `src`.
fn module(file: &str) -> Vec<String> {
    let path = file.trim_end_matches(".rs").split('/');
    let path = path.filter(|part| !["lib", "main", "mod"].contains(part));
    path.map(str::to_owned).collect()
}

fn top(file: &str) -> Option<String> {
    let path = module(file);
    let is_test = path.iter().any(|name| name == "tests");
    path.into_iter().next().filter(|_| !is_test)
}

/// The paths that begin with `crate` or `super`, from the root of the crate.
fn absolute(file: &str, code: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for (at, start) in code
        .match_indices("crate::")
        .chain(code.match_indices("super::"))
    {
        let before = code[..at].chars().next_back();
        if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':') {
            continue;
        }
        let mut base = module(file);
        let mut tree = &code[at..];
        match start {
            "crate::" => {
                base.clear();
                tree = &tree[start.len()..];
            }
            _ => {
                while let Some(rest) = tree.strip_prefix(start) {
                    base.pop();
                    tree = rest;
                }
            }
        }
        found.extend(expanded(tree).into_iter().map(|path| {
            let whole = base.iter().cloned().chain(path);
            whole.collect()
        }));
    }
    found
}

/// The paths of a tree of imports, such as `a::{b, c::d}`. Text after it is ignored.
fn expanded(tree: &str) -> Vec<Vec<String>> {
    let tree = tree.trim_start();
    if let Some(group) = tree.strip_prefix('{') {
        return parts(group).into_iter().flat_map(expanded).collect();
    }
    let end = tree.find(|c: char| !c.is_alphanumeric() && c != '_');
    let (name, rest) = tree.split_at(end.unwrap_or(tree.len()));
    let further = match rest.strip_prefix("::") {
        Some(rest) => expanded(rest),
        None => Vec::new(),
    };
    match (name, further.is_empty()) {
        ("", _) => Vec::new(),
        (name, true) => vec![vec![name.to_owned()]],
        (name, false) => {
            let prefixed = further.into_iter().map(|path| {
                let whole = std::iter::once(name.to_owned()).chain(path);
                whole.collect()
            });
            prefixed.collect()
        }
    }
}

/// The members of a group, up to its end.
fn parts(group: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => {
                parts.push(&group[start..at]);
                break;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&group[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn circles_are_found_in_whatever_form_they_are_imported() {
        let circle = |a: &str, b: &str| {
            let files = [
                (
                    "lib.rs",
                    "mod a; mod b; mod c;\npub use b::{Thing, d::Other};",
                ),
                ("a.rs", a),
                ("b.rs", b),
                ("c.rs", "use crate::{a, b};"),
            ];
            let files = files.map(|(file, text)| (file.to_owned(), text.to_owned()));
            let found = check("lib.rs", &files.into());
            found.into_iter().map(|it| it.message).collect::<Vec<_>>()
        };
        let both = ["these modules use each other: a, b"];
        assert_eq!(circle("use crate::b::X;", "use crate::a;"), both);
        assert_eq!(
            circle("use crate::{\n c2, b::{X, Y}};", "fn f() { super::a::g() }"),
            both
        );
        assert_eq!(circle("use crate::Thing;", "fn f(x: crate::a::X) {}"), both);
        assert_eq!(circle("use crate::Other;", "use super::{a::{x}};"), both);
        let one_way = "// crate::b\nuse crate::a::x; fn f() { xcrate::b::c(\"crate::b\") }";
        assert!(circle(one_way, "use crate::a;").is_empty());
        let in_tests = "#[cfg(test)]\nmod tests {\n use crate::b;\n}";
        assert!(circle(in_tests, "use crate::a;").is_empty());
    }

    #[test]
    fn a_circle_is_a_finding() {
        let files = [("a.rs", "use crate::b;"), ("b.rs", "use crate::a;")];
        let files: Sources = files
            .map(|(file, text)| (file.to_owned(), text.to_owned()))
            .into();
        let found = check("lib.rs", &files);
        assert_eq!(found[0].message, "these modules use each other: a, b");
        assert!(check("lib.rs", &Sources::new()).is_empty());
    }
}
