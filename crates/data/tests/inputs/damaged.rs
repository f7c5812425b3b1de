//! Damaged containers are always an error with path and reason, regardless of the handling of broken records.

use std::fs;

use emberlm_data::Format;

use super::{Workspace, error_message, fixture, format, read, skip, stop};

#[test]
fn compressed_file_truncated_anywhere_is_rejected() {
    let workspace = Workspace::empty();
    for name in [
        "text.txt.gz",
        "text.zst",
        "minimal.csv.gz",
        "text.txt.bz2",
        "text.txt.xz",
        "members.jsonl.bz2",
    ] {
        let whole = fs::read(fixture(name)).unwrap();
        let options = super::InputOptions {
            field: if name.contains("csv") {
                "the text"
            } else {
                "text"
            }
            .into(),
            ..skip()
        };
        // The first member of a file can be the whole.
        let ends = [
            whole.len(),
            if name.contains("members") {
                whole.len() / 2 + 30
            } else {
                0
            },
        ];
        for length in (4..ends[0]).filter(|length| *length > ends[1]) {
            let path = workspace.file(name, &whole[..length]);
            let message = error_message(&path, &options);
            let reason = message.strip_prefix("cannot decompress FILE: ");
            assert!(reason.is_some_and(|reason| !reason.is_empty()), "{message}");
        }
    }
}

#[test]
fn every_changed_byte_of_a_container_is_detected() {
    let workspace = Workspace::empty();
    let whole = fs::read(fixture("text.txt.gz")).unwrap();
    let text = read(&fixture("text.txt.gz"), &stop()).unwrap().documents;
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        let path = workspace.file("text.txt.gz", &bytes);
        match read(&path, &stop()) {
            // The gzip header's time, flags and system are not covered by the checksum.
            Ok(found) => assert!(at < 10 && found.documents == text, "byte {at}"),
            Err(error) => assert!(error.to_string().contains("text.txt.gz"), "{error}"),
        }
    }
}

#[test]
fn wrong_compression_extension_is_rejected() {
    let workspace = Workspace::empty();
    for (name, kind) in [("page.jsonl.gz", "gzip"), ("a.ZST", "zstd"), ("a.xz", "xz")] {
        let path = workspace.file(name, "<!DOCTYPE html>");
        let message = format!("FILE is an HTML page, not {kind}");
        assert_eq!(error_message(&path, &skip()), message);
        let path = workspace.file(name, [0x81, 0, 1, 2]);
        let message =
            format!("FILE is not usable as {kind}: it does not begin as such a file does");
        assert_eq!(error_message(&path, &skip()), message);
    }
    let path = workspace.file("a.parquet", "<!DOCTYPE html>");
    assert_eq!(
        error_message(&path, &skip()),
        "FILE is an HTML page, not Parquet"
    );
    let path = workspace.file("plain", fs::read(fixture("none.parquet")).unwrap());
    let as_text = error_message(&path, &format(Format::Text));
    assert_eq!(as_text, "FILE is a Parquet file, not text");
}

#[test]
fn parquet_file_truncated_anywhere_is_rejected() {
    let workspace = Workspace::empty();
    let whole = fs::read(fixture("zstd.parquet")).unwrap();
    let footer = whole.len() - 100;
    for length in (1..footer).step_by(11).chain(footer..whole.len()) {
        let path = workspace.file("a.parquet", &whole[..length]);
        let message = error_message(&path, &skip());
        assert!(
            message.starts_with("FILE is not usable as Parquet: "),
            "{message}"
        );
    }
}
