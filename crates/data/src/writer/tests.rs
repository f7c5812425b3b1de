//! Shards and masks, written at once and by several processes.

use super::*;

const FOUR: ShardOptions = ShardOptions {
    width: TokenWidth::U16,
    tokens: 4,
    masked: false,
};
const MILLION: ShardOptions = ShardOptions {
    tokens: 1 << 20,
    ..FOUR
};

#[test]
fn masks_are_stored_next_to_shards_and_default_to_targets() {
    let folder = tempfile::tempdir().unwrap();
    let shards = ShardOptions {
        masked: true,
        ..FOUR
    };
    let mut writer = SplitWriter::new(folder.path(), Split::Train, shards);
    let learnt = [false, true, false, true, true];
    writer
        .write(&[1, 2, 3, 4, 5], Some(&learnt), 5, true)
        .unwrap();
    writer.write(&[6], None, 1, true).unwrap();
    let (manifest, _) = writer.finish().unwrap();
    let masks = manifest.shards.iter().map(|shard| {
        let mask = shard.mask.as_ref().unwrap();
        let bytes = std::fs::read(folder.path().join(&mask.file)).unwrap();
        let hash = blake3::hash(&bytes).to_hex().to_string();
        assert_eq!(mask.blake3, hash);
        (mask.file.clone(), mask.learnt, bytes)
    });
    let expected = [
        ("train_00000.mask".to_owned(), 2, vec![2, 1, 0, 1]),
        ("train_00001.mask".to_owned(), 2, vec![1, 3]),
    ];
    assert_eq!(masks.collect::<Vec<_>>(), expected);
}

#[test]
fn resumed_writer_equals_uninterrupted_writer() {
    let ids: Vec<u32> = (0..23).collect();
    let learnt: Vec<bool> = ids.iter().map(|id| id % 3 == 0).collect();
    let shards = ShardOptions {
        masked: true,
        ..FOUR
    };
    let files = |folder: &Path| -> Vec<_> {
        let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
        let read = |path: PathBuf| (path.clone(), std::fs::read(path).unwrap());
        let mut files: Vec<_> = entries.map(|entry| read(entry.path())).collect();
        files.iter_mut().for_each(|(path, _)| {
            *path = path.file_name().unwrap().into();
        });
        files.sort();
        files
    };
    let write = |writer: &mut SplitWriter, range: std::ops::Range<usize>| {
        for at in range {
            let learnt = Some(&learnt[at..at + 1]);
            writer
                .write(&ids[at..at + 1], learnt, 2, at % 5 == 0)
                .unwrap();
        }
    };
    let whole = tempfile::tempdir().unwrap();
    let mut writer = SplitWriter::new(whole.path(), Split::Val, shards);
    write(&mut writer, 0..23);
    let expected = writer.finish().unwrap();
    for at in 0..23 {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = SplitWriter::new(folder.path(), Split::Val, shards);
        write(&mut writer, 0..at);
        let state = writer.state().unwrap();
        // Data written after the saved state is lost, including a new shard.
        write(&mut writer, at..23);
        drop(writer);
        let mut writer = SplitWriter::resume(folder.path(), Split::Val, shards, state).unwrap();
        write(&mut writer, at..23);
        assert_eq!(writer.finish().unwrap(), expected);
        assert_eq!(files(folder.path()), files(whole.path()), "{at}");
    }
}

#[test]
fn resumed_writer_has_the_same_block_hashes() {
    const TOKENS: u64 = 1_200_000;
    let shards = ShardOptions {
        tokens: TOKENS,
        masked: true,
        ..FOUR
    };
    let ids: Vec<u32> = (0..3 * TOKENS as u32 / 2).map(|i| i % 60_000).collect();
    let (first, rest) = ids.split_at(TOKENS as usize + 7);
    let whole = tempfile::tempdir().unwrap();
    let mut writer = SplitWriter::new(whole.path(), Split::Train, shards);
    writer.write(&ids, None, 1, true).unwrap();
    let expected = writer.finish().unwrap();
    for name in ["train_00000.bin", "train_00000.mask"] {
        let blocks = expected.1.of(name).unwrap();
        let bytes = std::fs::read(whole.path().join(name)).unwrap();
        assert!(
            blocks.belong_to(bytes.len() as u64, &blake3::hash(&bytes)),
            "{name}"
        );
    }

    let folder = tempfile::tempdir().unwrap();
    let mut writer = SplitWriter::new(folder.path(), Split::Train, shards);
    writer.write(first, None, 1, true).unwrap();
    let state = writer.state().unwrap();
    drop(writer);
    let resume = || SplitWriter::resume(folder.path(), Split::Train, shards, state.clone());
    let mut writer = resume().unwrap();
    writer.write(rest, None, 0, false).unwrap();
    assert_eq!(writer.finish().unwrap(), expected);

    // A full shard that was changed afterwards.
    let path = folder.path().join("train_00000.bin");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[1_100_000] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let message = resume().err().unwrap().to_string();
    assert!(
        message.ends_with("it has changed since it was written"),
        "{message}"
    );
}

#[test]
fn shards_are_filled_to_the_limit_and_count_document_starts() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = SplitWriter::new(folder.path(), Split::Val, FOUR);
    writer.write(&[1, 2, 3, 4, 5, 6], None, 9, true).unwrap();
    writer.write(&[7], None, 1, false).unwrap();
    writer.write(&[8, 9], None, 2, true).unwrap();
    let (manifest, _) = writer.finish().unwrap();
    assert_eq!(
        (manifest.tokens, manifest.documents, manifest.bytes),
        (9, 2, 12)
    );
    let shards: Vec<_> = manifest
        .shards
        .iter()
        .map(|s| (s.file.as_str(), s.tokens, s.documents))
        .collect();
    // The second document begins with the last token of the second shard.
    assert_eq!(
        shards,
        [
            ("val_00000.bin", 4, 1),
            ("val_00001.bin", 4, 1),
            ("val_00002.bin", 1, 0)
        ]
    );
    let bytes = std::fs::read(folder.path().join("val_00000.bin")).unwrap();
    assert_eq!(
        manifest.shards[0].blake3,
        blake3::hash(&bytes).to_hex().to_string()
    );
}

#[test]
fn split_without_tokens_has_no_shard() {
    let folder = tempfile::tempdir().unwrap();
    let writer = SplitWriter::new(folder.path(), Split::Val, FOUR);
    let (manifest, blocks) = writer.finish().unwrap();
    assert_eq!(manifest, SplitManifest::default());
    assert_eq!(blocks, DatasetBlocks::default());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
#[cfg(target_os = "linux")]
fn full_disk_error_names_the_path() {
    let folder = tempfile::tempdir().unwrap();
    let shard = folder.path().join("train_00000.bin");
    // `/dev/full` acts as a full disk on Linux.
    std::os::unix::fs::symlink("/dev/full", &shard).unwrap();
    let mut writer = SplitWriter::new(folder.path(), Split::Train, MILLION);
    let message = writer
        .write(&vec![1; 1 << 20], None, 1, true)
        .unwrap_err()
        .to_string();
    assert!(
        message.starts_with(&format!("cannot write {}: ", shard.display())),
        "{message}"
    );
    assert!(message.contains("No space left"), "{message}");
}
