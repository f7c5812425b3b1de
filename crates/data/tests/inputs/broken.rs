//! Records that are not documents: reported with file and position, or counted.

use std::fs;
use std::io::Write;
use std::path::Path;

use emberlm_data::InputOptions;

use super::{Workspace, error_message, field, fixture, read, skip, stop};

/// Extends a file by zeros, which take no disk space, and appends `end`.
fn long_file(path: &Path, zeros: u64, end: &str) {
    let mut file = fs::OpenOptions::new().append(true).open(path).unwrap();
    let bytes = file.metadata().unwrap().len();
    file.set_len(bytes + zeros).unwrap();
    file.write_all(end.as_bytes()).unwrap();
}

const LINES: &[u8] = b"{\"text\": \"first\"}\r
{\"text\": \"cut off
{\"text\": \"\"}
\r
{\"text\": \"\xE9\"}
[\"text\"]
{\"body\": \"x\"}
{\"text\": 5}
{\"text\": \"last\"}";

#[test]
fn first_broken_line_stops_and_is_named() {
    let workspace = Workspace::empty();
    let path = workspace.file("a.jsonl", LINES);
    assert_eq!(
        error_message(&path, &stop()),
        "FILE: line 2, column 17: invalid JSON: EOF while parsing a string; a record is one line"
    );
}

#[test]
fn skipped_lines_are_counted_and_the_first_errors_kept() {
    let workspace = Workspace::empty();
    let path = workspace.file("a.jsonl", LINES);
    let found = read(&path, &skip()).unwrap();
    let documents = [(1, "first".to_owned()), (9, "last".to_owned())];
    assert_eq!(found.documents, documents);
    assert_eq!((found.left_out.broken(), found.left_out.empty()), (5, 1));
    let first = found.left_out.first().iter();
    let first: Vec<String> = first
        .map(|message| message.replace(&path.display().to_string(), "FILE"))
        .collect();
    assert_eq!(
        first,
        [
            "FILE: line 2, column 17: invalid JSON: EOF while parsing a string; a record is one line",
            "FILE: line 5: not UTF-8: byte 11 of the line is invalid",
            "FILE: line 6: it is an array, not an object",
        ]
    );
    assert_eq!(found.bytes, LINES.len() as u64);
}

#[test]
fn missing_field_error_lists_available_fields() {
    let workspace = Workspace::empty();
    let path = workspace.file("a.jsonl", r#"{"content": "x", "id": 7}"#);
    assert_eq!(
        error_message(&path, &stop()),
        "FILE: line 1: no field `text`: it has `content`, `id`"
    );
}

#[test]
fn only_the_line_that_is_too_long_is_skipped() {
    let workspace = Workspace::empty();
    for more in [1, 5000] {
        let path = workspace.file("a.jsonl", "");
        long_file(&path, (64 << 20) + more, "\n{\"text\": \"y\"}\n");
        assert_eq!(
            error_message(&path, &stop()),
            "FILE: line 1: the line is longer than 64 MiB"
        );
        let found = read(&path, &skip()).unwrap();
        assert_eq!(found.documents, [(2, "y".to_owned())]);
    }
}

#[test]
fn rows_with_wrong_field_count_are_broken() {
    let workspace = Workspace::empty();
    for line_break in ["\n", "\r\n"] {
        let rows = [
            "id,text", "1,\"two", "lines\"", "", "2", "3,a,b", "4,x", "5,",
        ];
        let path = workspace.file("a.csv", rows.join(line_break));
        let found = read(&path, &skip()).unwrap();
        let two = format!("two{line_break}lines");
        assert_eq!(found.documents, [(2, two), (7, "x".to_owned())]);
        assert_eq!((found.left_out.broken(), found.left_out.empty()), (2, 1));
        assert_eq!(
            error_message(&path, &stop()),
            "FILE: line 5: 1 field, but the header names 2"
        );
    }
}

#[test]
fn unclosed_quote_is_reported() {
    let workspace = Workspace::empty();
    let path = workspace.file("a.csv", "text\nx\n\"y\n1,2\n3");
    assert_eq!(
        error_message(&path, &stop()),
        "FILE: line 3: a quote is not closed before the file ends: all lines from here on would be one record"
    );
    let found = read(&path, &skip()).unwrap();
    assert_eq!(found.documents, [(2, "x".to_owned())]);
    assert_eq!(found.left_out.broken(), 1);
    // A quote that is closed at the end of the file is valid.
    let path = workspace.file("b.csv", "text\n\"y\"");
    assert_eq!(
        read(&path, &stop()).unwrap().documents,
        [(2, "y".to_owned())]
    );
    let path = workspace.file("c.csv", "\"text");
    assert!(error_message(&path, &skip()).contains("line 1: a quote is not closed"));
}

#[test]
fn record_without_end_is_rejected() {
    let workspace = Workspace::empty();
    let path = workspace.file("a.tsv", "text\n\"");
    long_file(&path, 65 << 20, "");
    assert!(
        error_message(&path, &skip()).starts_with("FILE: line 2: the record has more than 64 MiB")
    );
    let path = workspace.file("b.tsv", "\t".repeat(200_000));
    assert!(error_message(&path, &skip()).contains("65,536 fields"));
}

#[test]
fn invalid_utf8_is_a_broken_record() {
    let workspace = Workspace::empty();
    let path = workspace.file("a.csv", b"text,id\nx,1\n\xFF,2\ny,\xFF\n");
    let found = read(&path, &skip()).unwrap();
    // Other columns need not be valid text.
    let documents = [(2, "x".to_owned()), (4, "y".to_owned())];
    assert_eq!(found.documents, documents);
    assert_eq!(
        found.left_out.first()[0].replace(&path.display().to_string(), "FILE"),
        "FILE: line 3: not UTF-8: byte 1 of the field is invalid"
    );
}

#[test]
fn missing_column_error_lists_available_columns() {
    let workspace = Workspace::empty();
    let path = workspace.file("a.csv", "id,body\n1,x\n");
    let skip = InputOptions {
        field: "text".into(),
        ..skip()
    };
    assert_eq!(
        error_message(&path, &skip),
        "FILE has no text column `text`: it has `id`, `body`"
    );
    assert_eq!(
        error_message(&fixture("snappy.parquet"), &field("id")),
        "FILE has no text column `id`: it has `text`"
    );
    assert_eq!(
        error_message(&fixture("nested.parquet"), &field("body")),
        "FILE has no text column `body`: it has `meta.body`"
    );
    let blank = workspace.file("b.csv", "\n\r\n");
    assert_eq!(
        error_message(&blank, &stop()),
        "FILE is not usable as csv: it has no header line"
    );
}
