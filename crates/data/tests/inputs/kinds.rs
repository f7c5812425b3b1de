//! Files of another kind than their format are refused by the name of their kind, also inside of compression.

use std::io::Write;

use emberlm_data::Format;
use flate2::write::GzEncoder;

use super::{Workspace, error_message, format, read, stop};

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

const POINTER: &[u8] = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n";

#[test]
fn other_kinds_are_named_whatever_the_file_is_called() {
    let workspace = Workspace::empty();
    let pointer = "a Git LFS pointer (the file itself was not downloaded)";
    for (name, bytes, kind) in [
        ("a.tar", tar(), "a tar archive"),
        ("a.txt", tar(), "a tar archive"),
        ("a.tar.gz", gzip(&tar()), "a tar archive inside gzip"),
        ("a.tgz", gzip(&tar()), "a tar archive inside gzip"),
        (
            "a.txt.gz",
            gzip(&gzip(b"text")),
            "a file compressed with gzip inside gzip",
        ),
        ("a.zip", b"PK\x03\x04\x14\0\0\0".to_vec(), "a ZIP archive"),
        (
            "a.arrow",
            b"ARROW1\0\0\xFF\xFF\xFF\xFF".to_vec(),
            "an Arrow IPC (Feather) file",
        ),
        ("a.7z", b"7z\xBC\xAF\x27\x1C\0\x04".to_vec(), "a 7z archive"),
        ("a.txt", POINTER.to_vec(), pointer),
        ("a.jsonl", POINTER.to_vec(), pointer),
        ("a.parquet", POINTER.to_vec(), pointer),
        ("a.csv", b"<!doctype html><html>".to_vec(), "an HTML page"),
        ("a.pdf", b"%PDF-1.4\n%\xE2\xE3\n".to_vec(), "a PDF document"),
        (
            "a.txt",
            b"h\0e\0l\0l\0o\0 \0".to_vec(),
            "UTF-16 (little-endian) text",
        ),
        (
            "a.csv",
            b"\0t\0e\0x\0t\0\n\0a".to_vec(),
            "UTF-16 (big-endian) text",
        ),
        (
            "a.txt",
            b"\xFF\xFE\0\0a\0\0\0b\0\0\0".to_vec(),
            "UTF-32 (little-endian) text",
        ),
        ("a.txt", b"GGUF\x03\0\0\0\0\0\0\0".to_vec(), "a GGUF file"),
        (
            "a.lz4",
            b"\x04\x22\x4D\x18\x40\0".to_vec(),
            "a file compressed with LZ4",
        ),
    ] {
        let path = workspace.file(name, bytes);
        let expected = match Format::of_name(&path) {
            Format::Jsonl => "JSON Lines",
            Format::Csv => "CSV",
            Format::Parquet => "Parquet",
            _ => "text",
        };
        let message = error_message(&path, &stop());
        assert_eq!(message, format!("FILE is {kind}, not {expected}"), "{name}");
    }
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
