//! Mutations of valid inputs of `prepare`, within limits on time and memory.

use std::fs;
use std::io::Write;
use std::path::Path;

use emberlm_data::{Format, InputOptions, OnError};
use emberlm_fuzz::{bounded, inputs};
use flate2::Compression;
use flate2::write::GzEncoder;

const JSONL: &str = r#"{"text": "one \u00e9\n\ud83d\udd25", "n": 1.5e3}
{"a": [1, {"b": null}], "text": ""}

{"text": "three", "text": "last \"one\"", "c": true}
"#;
const CSV: &str = "id,text,n\n1,\"two\nlines, \"\"quoted\"\"\",x\r\n2,,y\n3,ünï,\n";

fn mutations(count: u64, format: Format, on_error: OnError, seeds: &[&[u8]]) {
    let folder = tempfile::tempdir().unwrap();
    let options = InputOptions {
        format: Some(format),
        on_error,
        ..InputOptions::default()
    };
    let seeds: Vec<(String, Vec<u8>)> = seeds
        .iter()
        .map(|bytes| (format.to_string(), bytes.to_vec()))
        .collect();
    bounded::run(
        &seeds,
        count,
        |_| true,
        |bytes| inputs::input(bytes, &options, folder.path()),
    );
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn json_lines() {
    let zstd = zstd::encode_all(JSONL.as_bytes(), 0).unwrap();
    let seeds = [JSONL.as_bytes(), &gzip(JSONL.as_bytes()), &zstd];
    mutations(1500, Format::Jsonl, OnError::Stop, &seeds);
}

#[test]
fn tables() {
    let seeds = [CSV.as_bytes(), &gzip(CSV.as_bytes())];
    mutations(1500, Format::Csv, OnError::Stop, &seeds);
}

#[test]
fn parquet() {
    let fixtures =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/data/tests/fixtures/inputs");
    let names = [
        "none",
        "snappy",
        "lz4",
        "zstd",
        "brotli",
        "gzip",
        "plain",
        "pages_v2",
        "required",
        "category",
        "delta_byte_array",
        "delta_length_byte_array",
    ];
    let files = names.map(|name| fs::read(fixtures.join(name).with_extension("parquet")).unwrap());
    let seeds = files.each_ref().map(Vec::as_slice);
    // One of the fixtures' records is null.
    mutations(1500, Format::Parquet, OnError::Skip, &seeds);
}
