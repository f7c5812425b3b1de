//! The pre-tokenizers of byte-level vocabularies, by the names that GGUF files have for them.
//!
//! Each is that of the `tokenizer.json` of the models with the name. llama.cpp omits their normalization to NFC.

use serde_json::{Value, json};

use crate::export::byte_level;
use crate::patterns;

/// Key of the name.
pub(super) const PRE: &str = "tokenizer.ggml.pre";

/// A pre-tokenizer.
#[derive(Clone, Copy)]
pub(super) struct PreTokenizer {
    names: &'static [&'static str],
    /// Unicode normalization before splitting.
    pub(super) normalizer: Option<&'static str>,
    splits: &'static [Split],
    /// True if a piece that is a token is not merged.
    pub(super) ignores_merges: bool,
    /// True if texts begin with the token of the beginning where the file does not set it.
    pub(super) begins: bool,
}

/// One step.
#[derive(Clone, Copy)]
enum Split {
    /// The matches of a regular expression.
    Regex(&'static str),
    /// GPT-2's pattern, built into the step that spells bytes.
    Gpt2,
    /// Single digits.
    Digits,
    /// Runs of digits.
    Numbers,
    /// Runs of punctuation.
    Punctuation,
}

/// Mistral's pattern since its Tekken tokenizer: o200k's without English contractions and with single digits.
const TEKKEN: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|",
    r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
);
/// Qwen's pattern since Qwen3.5: that of Qwen2 with marks as parts of words.
const QWEN3_5: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|",
    r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
);
/// BLOOM's pattern: everything but white space and sentence marks.
const BLOOM: &str = r" ?[^(\s|[.,!?…。，、।۔،])]+";
/// Three digits.
const THREE_DIGITS: &str = "[0-9][0-9][0-9]";

const PLAIN: PreTokenizer = PreTokenizer {
    names: &[],
    normalizer: None,
    splits: &[Split::Gpt2],
    ignores_merges: false,
    begins: false,
};

const ALL: [PreTokenizer; 14] = [
    PreTokenizer {
        names: &["gpt-2", "phi-2", "jina-es", "jina-de", "mellum", "exaone4"],
        ..PLAIN
    },
    PreTokenizer {
        names: &["mpt", "olmo"],
        normalizer: Some("NFC"),
        ..PLAIN
    },
    PreTokenizer {
        names: &["smollm", "starcoder", "refact", "codeshell"],
        splits: &[Split::Digits, Split::Gpt2],
        ..PLAIN
    },
    PreTokenizer {
        names: &["command-r"],
        normalizer: Some("NFC"),
        splits: &[Split::Digits, Split::Gpt2],
        ..PLAIN
    },
    PreTokenizer {
        names: &["llama-bpe", "llama3", "llama-v3"],
        splits: &[Split::Regex(patterns::LLAMA3)],
        ignores_merges: true,
        begins: true,
        ..PLAIN
    },
    PreTokenizer {
        names: &["dbrx", "smaug-bpe", "chatglm-bpe"],
        splits: &[Split::Regex(patterns::LLAMA3)],
        ..PLAIN
    },
    PreTokenizer {
        names: &["glm4"],
        splits: &[Split::Regex(patterns::LLAMA3)],
        ignores_merges: true,
        ..PLAIN
    },
    PreTokenizer {
        names: &["qwen2"],
        normalizer: Some("NFC"),
        splits: &[Split::Regex(patterns::QWEN2)],
        ..PLAIN
    },
    PreTokenizer {
        names: &["qwen35"],
        normalizer: Some("NFC"),
        splits: &[Split::Regex(QWEN3_5)],
        ..PLAIN
    },
    PreTokenizer {
        names: &["stablelm2", "deepseek-r1-qwen", "megrez"],
        splits: &[Split::Regex(patterns::QWEN2)],
        ..PLAIN
    },
    PreTokenizer {
        names: &["gpt-4o", "llama4"],
        splits: &[Split::Regex(patterns::O200K)],
        ..PLAIN
    },
    PreTokenizer {
        names: &["tekken"],
        splits: &[Split::Regex(TEKKEN)],
        ignores_merges: true,
        begins: true,
        ..PLAIN
    },
    PreTokenizer {
        names: &["falcon"],
        splits: &[
            Split::Punctuation,
            Split::Gpt2,
            Split::Numbers,
            Split::Regex(THREE_DIGITS),
        ],
        ..PLAIN
    },
    PreTokenizer {
        names: &["bloom", "poro-chat", "gpt3-finnish"],
        splits: &[Split::Regex(BLOOM)],
        ..PLAIN
    },
];

impl PreTokenizer {
    /// The steps in a `tokenizer.json`. One of them spells bytes.
    pub(super) fn steps(self) -> Vec<Value> {
        let step = |split: &Split| match split {
            Split::Regex(regex) => json!({
                "type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": false,
            }),
            Split::Gpt2 => json!({
                "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true,
            }),
            Split::Digits => json!({"type": "Digits", "individual_digits": true}),
            Split::Numbers => json!({"type": "Digits", "individual_digits": false}),
            Split::Punctuation => json!({"type": "Punctuation", "behavior": "Contiguous"}),
        };
        let spells = self.splits.iter().any(|split| matches!(split, Split::Gpt2));
        let mut steps: Vec<Value> = self.splits.iter().map(step).collect();
        if !spells {
            steps.push(byte_level());
        }
        steps
    }
}

/// The step that spells bytes by characters, in [`canonical`] form.
pub(super) const BYTES: &str = "bytes";

/// The steps of the pre-tokenizer of a `tokenizer.json` in a form in which equal steps are equal texts; `None` if a step
/// is of another kind than those of the table.
pub(super) fn canonical(pre_tokenizer: &Value) -> Option<Vec<String>> {
    let mut steps = Vec::new();
    match pre_tokenizer["pretokenizers"].as_array() {
        Some(list) => {
            for step in list {
                steps.extend(canonical(step)?);
            }
        }
        None => steps.extend(canonical_step(pre_tokenizer)?),
    }
    Some(steps)
}

fn canonical_step(step: &Value) -> Option<Vec<String>> {
    let flag = |name: &str| step[name].as_bool();
    let split = |pattern: &str| format!("split {pattern}");
    Some(match step["type"].as_str()? {
        "Split" if step["behavior"] == "Isolated" && flag("invert") != Some(true) => {
            vec![split(step["pattern"]["Regex"].as_str()?)]
        }
        "ByteLevel" if flag("add_prefix_space") == Some(true) => return None,
        "ByteLevel" if flag("use_regex") == Some(false) => vec![BYTES.to_owned()],
        "ByteLevel" => vec![split(patterns::GPT2), BYTES.to_owned()],
        "Digits" => vec![format!(
            "digits {}",
            flag("individual_digits") == Some(true)
        )],
        "Punctuation" => vec![format!("punctuation {}", step["behavior"])],
        _ => return None,
    })
}

/// A pre-tokenizer as it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WrittenPre {
    /// Its name.
    pub(super) name: &'static str,
    /// In which texts it splits otherwise.
    pub(super) difference: Option<&'static str>,
}

/// The pre-tokenizer of vocabularies whose pieces do not matter.
pub(super) fn first_name() -> WrittenPre {
    WrittenPre {
        name: ALL[0].names[0],
        difference: None,
    }
}

/// Finds the pre-tokenizer with the given steps in [`canonical`] form. `is_complete` returns true if `ignores_merges` does
/// not matter. cl100k's pattern has no name; Llama 3's is the same but for white space at the end of a text.
pub(super) fn written(
    normalizer: &Value,
    steps: &[String],
    ignores_merges: bool,
    is_complete: impl Fn() -> bool,
) -> Option<WrittenPre> {
    let [own, other] =
        [patterns::CL100K, patterns::LLAMA3].map(|pattern| format!("split {pattern}"));
    let is_cl100k = steps.contains(&own);
    let steps: Vec<&String> = steps
        .iter()
        .map(|step| if *step == own { &other } else { step })
        .collect();
    let normalizer = match normalizer["normalizers"].as_array().map(Vec::as_slice) {
        Some([]) => &Value::Null,
        Some([only]) => only,
        _ => normalizer,
    };
    let splits = |known: &&PreTokenizer| {
        let own = known
            .normalizer
            .map_or(Value::Null, |kind| json!({"type": kind}));
        let found = canonical(&json!({"pretokenizers": known.steps()}));
        own == *normalizer && found.is_some_and(|found| found.iter().eq(steps.iter().copied()))
    };
    let exact = |known: &&PreTokenizer| known.ignores_merges == ignores_merges;
    let mut all = ALL.iter().filter(splits);
    let found = all
        .clone()
        .find(exact)
        .or_else(|| all.next().filter(|_| is_complete()))?;
    Some(WrittenPre {
        name: found.names[0],
        difference: is_cl100k.then_some(
            "white space after a line break at the end of a text may have other ids in llama.cpp",
        ),
    })
}

/// Finds a pre-tokenizer by its name.
pub(super) fn named(name: &str) -> Option<PreTokenizer> {
    ALL.into_iter().find(|known| known.names.contains(&name))
}

/// All names.
pub(super) fn names() -> Vec<&'static str> {
    ALL.iter().flat_map(|known| known.names).copied().collect()
}
