//! Constrained generation: outputs are checked with serde and the regex crate.

use crate::support::{DRAWS, assert_drawn_from, softmax};
use crate::tables::check_table;
use burn_flex::Flex;
use emberlm_generate::{
    Chooser, ChooserConfig, Constraint, Finish, GenerateOptions, Generator, Grammar, LogitsError,
    SamplerConfig, Vocabulary,
};
use emberlm_model::config::Init;
use emberlm_model::{TransformerConfig, families};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use regex_automata::meta::Regex;
use serde::Deserialize;

/// Every byte, and tokens as in a trained vocabulary, some of which span several grammar rules.
fn texts() -> Vec<Vec<u8>> {
    let bytes = (0..=255).map(|byte| vec![byte]);
    let pieces = [
        "{\"", "\": ", "\": \"", "\", \"", "}", "]}", ", ", "[\"", "true", "null", "name", "\"age",
        "12", "-0.", "foo", "bar", "ba", "é", "日本",
    ];
    let pieces = pieces.iter().map(|piece| piece.as_bytes().to_vec());
    bytes.chain(pieces).chain([Vec::new()]).collect()
}

fn end() -> u32 {
    texts().len() as u32 - 1
}

fn vocabulary() -> Vocabulary {
    Vocabulary::new(texts(), &[end()]).unwrap()
}

fn compiled(grammar: Grammar) -> Constraint {
    Constraint::new(&vocabulary(), grammar).unwrap()
}

fn regex(pattern: &str) -> Constraint {
    compiled(Grammar::Regex(pattern.to_owned()))
}

fn config(constraint: &Constraint, seed: u64) -> ChooserConfig {
    ChooserConfig {
        sampler: SamplerConfig {
            seed,
            ..SamplerConfig::default()
        },
        constraint: Some(constraint.clone()),
        ..ChooserConfig::default()
    }
}

/// Text sampled from random logits, until it is complete or chooses to end. `towards` is added to the end
/// token's logit.
fn written(constraint: &Constraint, seed: u64, towards: f32) -> String {
    let texts = texts();
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut chooser = Chooser::new(&config(constraint, seed), &[], texts.len(), 0).unwrap();
    let mut text = Vec::new();
    for _ in 0..2_000 {
        let logit = |_| random.random_range(-2.0..2.0_f32);
        let mut logits: Vec<f32> = (0..texts.len()).map(logit).collect();
        logits[end() as usize] += towards;
        let id = chooser.choose(&logits).unwrap().id;
        if id == end() {
            assert!(chooser.is_complete());
            break;
        }
        text.extend(&texts[id as usize]);
        if chooser.is_complete() {
            break;
        }
    }
    assert!(chooser.is_complete(), "{}", String::from_utf8_lossy(&text));
    String::from_utf8(text).unwrap()
}

const SCHEMA: &str = r##"{
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["a", "b\"", "c"]}, "maxItems": 3},
        "address": {"$ref": "#/$defs/address"},
        "happy": {"type": ["boolean", "null"]}
    },
    "required": ["name", "age", "tags", "address"],
    "additionalProperties": false,
    "$defs": {
        "address": {
            "type": "object",
            "properties": {"zip": {"type": "string", "pattern": "^[0-9]{5}$"}},
            "required": ["zip"],
            "additionalProperties": false
        }
    }
}"##;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Person {
    name: String,
    age: u8,
    tags: Vec<Tag>,
    address: Address,
    #[allow(
        dead_code,
        reason = "that it is a boolean, null or not there is what is read"
    )]
    happy: Option<bool>,
}

#[derive(Debug, Deserialize)]
enum Tag {
    #[serde(rename = "a")]
    A,
    #[serde(rename = "b\"")]
    B,
    #[serde(rename = "c")]
    C,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Address {
    zip: String,
}

fn assert_is_a_person(text: &str) {
    let person: Person = serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"));
    assert!(person.name.chars().count() <= 12, "{text}");
    assert!(person.age <= 150 && person.tags.len() <= 3, "{text}");
    let zip = &person.address.zip;
    assert!(
        zip.len() == 5 && zip.bytes().all(|b| b.is_ascii_digit()),
        "{text}"
    );
    // Properties in the schema's order, with the whitespace of Python's json.dumps.
    assert!(text.starts_with("{\"name\": \""), "{text}");
    let place = |key: &str| text.find(&format!(", \"{key}\": ")).unwrap();
    assert!(
        place("age") < place("tags") && place("tags") < place("address"),
        "{text}"
    );
}

#[test]
fn json_matches_its_schema() {
    let constraint = compiled(Grammar::JsonSchema(SCHEMA.to_owned()));
    let mut tags = [0; 3];
    let mut names = std::collections::HashSet::new();
    for seed in 0..60 {
        let text = written(&constraint, seed, 0.0);
        assert_is_a_person(&text);
        let person: Person = serde_json::from_str(&text).unwrap();
        person.tags.iter().for_each(|tag| match tag {
            Tag::A => tags[0] += 1,
            Tag::B => tags[1] += 1,
            Tag::C => tags[2] += 1,
        });
        names.insert(person.name);
    }
    assert!(
        tags.iter().all(|count| *count > 0) && names.len() > 30,
        "a model's own choice"
    );
}

/// End to end, with a decoder of random weights.
#[test]
fn a_decoder_writes_json_and_ends() {
    let mut raw = families::preset("pocket-tales").unwrap().config;
    raw.vocab_size = Some(texts().len());
    raw.seq_len = 64;
    raw.d_model = 24;
    raw.n_layers = 1;
    raw.init = Init::Normal {
        std: 0.4,
        scale_residual: false,
    };
    let decoder = TransformerConfig::try_from(raw).unwrap();
    let decoder = decoder.init::<Flex>(3, &Default::default());
    let constraint = compiled(Grammar::JsonSchema(SCHEMA.to_owned()));
    for seed in 0..3 {
        let options = GenerateOptions {
            max_new_tokens: 1_000,
            stop_tokens: vec![end()],
            chooser: config(&constraint, seed),
            sample: 0,
        };
        let mut generator = Generator::new(&decoder, &[3, 7], &options).unwrap();
        let ids: Vec<u32> = generator.by_ref().map(Result::unwrap).collect();
        assert_eq!(generator.finish(), Some(Finish::Complete));
        let text = ids.iter().flat_map(|&id| texts()[id as usize].clone());
        assert_is_a_person(&String::from_utf8(text.collect()).unwrap());
    }
}

#[test]
fn text_matches_its_regex_in_full() {
    for pattern in [
        r"(foo|ba[rz])+-[0-9]{2,4}( ü)?",
        r"\d{4}-[01]\d-[0-3]\d",
        r"(?i)yes|no",
        r"^(so|so)$",
        r"[^a-z\n]{3,9}/é+\\",
        r"a\.b\/c|",
        "日本?",
    ] {
        let constraint = regex(pattern);
        let whole = Regex::new(&format!("^(?:{pattern})$")).unwrap();
        for seed in 0..15 {
            let text = written(&constraint, seed, 2.0);
            assert!(whole.is_match(&text), "{text:?} for {pattern}");
        }
    }
}

/// The output satisfies the grammar even if the model strongly prefers to end, and ends when nothing may
/// follow even if the model avoids it.
#[test]
fn generation_ends_only_where_the_grammar_allows() {
    let at_least_three = regex("[0-9]{3,}");
    let three = regex("[0-9]{3}");
    for seed in 0..10 {
        let text = written(&at_least_three, seed, 1e3);
        assert!(
            (3..=4).contains(&text.len()),
            "a piece has two digits: {text}"
        );
        assert_eq!(written(&three, seed, -1e3).len(), 3);
    }
    // The empty text.
    let chooser = Chooser::new(&config(&regex(""), 0), &[], texts().len(), 0).unwrap();
    assert!(chooser.is_complete());
}

#[test]
fn generation_ends_without_an_end_token_when_complete() {
    let vocabulary = Vocabulary::new(texts(), &[]).unwrap();
    let constraint = Constraint::new(&vocabulary, Grammar::Regex("a{2}".to_owned())).unwrap();
    let mut chooser = Chooser::new(&config(&constraint, 0), &[], texts().len(), 0).unwrap();
    let logits = vec![0.0; texts().len()];
    for expected in [false, true] {
        assert_eq!(chooser.choose(&logits).unwrap().id, u32::from(b'a'));
        assert_eq!(chooser.is_complete(), expected);
    }
    let error = chooser.choose(&logits).unwrap_err();
    assert!(matches!(error, LogitsError::NoneAllowed { .. }), "{error}");
}

#[test]
fn choices_and_lark_grammars_are_followed() {
    let texts = ["a.b", "(c)", "日本", "a.bc"];
    let choice = compiled(Grammar::choice(&texts));
    let written_ones: Vec<String> = (0..40).map(|seed| written(&choice, seed, 0.0)).collect();
    for text in texts {
        assert!(written_ones.iter().any(|one| one == text), "{text}");
    }
    assert!(written_ones.iter().all(|one| texts.contains(&one.as_str())));
    let lark = "start: \"foo\" sum\nsum: NUMBER (\"+\" NUMBER)*\nNUMBER: /[1-9]/";
    let constraint = compiled(Grammar::Lark(lark.to_owned()));
    let expected = Regex::new(r"^foo[1-9](\+[1-9])*$").unwrap();
    for seed in 0..10 {
        let text = written(&constraint, seed, 1.0);
        assert!(expected.is_match(&text), "{text}");
    }
}

/// Samples follow the model's distribution, renormalized over the allowed tokens. Log-probabilities are those
/// of the full distribution.
#[test]
fn sampling_renormalizes_over_allowed_tokens() {
    let texts = ["a", "b", "c", "ab", "d", ""].map(|text| text.as_bytes().to_vec());
    let vocabulary = Vocabulary::new(texts.to_vec(), &[5]).unwrap();
    let constraint = Constraint::new(&vocabulary, Grammar::Regex("a?b|d*".to_owned())).unwrap();
    let logits = [0.5, -1.0, 3.0, 0.0, 1.0, 0.2];
    let mut counts = vec![0; 6];
    let mut config = config(&constraint, 1);
    config.sampler.temperature = 1.5;
    config.top_logprobs = Some(1);
    let all = softmax(&[0.5, -1.0, 3.0, 0.0, 1.0, 0.2], 1.0);
    for stream in 0..DRAWS as u64 / 4 {
        let mut chooser = Chooser::new(&config, &[], 6, stream).unwrap();
        let chosen = chooser.choose(&logits.map(|x| x as f32)).unwrap();
        counts[chosen.id as usize] += 1;
        let logprob = f64::from(chosen.logprob.unwrap());
        assert!((logprob - all[chosen.id as usize].ln()).abs() < 1e-6);
        assert_eq!(chosen.alternatives[0].0, 2);
    }
    let mut allowed = logits;
    allowed[2] = f64::NEG_INFINITY;
    assert_drawn_from(&counts, &softmax(&allowed, 1.5));
}

#[test]
fn sequences_of_one_constraint_are_independent() {
    fn shared<T: Send + Sync + Clone>(_: &T) {}
    let constraint = regex("ab|ac");
    shared(&constraint);
    let config = config(&constraint, 0);
    let mut choosers =
        [0, 1].map(|stream| Chooser::new(&config, &[], texts().len(), stream).unwrap());
    let towards = |byte: u8| {
        let mut logits = vec![0.0; texts().len()];
        logits[usize::from(byte)] = 1e3;
        logits
    };
    for (bytes, complete) in [(*b"aa", false), (*b"bc", true)] {
        for (chooser, byte) in choosers.iter_mut().zip(bytes) {
            assert_eq!(chooser.choose(&towards(byte)).unwrap().id, u32::from(byte));
            assert_eq!(chooser.is_complete(), complete);
        }
    }
}

#[test]
fn an_inexpressible_grammar_is_an_error() {
    let texts = ["a", "b"].map(|text| text.as_bytes().to_vec());
    let vocabulary = Vocabulary::new(texts.to_vec(), &[]).unwrap();
    let constraint = Constraint::new(&vocabulary, Grammar::Regex("ac".to_owned())).unwrap();
    let mut chooser = Chooser::new(&config(&constraint, 0), &[], 2, 0).unwrap();
    let mut choose = || chooser.choose(&[0.0, 1.0]).map(|chosen| chosen.id);
    let made = [choose(), choose()];
    let error = made.into_iter().find_map(Result::err).unwrap().to_string();
    assert_eq!(
        error,
        "the constraint allows no token: no token of the vocabulary can continue it"
    );
    let error = Chooser::new(&config(&constraint, 0), &[], 3, 0).unwrap_err();
    let expected = "vocabulary = 2 ids: must have as many ids as the model: 3";
    assert_eq!(error.to_string(), expected);
}

/// After `a` the text may end, and no token of the vocabulary may follow.
#[test]
fn constraint_is_complete_when_no_token_fits() {
    let texts = ["a", "b"].map(|text| text.as_bytes().to_vec());
    let vocabulary = Vocabulary::new(texts.to_vec(), &[]).unwrap();
    let constraint = Constraint::new(&vocabulary, Grammar::Regex("ac?".to_owned())).unwrap();
    let mut chooser = Chooser::new(&config(&constraint, 0), &[], 2, 0).unwrap();
    assert!(!chooser.is_complete());
    assert_eq!(chooser.choose(&[0.0, 1.0]).unwrap().id, 0);
    assert!(chooser.is_complete());
}

#[test]
fn ids_without_a_text_are_never_chosen() {
    let long = vec![b'a'; 5_000];
    let texts = vec![
        vec![],
        vec![0xFF, b'a'],
        long,
        b"a".to_vec(),
        b"a".to_vec(),
        b"a".to_vec(),
    ];
    let vocabulary = Vocabulary::new(texts, &[5, 77]).unwrap();
    let constraint = Constraint::new(&vocabulary, Grammar::Regex("a+".to_owned())).unwrap();
    let mut chooser = Chooser::new(&config(&constraint, 0), &[], 6, 0).unwrap();
    let chosen = chooser.choose(&[9.0, 9.0, 9.0, 0.0, 0.0, 9.0]).unwrap();
    assert!([3, 4].contains(&chosen.id), "{chosen:?}");
}

#[test]
fn invalid_grammars_are_rejected_with_a_reason() {
    let vocabulary = vocabulary();
    let error = |grammar| {
        Constraint::new(&vocabulary, grammar)
            .unwrap_err()
            .to_string()
    };
    check_table("grammars", |row| {
        let (kind, text) = row.split_once(' ').unwrap();
        let text = text.to_owned();
        let error = error(match kind {
            "json_schema" => Grammar::JsonSchema(text),
            "regex" => Grammar::Regex(text),
            _ => Grammar::Lark(text),
        });
        assert!(!error.contains("panic"), "{error}");
        assert!(kind != "json_schema" || !error.contains('<'), "{error}");
        // The compiler shows the place in further lines.
        error.lines().collect::<Vec<_>>().join(" ")
    });
    let long = error(Grammar::Regex("a".repeat((256 << 10) + 1)));
    assert!(
        long.ends_with("…: must have at most 262144 bytes"),
        "{long}"
    );
    assert!(long.len() < 200, "{long}");
}

#[test]
fn a_schema_of_unbounded_depth_is_rejected() {
    let vocabulary = vocabulary();
    let deep = r#"{"items":"#.repeat(20_000) + &"}".repeat(20_000);
    let error = Constraint::new(&vocabulary, Grammar::JsonSchema(deep)).unwrap_err();
    assert!(error.to_string().contains("recursion limit"), "{error}");
    let deep = "(".repeat(10_000) + &")".repeat(10_000);
    let error = Constraint::new(&vocabulary, Grammar::Regex(deep)).unwrap_err();
    assert!(error.to_string().starts_with("regex = (((("), "{error}");
}

/// The end token is likely, and must wait for the end of the constrained text.
#[test]
fn a_constraint_can_begin_after_one_of_several_markers() {
    for marker in ["}", "foob", "日本"] {
        let constraint = regex("[0-9]{3}").after(&["never written", marker]);
        assert_ne!(constraint, regex("[0-9]{3}"));
        let mut lengths = Vec::new();
        for seed in 0..20 {
            let (texts, steered) = (texts(), marker.as_bytes());
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            let config = config(&constraint, seed);
            let mut chooser = Chooser::new(&config, &[], texts.len(), 0).unwrap();
            let mut text: Vec<u8> = Vec::new();
            while !chooser.is_complete() {
                let logit = |id: usize| {
                    let is_next = steered.starts_with(&texts[id]) || texts[id] == steered[1..];
                    random.random_range(-2.0..2.0_f32) + if is_next { 3.0 } else { 0.0 }
                };
                let mut logits: Vec<f32> = (0..texts.len()).map(logit).collect();
                logits[end() as usize] = 9.0;
                let id = chooser.choose(&logits).unwrap().id;
                text.extend(&texts[id as usize]);
                assert!(text.len() < 100_000);
            }
            let at = text.windows(marker.len()).position(|it| it == steered);
            let rest = &text[at.unwrap() + marker.len()..];
            // Within a token, text may follow the marker: "ba" completes "foob".
            let letters = rest.iter().take_while(|byte| byte.is_ascii_alphabetic());
            let rest = &rest[letters.count()..];
            assert!(
                rest.len() == 3 && rest.iter().all(u8::is_ascii_digit),
                "{rest:?}"
            );
            lengths.push(text.len());
        }
        assert!(lengths.iter().max() > lengths.iter().min());
    }
}
