//! `emberlm info`.

use std::process::Stdio;

use serde_json::Value;

use super::support::Sandbox;
use super::support::model::{tiny, write_run};

fn total(info: &Value) -> u64 {
    info["parameters"]["total"].as_u64().unwrap()
}

#[test]
fn published_counts() {
    let sandbox = Sandbox::new();
    for (preset, parameters) in [("gpt2", 124_439_808), ("pocket", 48_034_560)] {
        let info: Value = sandbox.words(&format!("info {preset} --json")).json();
        assert_eq!(total(&info), parameters);
        assert_eq!(info["memory_bytes"]["weights"], 4 * parameters);
        let parts = info["parameters"].as_object().unwrap();
        let sum: u64 = parts.values().map(|part| part.as_u64().unwrap()).sum();
        // A token uses all parameters, as without experts.
        assert_eq!(info["parameters"]["active"], parameters);
        assert_eq!(sum, 3 * parameters, "the parts add up to the total");
    }
}

#[test]
fn a_preset_as_text() {
    insta::assert_snapshot!(Sandbox::new().words("info gpt2"), @r"
    exit 0
    --- stdout
    gpt2-small: GPT-2 small, 124M parameters

    Parameters
                                        per layer       in all
      token embedding                               38,597,376
      position embedding                               786,432
      attention: queries, keys, values  1,771,776   21,261,312  12 layers
      attention: output                   590,592    7,087,104  12 layers
      feed-forward: in                  2,362,368   28,348,416  12 layers
      feed-forward: out                 2,360,064   28,320,768  12 layers
      norms                                 3,072       36,864  12 layers
      final norm                                         1,536
      head                                                   0  tied to the embedding
      total                                        124,439,808

    Operations per token, at the full 1,024 tokens of context
      forward   284.8 MFLOP
      training  854.4 MFLOP

    Memory in f32
      weights          474.70 MiB
      training state     1.85 GiB  weights, gradients and AdamW's moments; activations are extra
      key-value cache   72.00 MiB  one sequence of the full length; f16 36.00 MiB, q8 19.12 MiB

    Sizes
      vocab_size  50257
      seq_len      1024
      d_model       768
      n_layers       12
      heads          12
      kv_heads       12
      head_dim       64
    ");
}

#[test]
fn an_assumed_vocabulary_size_is_marked() {
    let sandbox = Sandbox::new();
    let assumed: Value = sandbox.words("info char-nano --json").json();
    assert_eq!(assumed["vocab_size_assumed"], true);
    assert_eq!(assumed["config"]["vocab_size"], 257);
    let text = sandbox.words("info char-nano").ok();
    assert!(
        text.contains("257  assumed: the dataset decides; another with --vocab-size N"),
        "{text}"
    );
    let given: Value = sandbox
        .words("info char-nano --vocab-size 65 --json")
        .json();
    assert_eq!(given["vocab_size_assumed"], false);
    assert_eq!(total(&assumed) - total(&given), (257 - 65) * 128);
}

#[test]
fn without_a_subject_the_presets_are_listed() {
    let sandbox = Sandbox::new();
    insta::assert_snapshot!(sandbox.words("info"), @r"
    exit 0
    --- stdout
    Presets, with their parameters
      pocket                  48,034,560   PocketTransformer as published: 48,034,560 parameters with the GPT-2 vocabulary
      pocket-tales               442,560*  a PocketTransformer that learns the built-in tales in half a minute on two CPU cores
      vanilla                162,301,009   the original transformer's decoder at GPT-2 small's size: norms after, sinusoidal positions
      prenorm                144,150,528   norms first, learned positions, GELU: the seed's sizes, its feed-forward part 2048 wide
      cs336                   22,825,472   the course's model at its TinyStories size: 4 layers of width 512, a vocabulary of 10,000
      gpt2-small             124,439,808   GPT-2 small, 124M parameters
      gpt2-medium            354,823,168   GPT-2 medium, 355M parameters
      gpt2-large             774,030,080   GPT-2 large, 774M parameters
      gpt2-xl              1,557,611,200   GPT-2 XL, 1.5B parameters
      char-nano                  828,672*  nanoGPT's CPU model for characters: 4 layers of width 128, no biases
      bpe-nano                 2,755,200*  the same for small byte-pair vocabularies on a CPU: 6 layers of width 192
      gptj-6b              6,050,882,784   GPT-J, 6B parameters
      pythia-70m              70,426,624   Pythia, 70M parameters
      pythia-160m            162,322,944   Pythia, 160M parameters
      pythia-410m            405,334,016   Pythia, 410M parameters
      pythia-1b            1,011,781,632   Pythia, 1B parameters
      pythia-1.4b          1,414,647,808   Pythia, 1.4B parameters
      pythia-2.8b          2,775,208,960   Pythia, 2.8B parameters
      pythia-6.9b          6,857,302,016   Pythia, 6.9B parameters
      pythia-12b          11,846,072,320   Pythia, 12B parameters
      gpt-neox-20b        20,554,567,680   GPT-NeoX, 20B parameters
      tinyllama-1.1b       1,100,048,384   TinyLlama, 1.1B parameters
      llama-2-7b           6,738,415,616   LLaMA 2, 7B parameters
      llama-3-8b           8,030,261,248   LLaMA 3, 8B parameters
      llama-3.2-1b         1,235,814,400   LLaMA 3.2, 1B parameters, tied
      llama-nano               3,213,824*  a small LLaMA to train on a CPU: 4 layers of width 256, tied
      mistral-7b           7,241,732,096   Mistral 7B v0.1, a window of 4096 tokens
      mixtral-8x7b        46,702,792,704   Mixtral 8x7B, 2 of 8 experts per token
      qwen2-0.5b             494,032,768   Qwen2, 0.5B parameters, tied
      qwen2-7b             7,615,616,512   Qwen2, 7B parameters
      qwen1.5-moe-a2.7b   14,315,784,192   Qwen1.5 MoE A2.7B, 4 of 60 experts per token and a shared one
      qwen3-0.6b             596,049,920   Qwen3, 0.6B parameters, tied
      qwen3-8b             8,190,735,360   Qwen3, 8B parameters
      qwen3-30b-a3b       30,532,122,624   Qwen3 30B-A3B, 8 of 128 experts per token
      olmoe-1b-7b          6,919,161,856   OLMoE 1B-7B, 8 of 64 experts per token
      gemma2-2b            2,614,341,888   Gemma 2, 2B parameters, tied
      gemma2-9b            9,241,705,984   Gemma 2, 9B parameters, tied
      gemma2-27b          27,227,128,320   Gemma 2, 27B parameters, tied
      olmo2-1b             1,484,916,736   OLMo 2, 1B parameters
      olmo2-7b             7,298,617,344   OLMo 2, 7B parameters
      olmo3-7b             7,298,011,136   OLMo 3, 7B parameters
      smollm3-3b           3,075,098,624   SmolLM3, 3B parameters, tied
      phi3-mini-4k         3,821,079,552   Phi-3 mini, 3.8B parameters, a window of 2047 tokens
      phi4                14,659,507,200   Phi-4, 14B parameters
      granite-3-2b         2,533,531,648   Granite 3.0, 2B parameters, tied
      granite-3-8b         8,170,848,256   Granite 3.0, 8B parameters, tied
      gemma3-270m            268,098,176   Gemma 3, 270M parameters, tied
      gemma3-1b              999,885,952   Gemma 3, 1B parameters, tied
      starcoder2-3b        3,030,371,328   StarCoder2, 3B parameters, tied
      starcoder2-7b        7,173,923,840   StarCoder2, 7B parameters, tied
      command-r           34,980,831,232   Command R, 35B parameters, tied
      glm4-9b              9,400,279,040   GLM-4 0414, 9B parameters
      bloom-560m             559,214,592   BLOOM, 560M parameters, tied
      bloom-1b1            1,065,314,304   BLOOM, 1.1B parameters, tied
      bloom-7b1            7,069,016,064   BLOOM, 7.1B parameters, tied
      falcon-7b            6,921,720,704   Falcon, 7B parameters, tied
      falcon-40b          41,303,293,952   Falcon, 40B parameters, tied
      palm-8b              8,632,012,800   PaLM's smallest size
      palm-62b            62,495,662,080   PaLM's middle size
      palm-540b          540,356,474,880   PaLM's largest size
      * with 257 token ids: the vocabulary is the dataset's
    More of one: emberlm info PRESET
    ");
    let presets: Value = sandbox.words("info --json").json();
    assert_eq!(presets[0]["name"], "pocket");
    assert_eq!(presets[0]["parameters"], 48_034_560);
}

#[test]
fn trained_models_are_counted_like_presets() {
    let sandbox = Sandbox::new();
    write_run(&sandbox.path("run"), &tiny(11), None, &[3]);
    let info: Value = sandbox.words("info run --json").json();
    assert_eq!(info["config"]["d_model"], 16);
    assert_eq!(info["about"], "a checkpoint after 3 steps");
    let ran = sandbox.words("info run --vocab-size 5");
    insta::assert_snapshot!(ran, @r"
    exit 2
    --- stderr
    error: --vocab-size is for presets: a trained model has its own
    ");
}

#[test]
fn invalid_vocabulary_sizes_are_rejected() {
    insta::assert_snapshot!(Sandbox::new().words("info gpt2 --vocab-size 99999999999"), @r"
    exit 1
    --- stderr
    error: model.vocab_size = 99999999999: must be between 1 and 16777216
    ");
}

#[test]
fn unknown_subjects_are_rejected() {
    insta::assert_snapshot!(Sandbox::new().words("info gpt7"), @r"
    exit 1
    --- stderr
    error: no such preset or model: gpt7
    hint: list the presets: emberlm info
    hint: or pass the directory of a run or checkpoint
    ");
}

#[test]
fn a_closed_pipe_is_not_a_failure() {
    let sandbox = Sandbox::new();
    for line in ["info", "info gpt2 --json", "--help"] {
        let mut command = sandbox.command(line.split_whitespace());
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(
            (output.status.code(), stderr.as_str()),
            (Some(0), ""),
            "{line}"
        );
    }
}
