//! Feeds arbitrary bytes to the input readers of `prepare`, which must return documents or an error.

use std::fs;
use std::path::Path;

use emberlm_data::{DataError, Input, InputOptions, OnError};

/// Reads `bytes` as an input. Returns true if all of it can be read.
pub fn input(bytes: &[u8], options: &InputOptions, folder: &Path) -> bool {
    let path = folder.join("input");
    write(&path, bytes);
    let read = |on_error| {
        let options = InputOptions {
            on_error,
            ..options.clone()
        };
        read(&path, &options)
    };
    let (stopped, skipped) = (read(OnError::Stop), read(OnError::Skip));
    for result in [&stopped, &skipped] {
        if let Err(error) = result {
            assert!(error.to_string().contains("input"));
        }
    }
    if let Ok((documents, broken)) = &stopped {
        assert_eq!(*broken, 0);
        assert_eq!(skipped.as_ref().ok(), Some(&(documents.clone(), 0)));
    }
    match options.on_error {
        OnError::Stop => stopped.is_ok(),
        OnError::Skip => skipped.is_ok(),
    }
}

/// Returns the record numbers of the documents, and the number of skipped invalid ones.
fn read(path: &Path, options: &InputOptions) -> Result<(Vec<u64>, u64), DataError> {
    let input = Input::detect(path, path, options)?;
    let mut pieces = input.open(options, None)?;
    let mut records = Vec::new();
    while let Some(piece) = pieces.next_piece()? {
        assert!(!piece.text.is_empty());
        if piece.begins {
            assert!(records.last().is_none_or(|last| *last < piece.record));
            records.push(piece.record);
        }
    }
    assert_eq!(pieces.bytes_read(), input.bytes);
    Ok((records, pieces.skipped()))
}

fn write(path: &Path, bytes: &[u8]) {
    if let Err(error) = fs::write(path, bytes) {
        panic!("{}: {error}", path.display());
    }
}
