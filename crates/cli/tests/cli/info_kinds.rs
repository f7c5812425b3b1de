//! `emberlm info` of encoders and encoder–decoders.

use std::fs;

use safetensors::SafeTensors;
use serde_json::Value;

use super::encoder as encoders;
use super::model_kinds::fixtures;
use super::support::Sandbox;

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
    let line = format!("info {} --vocab-size 5", encoder.path().display());
    let output = sandbox.words(&line);
    assert_eq!(output.code, Some(2), "{output}");
}

#[test]
fn info_as_text() {
    let sandbox = Sandbox::new();
    sandbox
        .words("new --preset bert-nano --tokenizer byte --out encoder")
        .ok();
    sandbox
        .words("new --preset t5-nano --tokenizer byte --out t5")
        .ok();
    insta::assert_snapshot!(sandbox.words("info encoder"), @r"
    exit 0
    --- stdout
    encoder: a Hugging Face encoder of type bert

    Parameters
                                        per layer   in all
      token embedding                               32,896
      position embedding                            16,384
      segment embedding                                256
      embedding norm                                   256
      attention: queries, keys, values     49,536  198,144  4 layers
      attention: output                    16,512   66,048  4 layers
      feed-forward: in                     66,048  264,192  4 layers
      feed-forward: out                    65,664  262,656  4 layers
      norms                                   512    2,048  4 layers
      head                                          17,025  without its projection, the embedding
      total                                        859,905

    Memory in f32
      weights  3.28 MiB

    Sizes
      vocab_size                    257  the tokenizer.json tokenizer's
      positions                     128  texts of at most 128 tokens
      segments                        2
      d_model                       128
      n_layers                        4
      heads                           4
      head        masked language model
    ");
    insta::assert_snapshot!(sandbox.words("info t5"), @r"
    exit 0
    --- stdout
    t5: a Hugging Face encoder–decoder of type t5

    Parameters
                                                 per layer   in all
      token embedding                                        32,896
      encoder: relative positions                               128
      encoder: attention: queries, keys, values     49,152   98,304  2 layers
      encoder: attention: output                    16,384   32,768  2 layers
      encoder: feed-forward: in                     65,536  131,072  2 layers
      encoder: feed-forward: out                    32,768   65,536  2 layers
      encoder: norms                                   256      512  2 layers
      encoder: final norm                                       128
      decoder: relative positions                               128
      decoder: attention: queries, keys, values     49,152   98,304  2 layers
      decoder: attention: output                    16,384   32,768  2 layers
      decoder: cross-attention: queries             16,384   32,768  2 layers
      decoder: cross-attention: keys, values        32,768   65,536  2 layers
      decoder: cross-attention: output              16,384   32,768  2 layers
      decoder: feed-forward: in                     65,536  131,072  2 layers
      decoder: feed-forward: out                    32,768   65,536  2 layers
      decoder: norms                                   384      768  2 layers
      decoder: final norm                                       128
      head                                                        0  tied to the embedding
      total                                                 821,120

    Memory in f32
      weights  3.13 MiB

    Sizes
      vocab_size        257  the tokenizer.json tokenizer's
      position buckets   32  relative; distances from 128 on are alike
      d_model           128
      encoder layers      2
      decoder layers      2
      heads               4
      head_dim           32
    ");
}
