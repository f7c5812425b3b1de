//! `emberlm tokenizer`: training, comparison and conversion.

use std::fs;
use std::path::Path;

use emberlm_tokenizer::{Tokenizer, TokenizerKind};
use serde_json::Value;

use super::support::{AssertText, Sandbox, close};

fn with_texts() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write(
        "texts/one.txt",
        "the cat sat on the mat, the end\n".repeat(40),
    );
    sandbox.write(
        "texts/two düne.txt",
        "мир и мир, the cat's 1234 naps\n".repeat(40),
    );
    sandbox
}

#[test]
fn prepare_accepts_a_trained_tokenizer() {
    let sandbox = with_texts();
    sandbox.check_messages("tokenizer_train");
    assert_eq!(sandbox.names(), ["own", "texts"]);
    let tokenizer = Tokenizer::from_file(sandbox.path("own/tokenizer.json")).unwrap();
    assert_eq!(
        tokenizer.decode(&[0, 1]).unwrap(),
        "<|endoftext|><|im_start|>"
    );
    sandbox.ok("prepare texts --out data --tokenizer own");
}

#[test]
fn tokenizer_training_is_independent_of_the_number_of_threads() {
    let sandbox = with_texts();
    let train = |threads: &str| {
        let out = format!("by{threads}");
        let line = format!("tokenizer train texts --vocab-size 320 --pattern o200k --out {out}");
        let mut command = sandbox.command(line.split(' '));
        assert!(
            command
                .env("RAYON_NUM_THREADS", threads)
                .output()
                .unwrap()
                .status
                .success()
        );
        fs::read(sandbox.path(out).join("tokenizer.json")).unwrap()
    };
    assert_eq!(train("1"), train("5"));
}

#[test]
fn running_out_of_pairs_is_reported() {
    let sandbox = Sandbox::new();
    sandbox.write("small.txt", "abc abc");
    let out = sandbox.ok("tokenizer train small.txt --vocab-size 1000 --out own");
    out.assert_has("with 259 ids: fewer than 1,000, since no more pairs occur 2 times");
}

#[test]
fn invalid_training_statistics_and_conversions_are_rejected() {
    let sandbox = with_texts();
    let damaged = [&rank_file(), &b"dGhl 258\n"[..]].concat();
    sandbox.write("own.tiktoken", damaged);
    sandbox.check_messages("tokenizer_errors");
}

/// GPT-2 encodes `Hello world` as two tokens and the line break as one. The byte tokenizer has one token per
/// byte.
#[test]
fn tokenizers_are_compared_side_by_side() {
    let sandbox = Sandbox::new();
    sandbox.write("hello.txt", "Hello world\n".repeat(100));
    sandbox.write("мир.txt", "мир");
    sandbox.check_messages("tokenizer_stats");
    let report: Value =
        sandbox.json("tokenizer stats hello.txt мир.txt --tokenizer gpt2 --tokenizer byte --json");
    assert_eq!(report["bytes"], 1206);
    assert_eq!(report["characters"], 1203);
    assert_eq!(report["words"], 201);
    let byte = &report["tokenizers"][1];
    assert_eq!(byte["tokens"], 1206);
    close(&byte["tokens_per_word"], &(1206.0 / 201.0).into(), 1e-9);
    let gpt2 = &report["tokenizers"][0];
    assert_eq!(gpt2["unknown"], 0.0);
    assert_eq!(gpt2["tokens_per_word_by_script"]["Latin"], 1.0);
    // `мир` makes up 0.3% of the characters.
    assert_eq!(gpt2["tokens_per_word_by_script"].get("Cyrillic"), None);
}

/// A tiktoken rank file with all bytes and two additional tokens.
fn rank_file() -> Vec<u8> {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut file = Vec::new();
    for byte in 0..=u8::MAX {
        let digits = [
            DIGITS[usize::from(byte >> 2)],
            DIGITS[usize::from(byte & 3) << 4],
        ];
        file.extend_from_slice(&digits);
        file.extend_from_slice(format!("== {byte}\n").as_bytes());
    }
    file.extend_from_slice(b"dGg= 256\ndGhl 257\n"); // `th`, `the`
    file
}

#[test]
fn a_rank_file_is_converted_with_a_pattern() {
    let sandbox = Sandbox::new();
    sandbox.write("own.tiktoken", rank_file());
    sandbox.write("text.txt", "the then there\n".repeat(20));
    sandbox.check_messages("tokenizer_ranks");
    let tokenizer = Tokenizer::from_file(sandbox.path("own/tokenizer.json")).unwrap();
    assert_eq!(tokenizer.encode("the th").unwrap(), [257, 32, 256]);
    assert_eq!(
        (tokenizer.vocab_size(), tokenizer.end_of_text()),
        (301, Some(300))
    );
    sandbox.ok("prepare text.txt --out data --tokenizer own");
}

#[test]
fn sentencepiece_models_are_used_directly_or_converted() {
    let sandbox = Sandbox::new();
    let fixture = "../tokenizer/tests/fixtures/sentence_piece/bpe.model";
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join(fixture);
    sandbox.write("llama.model", fs::read(model).unwrap());
    sandbox.write("text.txt", "the License and the Work\n".repeat(40));
    sandbox.ok("prepare text.txt --out data --tokenizer llama.model");
    sandbox.check_messages("tokenizer_sentencepiece");
    let tokenizer = Tokenizer::from_file(sandbox.path("llama/tokenizer.json")).unwrap();
    assert_eq!(
        (tokenizer.kind(), tokenizer.end_of_text()),
        (TokenizerKind::File, Some(2))
    );
}
