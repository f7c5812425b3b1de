//! Feeds arbitrary bytes to the readers of a dataset's files, which must return the contents or an error that
//! names the file.

use std::fs;
use std::path::Path;

use emberlm_data::{Dataset, Manifest, Mask, Shard, ShardLayout, Split, verify};

/// Reads `bytes` as a shard of either layout and as a mask of four tokens. Returns true if they are a shard
/// with a header.
pub fn shard(bytes: &[u8], folder: &Path) -> bool {
    let path = folder.join("shard.bin");
    write(&path, bytes);
    let mut is_shard = false;
    for layout in [ShardLayout::LlmC, ShardLayout::Headerless] {
        match Shard::open_as(&path, layout) {
            Ok(shard) => {
                let mut ids = Vec::new();
                assert!(shard.read_into(0, shard.len(), &mut ids).is_ok());
                assert!(shard.read_into(shard.len(), 1, &mut ids).is_err());
                assert_eq!(ids.len() as u64, shard.len());
                is_shard |= layout == ShardLayout::LlmC;
            }
            Err(error) => assert!(error.to_string().contains("shard.bin")),
        }
    }
    if let Ok(mask) = Mask::open(&path, 4) {
        let mut learnt = Vec::new();
        let read = mask.read_into(0, 4, &mut learnt);
        assert_eq!(read.is_ok(), bytes.iter().all(|&byte| byte < 2));
    }
    is_shard
}

/// Reads `bytes` as the manifest of a folder with shards. Returns true if they are valid.
pub fn manifest(bytes: &[u8], folder: &Path) -> bool {
    write(&folder.join("dataset.json"), bytes);
    let manifest = match Manifest::read(folder) {
        Ok(manifest) => manifest,
        Err(error) => {
            assert!(error.to_string().contains("dataset.json"));
            return false;
        }
    };
    let again = serde_json::to_string(&manifest).ok();
    assert_eq!(
        again.and_then(|text| serde_json::from_str(&text).ok()),
        Some(manifest)
    );
    let Ok(dataset) = Dataset::open(folder) else {
        return true;
    };
    for split in Split::ALL {
        if let Ok(tokens) = dataset.split(split) {
            assert_eq!(tokens.len(), dataset.manifest().split(split).tokens);
        }
    }
    let found = verify(&dataset, &|_| {});
    assert!(found.is_ok_and(|found| found.is_whole() == found.problems().is_empty()));
    true
}

fn write(path: &Path, bytes: &[u8]) {
    if let Err(error) = fs::write(path, bytes) {
        panic!("{}: {error}", path.display());
    }
}
