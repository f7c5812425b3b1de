//! `emberlm tokenizer`: training, comparison and conversion.

use std::fs;
use std::path::Path;

use emberlm_tokenizer::{Tokenizer, TokenizerKind};
use serde_json::Value;

use super::support::{Sandbox, close};

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
    let line = "tokenizer train texts --vocab-size 280 --out own --special <|im_start|>";
    insta::assert_snapshot!(sandbox.words(line), @r"
    exit 0
    --- stdout
    Trained own with 280 ids
      2,800 bytes of text, 17 different pieces, 2.41 bytes per token
    Next: emberlm prepare texts --out DATASET --tokenizer own
    ");
    assert_eq!(sandbox.names(), ["own", "texts"]);
    let tokenizer = Tokenizer::from_file(&sandbox.path("own/tokenizer.json")).unwrap();
    assert_eq!(
        tokenizer.decode(&[0, 1]).unwrap(),
        "<|endoftext|><|im_start|>"
    );
    sandbox
        .words("prepare texts --out data --tokenizer own")
        .ok();
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
    let out = sandbox
        .words("tokenizer train small.txt --vocab-size 1000 --out own")
        .ok();
    assert!(
        out.contains("with 259 ids: fewer than 1,000, since no more pairs occur 2 times"),
        "{out}"
    );
}

#[test]
fn invalid_training_is_rejected_without_leftovers() {
    let sandbox = with_texts();
    insta::assert_snapshot!(sandbox.words("tokenizer train texts --vocab-size 256 --out own"), @r"
    exit 1
    --- stderr
    error: cannot train a tokenizer: `vocab_size` is 256, but must be from 257 (256 bytes and 1 special) to 16,777,216
    ");
    insta::assert_snapshot!(sandbox.words("tokenizer train texts --vocab-size 300 --pattern gpt5 --out own"), @r"
    exit 2
    --- stderr
    error: invalid value 'gpt5' for '--pattern <NAME>': unknown pattern `gpt5`: choose one of gpt2, cl100k (gpt4), o200k (gpt4o), llama3, qwen2

    For more information, try '--help'.
    ");
    let missing = sandbox.words("tokenizer train nowhere --vocab-size 300 --out own");
    assert_eq!(missing.code, Some(1), "{missing}");
    assert_eq!(sandbox.names(), ["texts"]);
}

/// GPT-2 encodes `Hello world` as two tokens and the line break as one. The byte tokenizer has one token per
/// byte.
#[test]
fn tokenizers_are_compared_side_by_side() {
    let sandbox = Sandbox::new();
    sandbox.write("hello.txt", "Hello world\n".repeat(100));
    sandbox.write("мир.txt", "мир");
    let line = "tokenizer stats hello.txt --tokenizer gpt2 --tokenizer byte";
    insta::assert_snapshot!(sandbox.words(line), @r#"
    exit 0
    --- stdout
    1,200 bytes, 1,200 characters, 200 words
                                    gpt2   byte
      vocabulary                  50,257    257
      tokens                         300  1,200
      bytes per token              4.000  1.000
      characters per token         4.000  1.000
      tokens per word              1.500  6.000
        Latin (100% of the text)   1.000  5.000
      vocabulary used              0.01%  3.50%
      unknown tokens               0.00%  0.00%
    Longest tokens of gpt2: " world" "Hello" "\n"
    Longest tokens of byte: "\n" " " "H" "d" "e"
    "#);
    let report: Value = sandbox
        .words("tokenizer stats hello.txt мир.txt --tokenizer gpt2 --tokenizer byte --json")
        .json();
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

#[test]
fn char_tokenizers_cannot_be_compared() {
    let sandbox = with_texts();
    let ran = sandbox.words("tokenizer stats texts --tokenizer char");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{ran}");
    assert!(ran.stderr.contains("char has no fixed vocabulary"), "{ran}");
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
    insta::assert_snapshot!(sandbox.words("prepare text.txt --out data --tokenizer own.tiktoken"), @r"
    exit 1
    --- stderr
    error: own.tiktoken: a rank file has no splitting pattern, and its ranks are not those of a built-in tokenizer
    hint: convert it: emberlm tokenizer convert FILE --pattern NAME --special NAME=ID --out DIR, then pass DIR
    ");
    let line =
        "tokenizer convert own.tiktoken --pattern gpt4 --special <|endoftext|>=300 --out own";
    insta::assert_snapshot!(sandbox.words(line), @r"
    exit 0
    --- stdout
    Wrote own with 301 ids; 300 ends a text
    Next: emberlm prepare FILE --out DATASET --tokenizer own
    ");
    let tokenizer = Tokenizer::from_file(&sandbox.path("own/tokenizer.json")).unwrap();
    assert_eq!(tokenizer.encode("the th").unwrap(), [257, 32, 256]);
    assert_eq!(
        (tokenizer.vocab_size(), tokenizer.end_of_text()),
        (301, Some(300))
    );
    sandbox
        .words("prepare text.txt --out data --tokenizer own")
        .ok();
    let again = sandbox.words(line);
    assert_eq!(again.code, Some(1), "{again}");
}

#[test]
fn a_damaged_rank_file_is_rejected_with_its_line() {
    let sandbox = Sandbox::new();
    let mut file = rank_file();
    file.extend_from_slice(b"dGhl 258\n");
    sandbox.write("own.tiktoken", file);
    insta::assert_snapshot!(sandbox.words("tokenizer convert own.tiktoken --pattern gpt4 --out own"), @r"
    exit 1
    --- stderr
    error: own.tiktoken: not a usable rank file: line 259: the token was on line 258 already
    ");
    let special = sandbox.words("tokenizer convert own.tiktoken --special a --out own");
    assert_eq!(special.code, Some(2), "{special}");
}

#[test]
fn sentencepiece_models_are_used_directly_or_converted() {
    let sandbox = Sandbox::new();
    let fixture = "../tokenizer/tests/fixtures/sentence_piece/bpe.model";
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join(fixture);
    sandbox.write("llama.model", fs::read(model).unwrap());
    sandbox.write("text.txt", "the License and the Work\n".repeat(40));
    sandbox
        .words("prepare text.txt --out data --tokenizer llama.model")
        .ok();
    insta::assert_snapshot!(sandbox.words("tokenizer convert llama.model --out llama"), @r"
    exit 0
    --- stdout
    Wrote llama with 700 ids; 2 ends a text
    Next: emberlm prepare FILE --out DATASET --tokenizer llama
    ");
    let tokenizer = Tokenizer::from_file(&sandbox.path("llama/tokenizer.json")).unwrap();
    assert_eq!(
        (tokenizer.kind(), tokenizer.end_of_text()),
        (TokenizerKind::File, Some(2))
    );
}
