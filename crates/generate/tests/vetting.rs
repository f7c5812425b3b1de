//! Vetting of clients' grammars: attacks are stopped in the sandbox, and vetted grammars constrain like
//! unvetted ones.

#![cfg(unix)]

use std::sync::LazyLock;

use emberlm_generate::{
    Chooser, ChooserConfig, Constraint, Grammar, GrammarSandbox, SamplerConfig, SettingError,
    VetError, Vocabulary, vet,
};
use emberlm_sandbox::{Handlers, WorkerCommand};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

const WORKER: &str = "EMBERLM_VETTING_TEST_WORKER";

static SANDBOX: LazyLock<GrammarSandbox> = LazyLock::new(|| {
    let test = [
        "--exact",
        "vetting::worker",
        "--nocapture",
        "--test-threads=1",
    ];
    GrammarSandbox::new(WorkerCommand::this_program(test).env(WORKER, "1"))
});

/// The worker's main function, written as a test that does nothing outside of a worker process.
#[test]
fn worker() {
    if std::env::var_os(WORKER).is_some() {
        vet::handlers(Handlers::new()).serve();
    }
}

/// Every byte, fragments of JSON, and words.
fn texts() -> Vec<Vec<u8>> {
    let mut random = ChaCha8Rng::seed_from_u64(3);
    let bytes = (0..=255).map(|byte| vec![byte]);
    let pieces = [
        "{\"", "\": ", "\": \"", "\", \"", "}", "]}", "true", "null", "12", "aa", "日本",
    ];
    let pieces = pieces.iter().map(|piece| piece.as_bytes().to_vec());
    let words = (0..4000).map(|_| {
        let length = random.random_range(2..9);
        (0..length)
            .map(|_| random.random_range(b'a'..=b'z'))
            .collect()
    });
    bytes
        .chain(pieces)
        .chain(words)
        .chain([Vec::new()])
        .collect()
}

fn end() -> u32 {
    texts().len() as u32 - 1
}

fn vocabulary() -> Vocabulary {
    Vocabulary::new(texts(), &[end()]).unwrap()
}

fn schema(schema: Value) -> Grammar {
    Grammar::JsonSchema(schema.to_string())
}

fn regex(pattern: impl Into<String>) -> Grammar {
    Grammar::Regex(pattern.into())
}

fn properties(count: usize, value: Value) -> Value {
    let properties = (0..count).map(|at| (format!("property_{at}"), value.clone()));
    Value::Object(properties.collect())
}

fn chain_of_references(length: usize) -> Grammar {
    let mut definitions: serde_json::Map<_, _> = (0..length)
        .map(|at| {
            (
                format!("d{at}"),
                json!({"$ref": format!("#/$defs/d{}", at + 1)}),
            )
        })
        .collect();
    definitions.insert(format!("d{length}"), json!({"type": "string"}));
    schema(json!({"$ref": "#/$defs/d0", "$defs": definitions}))
}

/// A realistic application schema: 200 properties of all types, with definitions that refer to each other and
/// to themselves.
fn large_schema() -> Grammar {
    let kinds = [
        json!({"type": "string"}),
        json!({"type": "string", "maxLength": 40, "minLength": 1}),
        json!({"type": "string", "format": "date-time"}),
        json!({"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3,6}$"}),
        json!({"type": "integer", "minimum": 0, "maximum": 65_535}),
        json!({"type": "number"}),
        json!({"enum": ["red", "green", "blue", null, 3]}),
        json!({"type": "array", "items": {"$ref": "#/$defs/item"}, "maxItems": 20}),
        json!({"anyOf": [{"$ref": "#/$defs/tree"}, {"type": "null"}]}),
        json!({"type": "object", "additionalProperties": {"type": "boolean"}}),
    ];
    let properties: serde_json::Map<_, _> = (0..200)
        .map(|at| (format!("field_{at}"), kinds[at % kinds.len()].clone()))
        .collect();
    let required: Vec<_> = properties.keys().take(60).cloned().collect();
    schema(json!({
        "type": "object", "properties": properties, "required": required, "additionalProperties": false,
        "$defs": {
            "item": {
                "type": "object", "required": ["name"],
                "properties": {"name": {"type": "string"}, "size": {"type": "number"}, "next": {"$ref": "#/$defs/item"}},
            },
            "tree": {
                "type": "object", "required": ["left"],
                "properties": {"left": {"anyOf": [{"$ref": "#/$defs/tree"}, {"type": "integer"}]}, "right": {"$ref": "#/$defs/tree"}},
            },
        },
    }))
}

fn realistic() -> Vec<Grammar> {
    let mut random = ChaCha8Rng::seed_from_u64(5);
    let mut words = || -> String { (0..12).map(|_| random.random_range('a'..='z')).collect() };
    let words: Vec<String> = (0..2000).map(|_| words()).collect();
    vec![
        large_schema(),
        schema(json!({})),
        schema(json!({"type": "object"})),
        schema(
            json!({"type": "array", "items": {"type": "array", "items": {"type": "integer"}, "maxItems": 1000}}),
        ),
        schema(json!({"type": "object", "properties": properties(200, json!({"type": "string"}))})),
        schema(json!({
            "type": "object", "properties": properties(500, json!({"type": "integer"})),
            "required": (0..500).map(|at| format!("property_{at}")).collect::<Vec<_>>(),
        })),
        schema(json!({"enum": &words[..1000]})),
        schema(json!({"type": "string", "maxLength": 10_000})),
        schema(json!({"oneOf": [{"const": "a"}, {"type": "integer", "multipleOf": 3}]})),
        schema(
            json!({"type": "object", "patternProperties": {"^x-[a-z]{1,20}$": {"type": "string"}}, "additionalProperties": false}),
        ),
        schema(json!({"type": "string", "format": "email"})),
        chain_of_references(50),
        Grammar::choice(&words),
        regex(r"(foo|ba[rz])+-[0-9]{2,4}( ü)?"),
        regex(r"\d{4}-[01]\d-[0-3]\d"),
        regex(r"(?i)yes|no"),
        regex(r"[^a-z\n]{3,9}/é+\\"),
        regex(r".{1,1000}"),
        regex(r"(\w+ ){5,50}\w+\."),
        regex(r"a{3,500}b?"),
        Grammar::Lark("start: \"a\" tail\ntail: \"b\" tail | \"c\"".to_owned()),
    ]
}

/// Tokens sampled from random logits.
fn written(constraint: &Constraint, seed: u64) -> Vec<u32> {
    let texts = texts();
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let config = ChooserConfig {
        sampler: SamplerConfig {
            seed,
            ..SamplerConfig::default()
        },
        constraint: Some(constraint.clone()),
        ..ChooserConfig::default()
    };
    let mut chooser = Chooser::new(&config, &[], texts.len(), 0).unwrap();
    let mut tokens = Vec::new();
    while !chooser.is_complete() && tokens.len() < 150 {
        let logit = |_| random.random_range(-2.0..2.0_f32);
        let logits: Vec<f32> = (0..texts.len()).map(logit).collect();
        tokens.push(chooser.choose(&logits).unwrap().id);
    }
    tokens
}

#[test]
fn vetted_grammars_match_unvetted_ones() {
    let vocabulary = vocabulary();
    for grammar in realistic() {
        let shown: String = grammar.source().chars().take(200).collect();
        let vetted = SANDBOX.vet(grammar.clone());
        let vetted = vetted.unwrap_or_else(|error| panic!("{shown}: {error}"));
        let vetted = Constraint::from_vetted(&vocabulary, vetted);
        let vetted = vetted.unwrap_or_else(|error| panic!("{shown}: {error}"));
        let unvetted = Constraint::new(&vocabulary, grammar).unwrap();
        for seed in 0..2 {
            assert_eq!(written(&vetted, seed), written(&unvetted, seed), "{shown}");
        }
    }
}

/// An expression whose lexer starts small and grows with each byte.
#[test]
#[cfg(target_os = "linux")]
fn growing_lexers_are_bounded() {
    let vocabulary = Vocabulary::new((0..=255).map(|byte| vec![byte]).collect(), &[]).unwrap();
    for pattern in [
        ".*a.{1000}.*b.{1000}.*c.{1000}",
        "(.{0,200}x){0,200}",
        "(.*[ab].{12})*",
    ] {
        let vetted = SANDBOX.vet(regex(pattern)).unwrap();
        let constraint = Constraint::from_vetted(&vocabulary, vetted).unwrap();
        let config = ChooserConfig {
            constraint: Some(constraint),
            ..ChooserConfig::default()
        };
        let mut chooser = Chooser::new(&config, &[], 256, 0).unwrap();
        let mut random = ChaCha8Rng::seed_from_u64(9);
        let before = memory();
        for _ in 0..3000 {
            let mut logits = [0.0; 256];
            logits[usize::from(b"abcx"[random.random_range(0..4)])] = 50.0;
            if chooser.is_complete() || chooser.choose(&logits).is_err() {
                break;
            }
        }
        let grown = memory().saturating_sub(before);
        assert!(grown < 150 << 20, "{pattern}: {grown} bytes");
    }
}

/// The memory of this process in bytes.
#[cfg(target_os = "linux")]
fn memory() -> usize {
    let sizes = std::fs::read_to_string("/proc/self/statm").unwrap();
    4096 * sizes.split(' ').nth(1).unwrap().parse::<usize>().unwrap()
}

fn refusal(grammar: Grammar) -> SettingError {
    let shown: String = grammar.source().chars().take(200).collect();
    match SANDBOX.vet(grammar) {
        Err(VetError::Refused(error)) => error,
        other => panic!("{shown}: {other:?}"),
    }
}

#[test]
fn attacks_are_rejected_and_the_sandbox_survives() {
    let any = json!({});
    let text = json!({"type": "string"});
    let all_required: Vec<_> = (0..7000).map(|at| format!("property_{at}")).collect();
    let mut nested = json!({"type": "integer"});
    for _ in 0..14 {
        nested = json!({"anyOf": [nested.clone(), {"type": "array", "items": nested}]});
    }
    let attacks = [
        regex("a?".repeat(20_000)),
        regex("a?".repeat(50_000)),
        regex("a*".repeat(50_000)),
        regex(".?".repeat(50_000)),
        regex("(?:a|)".repeat(40_000)),
        regex("(?:.?){2000}"),
        regex("((a{1,50}){1,50}){1,50}"),
        regex("((((a{999}){999}){999}){999}){999}"),
        regex(r"\pL".repeat(60_000)),
        schema(json!({"type": "string", "pattern": "a?".repeat(20_000)})),
        schema(json!({"type": "object", "properties": properties(7000, any)})),
        schema(json!({"type": "object", "properties": properties(2000, text.clone())})),
        schema(
            json!({"type": "object", "properties": properties(7000, text), "required": all_required}),
        ),
        schema(json!({"enum": (0..60_000).collect::<Vec<_>>()})),
        schema(nested),
        chain_of_references(5000),
        Grammar::Lark(format!("start: /{}/", "(?:a|.?)".repeat(10_000))),
        Grammar::Lark(
            "start: start start | \"a\" | \"\"".to_owned() + &" | start start start".repeat(2000),
        ),
    ];
    for attack in attacks {
        let shown: String = attack.source().chars().take(60).collect();
        let error = refusal(attack);
        eprintln!("{shown}: {}", error.rule);
        assert!(
            !error.rule.is_empty() && error.to_string().len() < 400,
            "{error}"
        );
    }
    SANDBOX.vet(regex("[a-z]+")).unwrap();
}
