//! Weight files: round trips are bit-exact, and files of other models are rejected with a reason.

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use burn_flex::Flex;
use emberlm_model::weights::map::Source;
use emberlm_model::weights::{
    Element, HostTensor, SafetensorsStore, TensorStore, load_named, load_own, named_tensors,
    published, save_own,
};
use emberlm_model::{Transformer, TransformerConfig, WeightsError, families};
use safetensors::Dtype;
use safetensors::tensor::TensorView;

fn decoder(preset: &str, seed: u64) -> Transformer<Flex> {
    let mut raw = families::preset(preset).unwrap().config;
    raw.vocab_size = Some(11);
    raw.seq_len = 8;
    raw.d_model = 24;
    raw.n_layers = 2;
    TransformerConfig::try_from(raw)
        .unwrap()
        .init(seed, &Default::default())
}

type Named = Vec<(String, HostTensor)>;

/// A file with char-nano's tensors, modified by `change`.
struct Saved {
    folder: tempfile::TempDir,
}

impl Saved {
    fn new(change: impl FnOnce(&mut Named)) -> Self {
        let mut tensors = named_tensors::<Flex, _>(&decoder("char-nano", 1));
        change(&mut tensors);
        let saved = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        save_own(&tensors, HashMap::new(), &saved.path()).unwrap();
        saved
    }

    /// Writes a file of arbitrary bytes.
    fn bytes(bytes: &[u8]) -> Self {
        let saved = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        std::fs::write(saved.path(), bytes).unwrap();
        saved
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("model.safetensors")
    }

    fn error(&self) -> String {
        error_of(&self.path()).to_string()
    }
}

fn error_of(path: &Path) -> WeightsError {
    match load_own::<Flex, _>(decoder("char-nano", 2), path) {
        Ok(_) => panic!("{} was accepted", path.display()),
        Err(error) => error,
    }
}

#[test]
fn round_trip_is_bit_exact() {
    for preset in ["char-nano", "gpt2", "pocket"] {
        let saved = decoder(preset, 1);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        let tensors = named_tensors::<Flex, _>(&saved);
        save_own(
            &tensors,
            HashMap::from([("step".to_owned(), "7".to_owned())]),
            &path,
        )
        .unwrap();
        let other = decoder(preset, 2);
        assert_ne!(named_tensors::<Flex, _>(&other), tensors);
        let loaded = load_own::<Flex, _>(other, &path).unwrap();
        let bits = |tensors: Named| -> Vec<(String, Vec<usize>, Vec<u32>)> {
            let bits = |values: Vec<f32>| values.into_iter().map(f32::to_bits).collect();
            let tensors = tensors.into_iter();
            tensors
                .map(|(name, t)| (name, t.shape, bits(t.values)))
                .collect()
        };
        assert_eq!(bits(named_tensors::<Flex, _>(&loaded)), bits(tensors));
    }
}

#[test]
fn special_values_survive() {
    let values = [f32::MIN_POSITIVE / 2.0, -0.0, f32::MAX, f32::NEG_INFINITY];
    let saved = Saved::new(|tensors| tensors[0].1.values[..4].copy_from_slice(&values));
    let loaded = load_own::<Flex, _>(decoder("char-nano", 2), &saved.path()).unwrap();
    let tensors = named_tensors::<Flex, _>(&loaded);
    let found: Vec<u32> = tensors[0].1.values[..4]
        .iter()
        .map(|x| x.to_bits())
        .collect();
    assert_eq!(found, values.map(f32::to_bits));
}

#[test]
fn missing_tensor_is_named() {
    let saved = Saved::new(|tensors| {
        tensors.retain(|(name, _)| name != "blocks.1.feed_forward.up.weight");
    });
    assert_eq!(
        saved.error(),
        "tensor `blocks.1.feed_forward.up.weight` is missing"
    );
}

#[test]
fn unexpected_tensors_are_named() {
    let saved = Saved::new(|tensors| {
        let one = tensors[0].1.clone();
        tensors.push(("blocks.2.norm1.gain".to_owned(), one.clone()));
        tensors.push(("extra".to_owned(), one));
    });
    assert_eq!(
        saved.error(),
        "tensors left over: blocks.2.norm1.gain, extra"
    );
}

#[test]
fn shape_error_names_both_shapes() {
    let saved = Saved::new(|tensors| {
        let (_, tensor) = tensors
            .iter_mut()
            .find(|(name, _)| name == "tokens")
            .unwrap();
        tensor.shape = vec![24, 11];
    });
    let expected = "tensor `tokens` has shape [24, 11], the model needs [11, 24]";
    assert_eq!(saved.error(), expected);
}

#[test]
fn published_matrix_of_another_shape_is_named() {
    let decoder = decoder("pocket", 1);
    let config = decoder.config().clone();
    let source = |path: &str| config.family().source(&config, path);
    for (wanted, shape) in [
        ("blocks.0.gqa.Wk.weight", vec![9, 24]),
        ("blocks.0.gqa.Wv.weight", vec![8, 23]),
        ("blocks.0.gqa.Wq.weight", vec![24]),
    ] {
        let tensors = published(&decoder, Element::F32, source);
        let tensors: Named = tensors
            .iter()
            .map(|tensor| match tensor.name() {
                name if name == wanted => {
                    let values = vec![0.5; shape.iter().product()];
                    let shape = shape.clone();
                    (name.to_owned(), HostTensor { shape, values })
                }
                name => (name.to_owned(), tensor.values()),
            })
            .collect();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        save_own(&tensors, HashMap::new(), &path).unwrap();
        let store = SafetensorsStore::open(&path).unwrap();
        let error = load_named(decoder.clone(), &store, source).unwrap_err();
        let needed = if wanted.contains("Wq") {
            [24, 24]
        } else {
            [8, 24]
        };
        assert_eq!(
            error.to_string(),
            format!("tensor `{wanted}` has shape {shape:?}, the model needs {needed:?}")
        );
    }
}

#[test]
fn unsupported_type_is_named() {
    let data = [0_u8; 11 * 24];
    let view = TensorView::new(Dtype::U8, vec![11, 24], &data).unwrap();
    let bytes = safetensors::serialize([("tokens", view)], None).unwrap();
    let expected = "tensor `tokens` has type U8: only F32, F16 and BF16 are read";
    assert_eq!(Saved::bytes(&bytes).error(), expected);
}

#[test]
fn damaged_file_is_rejected() {
    let whole = std::fs::read(Saved::new(|_| ()).path()).unwrap();
    let huge = (1_u64 << 60).to_le_bytes();
    let ends = [1, 7, 8, 9, 100, whole.len() / 2, whole.len() - 1];
    let mut damaged: Vec<Vec<u8>> = ends.iter().map(|&end| whole[..end].to_vec()).collect();
    damaged.push(Vec::new());
    damaged.push(b"this is no safetensors file, whatever its name says".to_vec());
    damaged.push([&huge[..], &whole[8..]].concat());
    damaged.push([&u64::MAX.to_le_bytes()[..], &whole[8..]].concat());
    damaged.push([&whole[..], &[0]].concat());
    for bytes in damaged {
        let saved = Saved::bytes(&bytes);
        let error = saved.error();
        let start = format!(
            "{} is not a complete safetensors file: ",
            saved.path().display()
        );
        assert!(error.starts_with(&start), "{} bytes: {error}", bytes.len());
    }
}

/// JSON readers disagree on which value of a duplicate key to use, so validation and use could see different values.
#[test]
fn header_with_duplicate_key_is_rejected() {
    let tensor = r#"{"dtype":"F32","shape":[2],"data_offsets":[0,8]}"#;
    let twice = r#"{"dtype":"F32","shape":[2],"shape":[1,2],"data_offsets":[0,8]}"#;
    for (header, reason) in [
        (
            format!(r#"{{"tokens":{tensor},"tokens":{tensor}}}"#),
            "its header: the key \"tokens\" is repeated at line 1 column",
        ),
        (
            format!(r#"{{"tokens":{twice}}}"#),
            "invalid JSON in header: duplicate field `shape` at line 1 column",
        ),
        (
            format!(r#"{{"__metadata__":{{"a":"1","a":"2"}},"tokens":{tensor}}}"#),
            "its header: the key \"a\" is repeated at line 1 column",
        ),
    ] {
        let length = (header.len() as u64).to_le_bytes();
        let saved = Saved::bytes(&[&length[..], header.as_bytes(), &[0; 8]].concat());
        let expected = format!(
            "{} is not a complete safetensors file: {reason}",
            saved.path().display()
        );
        assert!(saved.error().starts_with(&expected), "{}", saved.error());
    }
}

/// The error about many unexpected tensors lists only the first ones.
#[test]
fn long_list_of_tensors_is_truncated() {
    let saved = Saved::new(|tensors| {
        let extra = tensors[0].1.clone();
        tensors.extend((0..1000).map(|i| (format!("extra.{i:04}"), extra.clone())));
    });
    let error = saved.error();
    assert!(error.ends_with("extra.0011 and 988 more"), "{error}");
}

#[test]
fn offsets_beyond_the_file_are_rejected() {
    for (shape, end) in [
        ("[1152921504606846976]", "4611686018427387904"),
        ("[4294967296,4294967296,2]", "8"),
    ] {
        let header =
            format!(r#"{{"tokens":{{"dtype":"F32","shape":{shape},"data_offsets":[0,{end}]}}}}"#);
        let length = (header.len() as u64).to_le_bytes();
        let bytes = [&length[..], header.as_bytes(), &[0; 8]].concat();
        let saved = Saved::bytes(&bytes);
        assert!(
            saved.error().contains("is not a complete safetensors file"),
            "{}",
            saved.error()
        );
    }
}

#[test]
fn unreadable_and_unwritable_paths_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let absent = folder.path().join("absent.safetensors");
    for path in [absent.as_path(), folder.path()] {
        let error = error_of(path).to_string();
        assert!(error.contains(&path.display().to_string()), "{error}");
    }
    let nowhere = folder.path().join("no/such/folder.safetensors");
    let tensors = named_tensors::<Flex, _>(&decoder("char-nano", 1));
    let error = save_own(&tensors, HashMap::new(), &nowhere)
        .unwrap_err()
        .to_string();
    assert!(error.contains("no/such/folder.safetensors"), "{error}");
}

/// A [`TensorStore`] in memory that reads one row at a time.
struct InMemory(Named);

impl InMemory {
    fn tensor(&self, name: &str) -> Option<&HostTensor> {
        let found = self.0.iter().find(|(own, _)| own == name);
        found.map(|(_, tensor)| tensor)
    }
}

impl TensorStore for InMemory {
    fn names(&self) -> Box<dyn Iterator<Item = &str> + '_> {
        Box::new(self.0.iter().map(|(name, _)| name.as_str()))
    }

    fn shape(&self, name: &str) -> Option<&[usize]> {
        Some(&self.tensor(name)?.shape)
    }

    fn element(&self, name: &str) -> Option<Element> {
        self.tensor(name).map(|_| Element::F32)
    }

    fn total_bytes(&self) -> u64 {
        let tensors = self.0.iter();
        tensors.map(|(_, t)| 4 * t.values.len() as u64).sum()
    }

    fn read_rows(
        &self,
        name: &str,
        rows: Range<usize>,
        read: &mut dyn FnMut(Range<usize>, &[f32]),
    ) -> Result<(), WeightsError> {
        let missing = || WeightsError::Missing {
            name: name.to_owned(),
        };
        let tensor = self.tensor(name).ok_or_else(missing)?;
        let row: usize = tensor.shape[1..].iter().product();
        for at in rows {
            read(at..at + 1, &tensor.values[at * row..(at + 1) * row]);
        }
        Ok(())
    }
}

#[test]
fn custom_tensor_store_is_readable() {
    for preset in ["char-nano", "gpt2", "pocket"] {
        let saved = decoder(preset, 1);
        let config = saved.config().clone();
        // In the decoder's layout, and transposed and split like the family's checkpoints.
        let own = InMemory(named_tensors::<Flex, _>(&saved));
        let source = |path: &str| config.family().source(&config, path);
        let family = published(&saved, Element::F32, source);
        let family = family
            .iter()
            .map(|tensor| (tensor.name().to_owned(), tensor.values()));
        let family = InMemory(family.collect());
        let blank = || decoder(preset, 2);
        let as_is = |path: &str| Some(Source::as_is(path));
        for loaded in [
            load_named(blank(), &own, as_is).unwrap(),
            load_named(blank(), &family, source).unwrap(),
        ] {
            assert_eq!(named_tensors::<Flex, _>(&loaded), own.0, "{preset}");
        }
        let mut short = own;
        let (name, _) = short.0.remove(3);
        let error = load_named(blank(), &short, as_is).unwrap_err().to_string();
        assert_eq!(error, format!("tensor `{name}` is missing"));
    }
}
