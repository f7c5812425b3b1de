//! `emberlm activations`: the tensors inside a pass agree with those that hooks see in `transformers` (make_activations.py).

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use safetensors::SafeTensors;

use super::support::tensors::{floats, ids};
use super::support::{AssertText, Sandbox, fixtures};

/// The shapes and values of a file's activations by name.
fn activations(file: &[u8]) -> BTreeMap<String, (Vec<usize>, Vec<f32>)> {
    let tensors = SafeTensors::deserialize(file).unwrap();
    let all = tensors
        .iter()
        .filter(|(name, _)| !["tokens", "lens"].contains(name));
    all.map(|(name, view)| {
        let values = floats(file, name);
        (name.to_owned(), (view.shape().to_vec(), values))
    })
    .collect()
}

/// The files with the activations of a model that the file is named after.
pub fn models() -> Vec<PathBuf> {
    let files = fs::read_dir(fixtures().join("activations")).unwrap();
    let paths = files.map(|file| file.unwrap().path());
    let is_model = |path: &PathBuf| path.extension().is_some_and(|end| end == "safetensors");
    paths.filter(is_model).collect()
}

#[test]
fn activations_equal_those_of_transformers() {
    let sandbox = Sandbox::new();
    let mut count = 0;
    for path in models() {
        let model = path.file_stem().unwrap().to_str().unwrap();
        let file = fs::read(&path).unwrap();
        let tokens: Vec<String> = ids(&file, "tokens").iter().map(i64::to_string).collect();
        let folder = fixtures().join("families").join(model);
        let tokens = tokens.join(",");
        let args = [
            "activations",
            folder.to_str().unwrap(),
            "--tokens",
            &tokens,
            "--out",
            "a.safetensors",
        ];
        let ran = sandbox.run(args);
        assert_eq!(ran.code, Some(0), "{ran}");
        let mut found = activations(&sandbox.bytes("a.safetensors"));
        for (name, (shape, values)) in activations(&file) {
            let (found_shape, found_values) = found
                .remove(&name)
                .unwrap_or_else(|| panic!("{model}: no {name}"));
            assert_eq!(found_shape, shape, "{model}: {name}");
            for (found, expected) in found_values.iter().zip(&values) {
                let bound = 2e-5 * (1.0 + expected.abs());
                assert!(
                    (found - expected).abs() < bound,
                    "{model}: {name}: {found}, not {expected}"
                );
            }
            count += 1;
        }
        // The code of GPT-J has no function that rotates both, and its second norm is the first one.
        let others: Vec<&str> = match model {
            "gptj-partial" => vec!["attn.hook_rot_k", "attn.hook_rot_q", "ln2.hook_normalized"],
            _ => vec![],
        };
        for name in found.keys() {
            assert!(
                others.iter().any(|other| name.ends_with(other)),
                "{model}: {name}"
            );
        }
    }
    assert!(count > 300, "{count}");
}

#[test]
fn names_select_activations() {
    let sandbox = Sandbox::with_char_model();
    let line = "activations run --prompt hello --out a.safetensors --site";
    let text = sandbox.ok(&format!(
        "{line} blocks.*.hook_resid_post --site blocks.0.attn.hook_*"
    ));
    text.assert_has("a.safetensors: 7 activations of 5 tokens");
    let found = activations(&sandbox.bytes("a.safetensors"));
    let names: Vec<&str> = found.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "blocks.0.attn.hook_k",
            "blocks.0.attn.hook_pattern",
            "blocks.0.attn.hook_q",
            "blocks.0.attn.hook_v",
            "blocks.0.attn.hook_z",
            "blocks.0.hook_resid_post",
            "blocks.1.hook_resid_post",
        ]
    );
}

#[test]
fn a_rejected_request_writes_no_file() {
    let sandbox = Sandbox::with_char_model();
    sandbox.write("a.safetensors", "kept");
    let line = "activations run --tokens 1,2 --site blocks.7.* --out a.safetensors";
    insta::assert_snapshot!(sandbox.words(line), @r"
    exit 1
    --- stderr
    error: --site blocks.7.*: the model has no such activation
    hint: names are those of TransformerLens, such as blocks.0.hook_resid_pre; without --site, all are written
    ");
    assert_eq!(sandbox.text("a.safetensors"), "kept");
}
