//! `emberlm lens`: the predictions after each block agree with those of the same tensors in `transformers` (make_activations.py).

use std::fs;

use safetensors::SafeTensors;
use serde_json::Value;

use super::activations::models;
use super::support::tensors::{floats, ids};
use super::support::{Sandbox, fixtures};

/// The rank of the probability at `id`, from 1.
fn rank(probabilities: &[f32], id: usize) -> u64 {
    let larger = probabilities.iter().filter(|&&p| p > probabilities[id]);
    1 + larger.count() as u64
}

#[test]
fn predictions_equal_those_of_transformers() {
    let sandbox = Sandbox::new();
    for path in models() {
        let model = path.file_stem().unwrap().to_str().unwrap();
        let file = fs::read(&path).unwrap();
        let tokens: Vec<String> = ids(&file, "tokens").iter().map(i64::to_string).collect();
        let tensors = SafeTensors::deserialize(&file).unwrap();
        let shape = tensors.tensor("lens").unwrap().shape().to_vec();
        let [layers, seq, vocab] = shape[..] else {
            panic!("{shape:?}");
        };
        let expected = floats(&file, "lens");
        let row = |layer: usize, position: usize| {
            let start = (layer * seq + position) * vocab;
            &expected[start..start + vocab]
        };
        let folder = fixtures().join("families").join(model);
        let (folder, tokens) = (folder.to_str().unwrap(), tokens.join(","));
        let args = ["lens", folder, "--tokens", &tokens, "--top", "3", "--json"];
        let report: Value = sandbox.run(args).json();
        let positions = report["positions"].as_array().unwrap();
        assert_eq!(positions.len(), seq, "{model}");
        for (position, of_position) in positions.iter().enumerate() {
            let of_layers = of_position["layers"].as_array().unwrap();
            assert_eq!(of_layers.len(), layers, "{model}");
            let chosen = of_layers[layers - 1]["top"][0]["id"].as_u64().unwrap() as usize;
            for (layer, found) in of_layers.iter().enumerate() {
                let expected = row(layer, position);
                let close = |found: &Value, expected: f32| {
                    let found = found.as_f64().unwrap();
                    assert!(
                        (found - f64::from(expected)).abs() < 1e-5,
                        "{model}: {found} {expected}"
                    );
                };
                assert_eq!(found["layer"].as_u64(), (layer as u64).checked_sub(1));
                let entropy: f32 = expected.iter().map(|p| -p * p.ln()).sum();
                assert!((found["entropy"].as_f64().unwrap() - f64::from(entropy)).abs() < 1e-4);
                close(&found["probability"], expected[chosen]);
                assert_eq!(
                    found["rank"],
                    rank(expected, chosen),
                    "{model} {layer} {position}"
                );
                let top = found["top"].as_array().unwrap();
                assert_eq!(top.len(), 3);
                for (place, predicted) in top.iter().enumerate() {
                    let id = predicted["id"].as_u64().unwrap() as usize;
                    assert_eq!(
                        rank(expected, id),
                        place as u64 + 1,
                        "{model} {layer} {position}"
                    );
                    close(&predicted["probability"], expected[id]);
                }
            }
        }
    }
}

#[test]
fn a_table_shows_one_position() {
    let sandbox = Sandbox::with_char_model();
    let text = sandbox.ok("lens run --prompt hello --position 1 --top 2");
    let lines: Vec<Vec<&str>> = text
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(lines[0], ["After", "token", "1", "(e):"]);
    assert_eq!(lines[1][..4], ["block", "entropy", "rank", "of"]);
    let blocks: Vec<&str> = lines[2..].iter().map(|line| line[0]).collect();
    assert_eq!(blocks, ["-", "0", "1"]);
    // The last block's prediction is the final one.
    assert_eq!(lines[4][2], "1");
    assert_eq!(lines[4][3], *lines[1].get(4).unwrap());
}

#[test]
fn positions_beyond_the_text_are_rejected() {
    let sandbox = Sandbox::with_char_model();
    insta::assert_snapshot!(sandbox.words("lens run --prompt hello --position 5"), @r"
    exit 1
    --- stderr
    error: --position 5: the text has 5 tokens
    hint: give one of 0 to 4
    ");
}

#[test]
fn a_page_has_a_row_per_block_and_a_column_per_token() {
    let sandbox = Sandbox::with_char_model();
    let text = sandbox.ok("lens run --prompt hello --out lens.html");
    assert_eq!(text, "lens.html: predictions after 5 tokens\n");
    let page = sandbox.text("lens.html");
    // The embedding, two blocks, and the tokens.
    assert_eq!(page.matches("<tr>").count(), 4);
    assert_eq!(page.matches("<td style=\"--share:").count(), 3 * 5);
    let report: Value = sandbox.json("lens run --prompt hello --json");
    let last = &report["positions"][4]["layers"][2]["top"][0];
    let cell = format!(
        "<td style=\"--share:{:.4}\"",
        last["probability"].as_f64().unwrap()
    );
    assert!(page.contains(&cell), "{cell}\n{page}");
}
