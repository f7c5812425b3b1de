//! Reads what the writer writes, files of every version, split models, and damaged files.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};

use emberlm_gguf::{Array, GgufFile, GgufHeader, TensorType, Value, read_header};

/// A header with a value of every type.
fn every_type() -> GgufHeader {
    let mut header = GgufHeader::new();
    let values = [
        Value::U8(200),
        Value::I8(-3),
        Value::U16(60_000),
        Value::I16(-300),
        Value::U32(4_000_000_000),
        Value::I32(-70_000),
        Value::F32(0.1),
        Value::Bool(true),
        Value::String("ein Wort, λ".to_owned()),
        Value::U64(1 << 40),
        Value::I64(-(1 << 40)),
        Value::F64(0.1),
        Value::Array(Array::U8(vec![1, 2])),
        Value::Array(Array::I8(vec![-1, 2])),
        Value::Array(Array::U16(vec![500])),
        Value::Array(Array::I16(vec![-500])),
        Value::Array(Array::U32(vec![70_000])),
        Value::Array(Array::I32(vec![-70_000])),
        Value::Array(Array::F32(vec![1.5, -2.5])),
        Value::Array(Array::Bool(vec![true, false])),
        Value::Array(Array::String(vec![String::new(), "a b".to_owned()])),
        Value::Array(Array::U64(vec![u64::MAX])),
        Value::Array(Array::I64(vec![i64::MIN])),
        Value::Array(Array::F64(Vec::new())),
    ];
    for (at, value) in values.into_iter().enumerate() {
        header.insert(format!("test.{at}"), value);
    }
    header
}

fn bytes_of(header: GgufHeader, data: &[&[u8]]) -> Vec<u8> {
    let mut writer = header.write_to(Vec::new()).unwrap();
    data.iter().for_each(|bytes| writer.write(bytes).unwrap());
    writer.finish().unwrap()
}

/// A file with metadata and three tensors.
fn sample() -> Vec<u8> {
    let mut header = every_type();
    header
        .add_tensor("matrix", &[2, 32], TensorType::Q8_0)
        .unwrap();
    header.add_tensor("vector", &[3], TensorType::F32).unwrap();
    header.add_tensor("scalar", &[], TensorType::F16).unwrap();
    let matrix: Vec<u8> = (0..68).collect();
    let (first, rest) = matrix.split_at(5);
    bytes_of(header, &[first, rest, &[7; 12], &[9; 2]])
}

fn written(folder: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn every_type_of_value_is_read_as_written() {
    let header = every_type();
    let bytes = bytes_of(header.clone(), &[]);
    let read = read_header(&bytes).unwrap();
    let again = {
        let mut header = GgufHeader::new();
        for (key, value) in read.metadata.iter() {
            header.insert(key, value.clone());
        }
        bytes_of(header, &[])
    };
    assert_eq!(read.metadata.iter().len(), 24);
    assert_eq!(again, bytes);
    let metadata = read.metadata;
    assert_eq!(metadata.count("test.4").unwrap(), Some(4_000_000_000));
    // A number in single precision is the decimal number that it was written for.
    assert_eq!(metadata.number("test.6").unwrap(), Some(0.1));
    assert_eq!(metadata.text("test.8").unwrap(), Some("ein Wort, λ"));
    let texts = metadata.texts("test.20").unwrap().unwrap();
    assert_eq!(texts, ["", "a b"]);
    assert_eq!(
        metadata.count("test.1").unwrap_err().to_string(),
        "metadata `test.1` = -3: must be a whole number of at least 0"
    );
    assert_eq!(metadata.count("absent").unwrap(), None);
}

#[test]
fn tensors_are_read_by_rows() {
    let folder = tempfile::tempdir().unwrap();
    let file = GgufFile::open(&written(folder.path(), "m.gguf", &sample())).unwrap();
    let matrix = file.tensor("matrix").unwrap();
    assert_eq!((matrix.rows(), matrix.columns()), (2, 32));
    let mut runs = Vec::new();
    file.read_rows(matrix, 1..2, 8, &mut |rows, bytes| {
        runs.push((rows, bytes.to_vec()));
    })
    .unwrap();
    assert_eq!(runs, [(1..2, (34..68).collect::<Vec<u8>>())]);
    let vector = file.tensor("vector").unwrap();
    let mut all = Vec::new();
    let rows = 0..vector.rows();
    file.read_rows(vector, rows, 2, &mut |_, bytes| all.extend(bytes.to_vec()))
        .unwrap();
    assert_eq!(all, [7; 12]);
    assert!(file.read_rows(vector, 0..4, 2, &mut |_, _| {}).is_err());
    assert_eq!(file.tensor("scalar").unwrap().bytes(), 2);
}

/// Writes a file of version 1, whose lengths have 32 bits, with one string and one tensor.
fn version_1() -> Vec<u8> {
    let mut bytes = b"GGUF".to_vec();
    let mut put = |number: u32| bytes.extend(number.to_le_bytes());
    [1, 1, 1, 3].into_iter().for_each(&mut put);
    bytes.extend(b"key");
    [8_u32, 5]
        .iter()
        .for_each(|n| bytes.extend(n.to_le_bytes()));
    bytes.extend(b"value");
    [6_u32].iter().for_each(|n| bytes.extend(n.to_le_bytes()));
    bytes.extend(b"tensor");
    [1_u32, 2, 0]
        .iter()
        .for_each(|n| bytes.extend(n.to_le_bytes()));
    bytes.extend(0_u64.to_le_bytes());
    bytes.resize(bytes.len().next_multiple_of(32) + 8, 0);
    bytes
}

#[test]
fn all_versions_are_read() {
    let mut bytes = sample();
    let third = read_header(&bytes).unwrap();
    bytes[4] = 2;
    assert_eq!(read_header(&bytes).unwrap(), third);
    let first = read_header(&version_1()).unwrap();
    assert_eq!(first.metadata.text("key").unwrap(), Some("value"));
    assert_eq!(first.tensors[0].shape, [2]);
    for (version, reason) in [
        ([4, 0, 0, 0], "its version 4 is not 1 to 3"),
        (
            [0, 0, 0, 3],
            "its numbers are big-endian, which is not supported",
        ),
    ] {
        bytes[4..8].copy_from_slice(&version);
        assert_eq!(read_header(&bytes).unwrap_err(), reason);
    }
}

#[test]
fn truncated_and_flipped_files_are_errors_or_read() {
    let bytes = sample();
    for len in 0..bytes.len() - 30 {
        let reason = read_header(&bytes[..len]).unwrap_err();
        assert!(!reason.is_empty(), "{len}");
    }
    for at in 0..bytes.len() {
        for bit in [1, 16, 128, 255] {
            let mut flipped = bytes.clone();
            flipped[at] ^= bit;
            // It must return; a flipped number in the data or in a value is not an error.
            let _ = read_header(&flipped);
        }
    }
}

#[test]
fn declared_lengths_cost_no_memory() {
    // Each is followed by nothing.
    let with = |key: &str, kind: u32, rest: &[u8]| {
        let mut bytes = b"GGUF".to_vec();
        bytes.extend(3_u32.to_le_bytes());
        bytes.extend(0_u64.to_le_bytes());
        bytes.extend(1_u64.to_le_bytes());
        bytes.extend((key.len() as u64).to_le_bytes());
        bytes.extend(key.as_bytes());
        bytes.extend(kind.to_le_bytes());
        bytes.extend(rest);
        read_header(&bytes).unwrap_err()
    };
    let list = |kind: u32, count: u64| [&kind.to_le_bytes()[..], &count.to_le_bytes()].concat();
    assert_eq!(
        with("a", 8, &u64::MAX.to_le_bytes()),
        "metadata `a`: the length of a string is 18446744073709551615; the limit is 67108864"
    );
    assert_eq!(
        with("a", 9, &list(8, 1 << 25)),
        "metadata `a`: it ends within its header, after 49 bytes"
    );
    assert_eq!(
        with("a", 9, &list(4, 1 << 40)),
        "metadata `a`: the number of elements is 1099511627776; the limit is 33554432"
    );
    assert_eq!(
        with("a", 9, &list(9, 1)),
        "metadata `a`: lists of lists are not supported"
    );
    assert_eq!(
        with("a", 13, &[]),
        "metadata `a`: its type is number 13, which is unknown"
    );
    let mut bytes = b"GGUF".to_vec();
    bytes.extend(3_u32.to_le_bytes());
    bytes.extend(u64::MAX.to_le_bytes());
    bytes.extend(0_u64.to_le_bytes());
    assert_eq!(
        read_header(&bytes).unwrap_err(),
        "the number of tensors is 18446744073709551615; the limit is 1048576"
    );
}

#[test]
fn tensors_outside_of_the_file_are_refused() {
    let mut header = GgufHeader::new();
    header.add_tensor("t", &[64], TensorType::F32).unwrap();
    let bytes = bytes_of(header, &[&[0; 256]]);
    let reason = read_header(&bytes[..bytes.len() - 1]).unwrap_err();
    assert!(
        reason.starts_with("tensor `t` of 256 bytes at ") && reason.contains("ends behind"),
        "{reason}"
    );
    // Behind the name are the number of sizes and the size.
    let place = bytes.windows(1).position(|byte| byte == b"t").unwrap() + 1 + 4 + 8;
    let mut typed = bytes.clone();
    typed[place] = 23;
    assert!(
        read_header(&typed)
            .unwrap_err()
            .starts_with("tensor `t`: its type IQ4_XS is not supported")
    );
    typed[place] = TensorType::Q4K.id() as u8;
    assert_eq!(
        read_header(&typed).unwrap_err(),
        "tensor `t`: its rows have 64 elements, which must be a multiple of the 256 of a block of Q4_K"
    );
    typed[place] = 0;
    typed[place + 4] = 1;
    assert_eq!(
        read_header(&typed).unwrap_err(),
        "tensor `t`: its offset 1 must be a multiple of the alignment 32"
    );
}

/// Writes file `index` of a model of `count` files.
fn part(folder: &Path, [index, count]: [u16; 2], tensor: &str) -> PathBuf {
    let mut header = GgufHeader::new();
    header.insert("split.no", Value::U16(index));
    header.insert("split.count", Value::U16(count));
    header.add_tensor(tensor, &[1], TensorType::F32).unwrap();
    let bytes = bytes_of(header, &[&[index as u8; 4]]);
    let name = format!("m-{:05}-of-{count:05}.gguf", index + 1);
    written(folder, &name, &bytes)
}

#[test]
fn split_models_are_opened_by_their_first_file() {
    let folder = tempfile::tempdir().unwrap();
    let first = part(folder.path(), [0, 2], "a");
    let missing = GgufFile::open(&first).unwrap_err().to_string();
    assert!(
        missing.ends_with("m-00002-of-00002.gguf: it is file 2 of 2, which is not there"),
        "{missing}"
    );
    let second = part(folder.path(), [1, 2], "b");
    let file = GgufFile::open(&first).unwrap();
    let names: Vec<&str> = file.tensors().map(|tensor| tensor.name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    let mut read = Vec::new();
    file.read_rows(file.tensor("b").unwrap(), 0..1, 1, &mut |_, bytes| {
        read = bytes.to_vec();
    })
    .unwrap();
    assert_eq!(read, [1; 4]);
    let error = |path: &Path| GgufFile::open(path).unwrap_err().to_string();
    assert!(
        error(&second).ends_with("it is not the first file of a split model: give the first one")
    );
    part(folder.path(), [1, 2], "a");
    assert!(error(&first).ends_with("tensor `a` is also in another file"));
    fs::copy(&first, &second).unwrap();
    assert!(error(&first).ends_with("its metadata must say that it is file 2 of 2"));
    let renamed = folder.path().join("renamed.gguf");
    fs::copy(&first, &renamed).unwrap();
    assert!(error(&renamed).ends_with("must be named NAME-00001-of-00002.gguf"));
}

#[test]
fn files_that_are_not_gguf_are_refused_with_their_path() {
    let folder = tempfile::tempdir().unwrap();
    for (bytes, reason) in [
        (&b""[..], "it is empty"),
        (b"GG", "it ends within its header, after 2 bytes"),
        (b"{\"a\": 1}", "it is a text file"),
    ] {
        let path = written(folder.path(), "m.gguf", bytes);
        let expected = format!("{} is not a complete GGUF file: {reason}", path.display());
        assert_eq!(GgufFile::open(&path).unwrap_err().to_string(), expected);
    }
    assert!(GgufFile::open(folder.path()).is_err());
}

#[test]
fn the_writer_checks_tensors() {
    let mut header = GgufHeader::new();
    header.add_tensor("a", &[2], TensorType::F32).unwrap();
    let error = |found: Result<(), emberlm_gguf::GgufError>| found.unwrap_err().to_string();
    assert_eq!(
        error(header.add_tensor("a", &[2], TensorType::F32)),
        "tensor `a`: it was added before"
    );
    assert_eq!(
        error(header.add_tensor("b", &[2, 0], TensorType::F32)),
        "tensor `b`: its shape is [2, 0]; must have at most 4 sizes of at least 1"
    );
    assert!(
        error(header.add_tensor("b", &[31], TensorType::Q8_0)).contains("a multiple of the 32")
    );
    let mut writer = header.write_to(Vec::new()).unwrap();
    assert!(writer.write(&[0; 9]).is_err());
    writer.write(&[0; 4]).unwrap();
    let error = writer.finish().unwrap_err().to_string();
    assert_eq!(error, "0 of 1 tensors were written");
}
