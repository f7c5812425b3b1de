//! Tables of requests and their results as text, for review without the code that produces them. Test programs of
//! several crates include this file as a module.
//!
//! A row is one or more lines `$ REQUEST` and the result that each of these requests has, up to an empty line before the
//! next row. Lines that begin with `#` explain the rows below them. In a result, `[..]` matches any text within a line,
//! and a line `...` matches any lines up to one that begins with `--- `. A new row needs its requests only: with
//! `UPDATE_MESSAGES=1` the tests write the results of all rows that differ. Review the diff.

use std::fs;

/// Compares the result of every request in `tests/TABLE.txt` with the table, or rewrites it.
#[track_caller]
pub fn check_table(table: &str, result: impl Fn(&str) -> String) {
    let file = format!("{}/tests/{table}.txt", env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{file}: {error}"));
    let mut blocks: Vec<String> = Vec::new();
    for part in text.trim_end().split("\n\n") {
        match blocks.last_mut() {
            Some(block) if !part.starts_with(['$', '#']) => *block += &format!("\n\n{part}"),
            _ => blocks.push(part.to_owned()),
        }
    }
    let (mut rows, mut wrong) = (0, Vec::new());
    for block in &mut blocks {
        let is_head = |line: &&str| line.starts_with("$ ") || line.starts_with('#');
        let head: Vec<String> = block
            .lines()
            .take_while(is_head)
            .map(str::to_owned)
            .collect();
        let expected: Vec<String> = block.lines().skip(head.len()).map(str::to_owned).collect();
        let (mut found, mut differs) = (String::new(), false);
        for line in &head {
            let Some(request) = line.strip_prefix("$ ") else {
                found += &format!("{line}\n");
                continue;
            };
            rows += 1;
            let own = result(request);
            let own = own.trim_end();
            if !lines_match(&own.lines().collect::<Vec<_>>(), &expected) {
                let expected = expected.join("\n");
                wrong.push(format!("$ {request}\n{own}\nexpected:\n{expected}"));
                differs = true;
            }
            found += &format!("$ {request}\n{own}\n\n");
        }
        if differs {
            *block = found.trim_end().to_owned();
        }
    }
    assert!(rows > 0, "{file} has no rows");
    if std::env::var_os("UPDATE_MESSAGES").is_some() {
        fs::write(&file, blocks.join("\n\n") + "\n").unwrap();
    } else {
        assert!(
            wrong.is_empty(),
            "{file} (see tables.rs):\n{}",
            wrong.join("\n\n")
        );
    }
}

fn lines_match(found: &[&str], expected: &[String]) -> bool {
    match expected.split_first() {
        None => found.is_empty(),
        Some((line, rest)) if line == "..." => {
            let lines = found.iter().take_while(|line| !line.starts_with("--- "));
            (0..=lines.count()).any(|skipped| lines_match(&found[skipped..], rest))
        }
        Some((line, rest)) => found
            .split_first()
            .is_some_and(|(first, others)| line_matches(first, line) && lines_match(others, rest)),
    }
}

fn line_matches(found: &str, expected: &str) -> bool {
    let Some((start, rest)) = expected.split_once("[..]") else {
        return found == expected;
    };
    let Some(found) = found.strip_prefix(start) else {
        return false;
    };
    let ends = found.char_indices().map(|(at, _)| at).chain([found.len()]);
    ends.into_iter().any(|at| line_matches(&found[at..], rest))
}
