//! The tales as a dataset.

use emberlm_data::{DataError, Dataset, Split, TalesConfig, tales, write_tales_dataset};

fn text(dataset: &Dataset, split: Split) -> String {
    let tokens = dataset.split(split).unwrap();
    let ids = tokens.read(0, tokens.len()).unwrap();
    dataset.tokenizer().decode(&ids).unwrap()
}

#[test]
fn tales_dataset_has_the_exact_floor() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("tales");
    let config = TalesConfig {
        seed: 4,
        tales: 205,
    };
    let manifest = write_tales_dataset(&out, &config, false, "emberlm train").unwrap();
    let dataset = Dataset::open(&out).unwrap();
    dataset.verify().unwrap();
    assert_eq!(dataset.manifest(), &manifest);

    for (split, indices) in [(Split::Train, 0..184), (Split::Val, 184..205)] {
        let expected: String = indices.clone().map(|i| tales::tale(4, i)).collect();
        let text = text(&dataset, split);
        assert_eq!(text, expected);
        let entry = manifest.split(split);
        assert_eq!(entry.documents, indices.end - indices.start);
        let len = text.len() as u64;
        assert_eq!((entry.tokens, entry.bytes), (len, len));
        let exact = tales::nll_nats(&text).unwrap() / text.len() as f64;
        let floor = entry.floor.as_ref().unwrap();
        assert!((floor.nats_per_token - exact).abs() < 1e-12);
        // The tales of a split are about as surprising as the average tale.
        assert!((exact / tales::floor_nats_per_token() - 1.0).abs() < 0.1);
    }
}

#[test]
fn equal_seeds_produce_equal_datasets() {
    let folder = tempfile::tempdir().unwrap();
    let make = |name: &str, seed| {
        let config = TalesConfig { seed, tales: 20 };
        write_tales_dataset(&folder.path().join(name), &config, false, "x").unwrap()
    };
    let (one, again, other) = (make("a", 1), make("b", 1), make("c", 2));
    assert_eq!(one, again);
    assert_ne!(one, other);
    // The tokenizer does not depend on the tales.
    assert_eq!(one.tokenizer, other.tokenizer);
}

#[test]
fn at_least_two_tales_are_required() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("tales");
    let write =
        |tales, force| write_tales_dataset(&out, &TalesConfig { seed: 1, tales }, force, "x");
    let message = write(1, false).unwrap_err().to_string();
    assert!(message.starts_with("`tales` is 1: "), "{message}");
    assert!(!out.exists());
    let manifest = write(2, false).unwrap();
    let splits = &manifest.splits;
    assert_eq!((splits.train.documents, splits.val.documents), (1, 1));
    let error = write(2, false).unwrap_err();
    assert!(matches!(error, DataError::OutputExists { .. }));
    write(3, true).unwrap();
}
