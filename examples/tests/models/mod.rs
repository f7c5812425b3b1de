//! Text in and text out, with models of every kind, and the examples that use them.

use std::fs;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::{Command, Stdio};

use emberlm::checkpoint::{Description, write_untrained};
use emberlm::data::{TokenDatasetOptions, write_token_dataset};
use emberlm::generate::{Generator, generate};
use emberlm::model::encoder::EncoderSettings;
use emberlm::model::encoder_decoder::EncoderDecoderSettings;
use emberlm::model::families;
use emberlm::model::hugging_face::{ExportOptions, export};
use emberlm::tokenizer::TOKENIZER_FILE;
use emberlm::{
    ChatMessage, GenerateOptions, Model, OpenOptions, SamplerConfig, Tokenizer, TokenizerKind,
    TransformerConfig,
};
use emberlm_examples::Backend;

use super::run;

fn tokenizer() -> Tokenizer {
    Tokenizer::char_from_alphabet("abcdefgh".chars()).unwrap()
}

/// Writes a decoder with eight characters and random weights.
pub fn write_model(folder: &Path) {
    let tokenizer = tokenizer();
    let mut model = families::preset("pocket-tales").unwrap().config;
    model.vocab_size = Some(tokenizer.vocab_size());
    (model.n_layers, model.seq_len) = (1, 64);
    let config = TransformerConfig::try_from(model).unwrap();
    let description = Description {
        tokenizer: Some(tokenizer.spec()),
        ..Description::of_model(&config)
    };
    let decoder = config.init::<Backend>(1, &Default::default());
    fs::create_dir_all(folder).unwrap();
    write_untrained(folder, &decoder, &description, Some(&tokenizer)).unwrap();
}

/// Writes an encoder of bytes.
fn write_encoder(folder: &Path) {
    let settings = EncoderSettings {
        vocab_size: 257,
        positions: 64,
        n_layers: 1,
        ..EncoderSettings::new(32, 2)
    };
    let config = TransformerConfig::try_from(settings).unwrap();
    let model = config.init::<Backend>(4, &Default::default());
    export(&model, folder, &ExportOptions::default()).unwrap();
    write_byte_tokenizer(folder);
}

/// Writes an encoder–decoder of bytes.
fn write_encoder_decoder(folder: &Path) {
    let settings = EncoderDecoderSettings {
        vocab_size: 257,
        ..EncoderDecoderSettings::new(32, 2)
    };
    let config = TransformerConfig::try_from(settings).unwrap();
    let model = config.init::<Backend>(4, &Default::default());
    export(&model, folder, &ExportOptions::default()).unwrap();
    write_byte_tokenizer(folder);
}

fn write_byte_tokenizer(folder: &Path) {
    let tokenizer = Tokenizer::builtin(TokenizerKind::Byte).unwrap();
    fs::write(folder.join(TOKENIZER_FILE), tokenizer.to_tokenizer_json()).unwrap();
}

/// The most probable continuation of a text by the decoder in `folder`.
fn continuation(folder: &Path, text: &str, tokens: usize) -> String {
    let decoder = Model::open(folder).unwrap();
    let decoder = decoder.decoder::<Backend>(&Default::default()).unwrap();
    let options = GenerateOptions {
        max_new_tokens: tokens,
        chooser: SamplerConfig::greedy().into(),
        ..GenerateOptions::default()
    };
    let prompt = tokenizer().encode(text).unwrap();
    let made = generate(&decoder, &prompt, &options, |_| ControlFlow::Continue(()));
    tokenizer().decode(&made.unwrap().tokens).unwrap()
}

#[test]
fn a_text_is_continued_and_streamed_until_its_stop() {
    let folder = tempfile::tempdir().unwrap();
    write_model(folder.path());
    let expected = continuation(folder.path(), "abc", 30);
    let mut model = emberlm::open::<Backend>(&folder).unwrap();
    let mut streamed = String::new();
    let text = model.generate("abc").max_new_tokens(30).temperature(0.0);
    let text = text.stream(|part| streamed += part).unwrap();
    assert_eq!((&text, &streamed), (&expected, &expected));

    let stop = &expected[3..5];
    let before = expected.split(stop).next().unwrap();
    let text = model.generate("abc").temperature(0.0).stop(stop).text();
    assert_eq!(text.unwrap(), before);

    let mut sample = |seed| {
        let text = model.generate("abc").max_new_tokens(20).seed(seed);
        text.text().unwrap()
    };
    assert_eq!(sample(1), sample(1));
    assert_ne!(sample(1), sample(2));
}

#[test]
fn errors_name_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    write_model(folder.path());
    let mut model = emberlm::open::<Backend>(&folder).unwrap();
    let long = model.generate("a".repeat(65)).text().unwrap_err();
    assert_eq!(
        long.to_string(),
        "a prompt of 65 tokens and 200 new ones are more than the context of 64"
    );
    let chat = model.chat(&[ChatMessage::user("abc")]).text();
    assert_eq!(
        chat.unwrap_err().to_string(),
        "the model has no chat template; choose one with `OpenOptions::chat_template`"
    );
    let none = emberlm::open::<Backend>("no/such/model").err().unwrap();
    assert!(none.to_string().contains("no/such/model"), "{none}");
}

/// The template writes only the contents, so an answer continues the text of all messages.
#[test]
fn the_chat_example_answers_each_line() {
    let folder = tempfile::tempdir().unwrap();
    let (base, template) = (
        folder.path().join("model"),
        folder.path().join("plain.jinja"),
    );
    write_model(&base);
    let source = "{% for m in messages %}{{ m.content }}{% endfor %}";
    fs::write(&template, source).unwrap();
    let template = template.to_str().unwrap();

    let options = OpenOptions::new().chat_template(template);
    let mut model = options.open::<Backend>(&base).unwrap();
    let mut messages = vec![ChatMessage::user("abc")];
    let mut answer = |messages: &[ChatMessage]| {
        let answer = model.chat(messages).temperature(0.0).max_new_tokens(5);
        answer.text().unwrap()
    };
    let first = answer(&messages);
    assert_eq!(first, continuation(&base, "abc", 5));
    messages.push(ChatMessage::assistant(&first));
    messages.push(ChatMessage::user("fed"));
    let whole = format!("abc{first}fed");
    assert_eq!(answer(&messages), continuation(&base, &whole, 5));

    let mut chat = Command::new(env!("CARGO_BIN_EXE_chat"))
        .args([base.to_str().unwrap(), template])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    chat.stdin.take().unwrap().write_all(b"abc\n").unwrap();
    let output = chat.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let sampled = model.chat(&[ChatMessage::user("abc")]).text().unwrap();
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        sampled.clone() + "\n"
    );
    // An answer ends with the context.
    assert_eq!(sampled.len(), 64 - 3);
}

#[test]
fn the_embed_example_orders_texts_by_similarity() {
    let folder = tempfile::tempdir().unwrap();
    write_encoder(folder.path());
    let path = folder.path().to_str().unwrap();
    let texts = [path, "a cat", "entirely different", "a cat", "a cap"];
    let output = run(env!("CARGO_BIN_EXE_embed"), &texts).unwrap();
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!(lines.len(), 3);
    assert_eq!(lines[0], "1.0000  a cat");
    let similarity = |line: &str| line.split_once("  ").unwrap().0.parse::<f32>().unwrap();
    assert!(
        lines.is_sorted_by(|a, b| similarity(a) >= similarity(b)),
        "{printed}"
    );

    let mut encoder = emberlm::open::<Backend>(path).unwrap();
    let error = encoder.generate("a").text().unwrap_err();
    assert_eq!(error.to_string(), "an encoder cannot generate text");
}

#[test]
fn a_decoder_embeds_texts_as_vectors_of_length_1() {
    let folder = tempfile::tempdir().unwrap();
    write_model(folder.path());
    let model = emberlm::open::<Backend>(&folder).unwrap();
    let vectors = model.embed(&["abc", "gh"]).unwrap();
    for vector in &vectors {
        let length: f32 = vector.iter().map(|x| x * x).sum();
        assert!((length - 1.0).abs() < 1e-5, "{length}");
    }
    assert_ne!(vectors[0], vectors[1]);
}

#[test]
fn the_t5_example_prints_the_best_targets() {
    let folder = tempfile::tempdir().unwrap();
    write_encoder_decoder(folder.path());
    let path = folder.path().to_str().unwrap();
    let output = run(env!("CARGO_BIN_EXE_t5"), &[path, "a source"]).unwrap();
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let scores = printed.lines().filter_map(|line| line.split_once("  "));
    let scores: Vec<f64> = scores.filter_map(|(score, _)| score.parse().ok()).collect();
    assert_eq!(scores.len(), 4, "{printed}");
    assert!(scores.is_sorted_by(|a, b| a >= b), "{printed}");

    let source = Model::open(path).unwrap();
    let tokenizer = source.require_tokenizer().unwrap();
    let weights = source.decoder::<Backend>(&Default::default()).unwrap();
    let options = GenerateOptions {
        max_new_tokens: 8,
        chooser: SamplerConfig::greedy().into(),
        ..GenerateOptions::default()
    };
    let ids = source.prompt(&tokenizer, "a source").unwrap();
    let target = Generator::new(&weights, &ids, &options).unwrap();
    let target: Vec<u32> = target.map(Result::unwrap).collect();
    let expected = tokenizer.decode(&target).unwrap();
    // Without `do_sample`, the most probable token is chosen.
    let mut model = emberlm::open::<Backend>(path).unwrap();
    let text = model.generate("a source").max_new_tokens(8).text();
    assert_eq!(text.unwrap(), expected);
}

#[test]
fn the_lora_example_trains_an_adapter_and_uses_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (base, data, run_folder) = (path("base"), path("data"), path("run"));
    write_model(base.as_ref());
    let text = tokenizer().encode(&"abcdefgh".repeat(20)).unwrap();
    let documents = |count: usize| vec![text.clone(); count];
    let options = TokenDatasetOptions::default();
    write_token_dataset(&data, &tokenizer(), documents(20), documents(2), &options).unwrap();
    let args = [&base[..], &data, &run_folder, "abc"];
    let output = run(env!("CARGO_BIN_EXE_lora"), &args).unwrap();
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(printed.trim_end().len(), 20, "{printed}");
    let about = Model::open(&run_folder).unwrap().about().unwrap();
    assert!(about.starts_with("an adapter of "), "{about}");
    assert!(about.ends_with(" after 20 steps"), "{about}");
}

#[test]
fn the_engine_example_continues_each_prompt() {
    let folder = tempfile::tempdir().unwrap();
    write_model(folder.path());
    let path = folder.path().to_str().unwrap();
    let output = run(env!("CARGO_BIN_EXE_engine"), &[path, "abc", "hg"]).unwrap();
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8(output.stdout).unwrap();
    let mut lines: Vec<&str> = printed.lines().collect();
    lines.sort_unstable();
    let lengths: Vec<usize> = lines.iter().map(|line| line.len()).collect();
    assert_eq!(lengths, [3 + 20, 2 + 20], "{printed}");
    assert!(lines[0].starts_with("abc") && lines[1].starts_with("hg"));
}
