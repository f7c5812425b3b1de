//! Norms by layer: recorded by `train --norms-interval`, drawn by `plot --norms` and `report`.

use std::collections::BTreeMap;
use std::fs;

use safetensors::SafeTensors;
use serde_json::Value;

use super::objectives::SMALL;
use super::support::tensors::floats;
use super::support::train::{TINY_ENCODER, TINY_ENCODER_DECODER};
use super::support::{AssertText, Sandbox};

/// The layers of the model of two blocks.
const LAYERS: [&str; 4] = ["embedding", "blocks.0", "blocks.1", "final"];

/// The norms of the last record of a run, by layer.
fn last_norms(sandbox: &Sandbox, run: &str) -> Vec<(String, Value)> {
    let events = sandbox.events(run, "norms");
    let layers = events.last().unwrap()["layers"].as_array().unwrap();
    let named = |layer: &Value| (layer["layer"].as_str().unwrap().to_owned(), layer.clone());
    layers.iter().map(named).collect()
}

/// The sum of squares of each layer's tensors, whose names end in `suffix`.
fn squares(file: &[u8], suffix: &str, of: impl Fn(&str) -> Vec<f32>) -> BTreeMap<String, f64> {
    let mut sums = BTreeMap::new();
    for name in SafeTensors::deserialize(file).unwrap().names() {
        let Some(path) = name.strip_suffix(suffix) else {
            continue;
        };
        let layer = match path.split('.').collect::<Vec<_>>()[..] {
            ["blocks", number, ..] => format!("blocks.{number}"),
            ["tokens" | "positions", ..] => "embedding".to_owned(),
            _ => "final".to_owned(),
        };
        let sum: f64 = of(name).iter().map(|&x| f64::from(x).powi(2)).sum();
        *sums.entry(layer).or_insert(0.0) += sum;
    }
    sums
}

fn assert_near(found: &Value, expected: f64, what: &str) {
    let found = found.as_f64().unwrap_or_else(|| panic!("{what}: none"));
    let error = (found - expected).abs() / expected;
    assert!(error < 1e-4, "{what}: {found}, not {expected}");
}

#[test]
fn norms_equal_those_of_the_checkpoints_and_of_activations() {
    // All windows are equal, so the first sequence is known.
    let sandbox = Sandbox::with_text("a".repeat(3000) + "b", "char");
    sandbox.trains(
        "--data data --out run --steps 2 --norms-interval 2 --set train.checkpoints.interval=1 --set train.clip_norm=0 \
         --set train.schedule.warmup_steps=0 --set train.optimizer.beta1=0.5",
    );
    let checkpoint = |step: usize| sandbox.checkpoint("run", step);
    let [before, first, ..] = checkpoint(1);
    let [after, second, ..] = checkpoint(2);
    // The first moment is m₂ = (m₁ + g) / 2.
    let gradients = squares(&second, ".moment1", |name| {
        let moments = floats(&second, name).into_iter().zip(floats(&first, name));
        moments.map(|(new, old)| 2.0 * new - old).collect()
    });
    let weights = squares(&before, "", |name| floats(&before, name));
    let updates = squares(&before, "", |name| {
        let weights = floats(&after, name).into_iter().zip(floats(&before, name));
        weights.map(|(new, old)| new - old).collect()
    });
    let tokens = vec!["0"; 32].join(",");
    sandbox.ok(&format!(
        "activations run/checkpoints/step-00000001 --tokens {tokens} --out a.safetensors"
    ));
    let activations = sandbox.bytes("a.safetensors");
    let norms = last_norms(&sandbox, "run");
    let names: Vec<&str> = norms.iter().map(|(layer, _)| layer.as_str()).collect();
    assert_eq!(names, LAYERS);
    for (layer, norms) in &norms {
        assert_near(&norms["gradient"], gradients[layer].sqrt(), layer);
        let update = (updates[layer] / weights[layer]).sqrt();
        assert_near(&norms["update"], update, layer);
        let site = match layer.as_str() {
            "embedding" => "blocks.0.hook_resid_pre".to_owned(),
            "final" => "ln_final.hook_normalized".to_owned(),
            block => format!("{block}.hook_resid_post"),
        };
        let stream = floats(&activations, &site);
        let sum: f64 = stream.iter().map(|&x| f64::from(x).powi(2)).sum();
        let rms = (sum / stream.len() as f64).sqrt();
        assert_near(&norms["activation"], rms, layer);
    }
}

#[test]
fn norms_change_no_training_and_are_exact_after_a_resume() {
    let sandbox = Sandbox::with_data();
    let line = "--data data --steps 6 --accumulation 2 --set train.checkpoints.interval=4 --set model.dropout=0.1 \
        --set train.clip_norm=0.1 --set train.log_interval=2";
    sandbox.trains(&format!("{line} --out without"));
    sandbox.trains(&format!("{line} --out run --norms-interval 3"));
    assert!(sandbox.weights("run", 6) == sandbox.weights("without", 6));
    assert!(sandbox.events("without", "norms").is_empty());
    assert_eq!(
        sandbox.events("run", "step"),
        sandbox
            .events("without", "step")
            .into_iter()
            .zip(sandbox.events("run", "step"))
            .map(|(mut step, with)| {
                // Lines are numbered.
                step["n"] = with["n"].clone();
                step
            })
            .collect::<Vec<_>>()
    );
    let norms = sandbox.events("run", "norms");
    let steps: Vec<&Value> = norms.iter().map(|event| &event["step"]).collect();
    assert_eq!(steps, [3, 6]);
    // The last step is logged, too.
    let sum = last_norms(&sandbox, "run")
        .iter()
        .fold(0.0, |sum, (_, layer)| {
            sum + layer["gradient"].as_f64().unwrap().powi(2)
        });
    let logged = sandbox.events("run", "step").pop().unwrap();
    assert_near(&logged["gradient_norm"], sum.sqrt(), "all layers");

    fs::remove_dir_all(sandbox.path("run/checkpoints/step-00000006")).unwrap();
    sandbox.succeeds("train --resume run --renderer plain");
    assert_eq!(sandbox.events("run", "norms"), norms);
}

#[test]
fn only_trained_parameters_have_gradients_and_updates() {
    let sandbox = Sandbox::with_data();
    let layers = |run: &str| -> Vec<String> {
        let given = |norms: &Value| {
            ["gradient", "update", "activation"].map(|kind| norms[kind].is_number())
        };
        let marked = |(layer, norms): (String, Value)| {
            let marks = given(&norms).map(|given| if given { 'x' } else { '-' });
            format!("{layer} {}", marks.iter().collect::<String>())
        };
        last_norms(&sandbox, run).into_iter().map(marked).collect()
    };
    let norms = "--data data --steps 1 --norms-interval 1";
    sandbox.trains(&format!("{norms} --out moe --set model.experts.count=4"));
    assert_eq!(layers("moe"), LAYERS.map(|layer| format!("{layer} xxx")));
    sandbox.trains(&format!("{norms} --out lora --from moe --adapter lora"));
    let expected = ["embedding --x", "blocks.0 xxx", "blocks.1 xxx", "final --x"];
    assert_eq!(layers("lora"), expected);
    sandbox.succeeds(&format!(
        "train {norms} --objective mlm {SMALL} {TINY_ENCODER} --out bert"
    ));
    assert_eq!(
        layers("bert"),
        ["embedding xxx", "blocks.0 xxx", "final xxx"]
    );
    sandbox.write_sources();
    sandbox.succeeds(&format!(
        "train --steps 1 --norms-interval 1 --objective seq2seq --data sources.jsonl {SMALL} {TINY_ENCODER_DECODER} \
         --set data.tokenizer=byte --out t5"
    ));
    let found = layers("t5");
    for layer in [
        "encoder.blocks.0 xx-",
        "decoder.blocks.0 xx-",
        "embedding xx-",
    ] {
        assert!(found.iter().any(|it| it == layer), "{found:?}");
    }
}

#[test]
fn norms_are_drawn_by_layer_and_step() {
    let sandbox = Sandbox::new();
    sandbox.write_history("run", 3, None, None);
    sandbox.write_history("other", 3, None, None);
    for step in [1, 2, 3] {
        let norm = 10f64.powi(step);
        sandbox.append(
            "run",
            &format!(
                "{{\"event\":\"norms\",\"step\":{step},\"layers\":[{{\"layer\":\"embedding\",\"gradient\":{norm}}},\
                 {{\"layer\":\"blocks.0\",\"gradient\":1,\"update\":0.5}}]}}\n"
            ),
        );
    }
    sandbox.ok("plot run --norms gradient --out p.svg");
    let svg = sandbox.text("p.svg");
    // The colours of the largest and the smallest norm.
    for word in [
        "\nGradient norm: run\n",
        "\nembedding\n",
        "\nblocks.0\n",
        "#FDE725",
        "#440154",
    ] {
        svg.assert_has(word);
    }
    sandbox.ok("plot run --norms update --out p.html");
    sandbox
        .text("p.html")
        .assert_has("<td>blocks.0</td><td>0.5</td><td>0.5</td>");
    sandbox.ok("plot run --norms gradient --out p.png");
    sandbox.ok("plot run --norms gradient --out p.csv");
    let csv = sandbox.text("p.csv");
    csv.assert_has("run,step,layer,gradient,update,activation\r\nrun,1,embedding,10,,\r\nrun,1,blocks.0,1,0.5,\r\n");
    sandbox.write("run/config.toml", "[train]\nsteps = 40\n");
    sandbox.ok("report run --out r.html");
    let html = sandbox.text("r.html");
    html.assert_has("<h2>Norms by layer</h2>");
    assert_eq!(html.matches("<svg").count(), 6);
    sandbox.check_messages("norms");
}
