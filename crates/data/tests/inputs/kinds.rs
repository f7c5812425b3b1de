//! Files of another kind than their format are refused by the name of their kind, also inside of compression.

use std::io::Write;

use emberlm_data::Format;
use flate2::write::GzEncoder;

use super::{Workspace, error_message, format, read, stop};
use crate::tables::check_table;

/// A tar archive of one file.
fn tar() -> Vec<u8> {
    let mut archive = vec![0; 512];
    archive[..5].copy_from_slice(b"a.txt");
    archive[100..107].copy_from_slice(b"0000644");
    archive[124..135].copy_from_slice(b"00000000004");
    archive[148..156].fill(b' ');
    let sum: u32 = archive.iter().map(|&byte| u32::from(byte)).sum();
    archive[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    archive.extend(b"text");
    archive.resize(2048, 0);
    archive
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// The contents of a file as a row lists them.
fn contents(text: &str) -> Vec<u8> {
    match text.split_once(' ') {
        Some(("gzip", text)) => gzip(&contents(text)),
        _ if text == "tar" => tar(),
        _ => {
            let text: String = serde_json::from_str(text).unwrap();
            text.chars()
                .map(|byte| u8::try_from(byte).unwrap())
                .collect()
        }
    }
}

#[test]
fn other_kinds_are_named_whatever_the_file_is_called() {
    let workspace = Workspace::empty();
    check_table("inputs/kinds", |row| {
        let (name, bytes) = row.split_once(' ').unwrap();
        error_message(&workspace.file(name, contents(bytes)), &stop())
    });
}

#[test]
fn texts_about_formats_pages_and_nuls_are_texts() {
    let workspace = Workspace::empty();
    for text in [
        "GGUF files",
        "<!DOCTYPE html><html>",
        "a\0b",
        "PK",
        "<?xml version=\"1.0\"?>",
    ] {
        let path = workspace.file("a.txt", text);
        let documents = read(&path, &stop()).unwrap().documents;
        assert_eq!(documents, [(1, text.to_owned())]);
    }
    let path = workspace.file("a.parquet", "{\"text\": \"a\"}\n");
    assert_eq!(
        error_message(&path, &stop()),
        "FILE is a text file, not Parquet"
    );
    let lines = read(&path, &format(Format::Jsonl)).unwrap().documents;
    assert_eq!(lines, [(1, "a".to_owned())]);
}
