//! `emberlm info` of encoders and encoder–decoders.

use std::fs;

use safetensors::SafeTensors;
use serde_json::Value;

use super::encoder as encoders;
use super::support::{Sandbox, fixtures};

#[test]
fn info_counts_the_parameters_of_each_component() {
    let (sandbox, encoder) = (Sandbox::new(), encoders::model());
    let info = |model: &str| sandbox.run(["info", model, "--json"]).json::<Value>();
    for (model, kind) in [
        (encoder.path().to_owned(), "encoder"),
        (fixtures().join("encoders/bert-masked"), "encoder"),
        (
            fixtures().join("encoder_decoder/t5-relu"),
            "encoder–decoder",
        ),
        (
            fixtures().join("encoder_decoder/mt5-untied"),
            "encoder–decoder",
        ),
    ] {
        let bytes = fs::read(model.join("model.safetensors")).unwrap();
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        let elements: usize = tensors
            .tensors()
            .iter()
            .map(|(_, tensor)| tensor.shape().iter().product::<usize>())
            .sum();
        let info = info(model.to_str().unwrap());
        let total = info["parameters"]["total"].as_u64().unwrap();
        assert_eq!(total, elements as u64, "{}", model.display());
        let rows = info["parameter_table"].as_array().unwrap().iter();
        assert_eq!(
            total,
            rows.map(|row| row["total"].as_u64().unwrap()).sum::<u64>()
        );
        assert!(info["about"].as_str().unwrap().contains(kind), "{info}");
    }
}

#[test]
fn info_as_text() {
    let sandbox = Sandbox::new();
    sandbox.ok("new --preset bert-nano --tokenizer byte --out encoder");
    sandbox.ok("new --preset t5-nano --tokenizer byte --out t5");
    sandbox.check_messages("info_kinds");
}
