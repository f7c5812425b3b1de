//! The fuzzers of `fuzz/fuzz_targets`.

use crate::error::Error;

/// A fuzzer.
#[derive(Debug, PartialEq)]
pub struct Target {
    /// The name of the program.
    pub name: &'static str,
    /// Folders of the repository with the initial inputs.
    pub seeds: &'static [&'static str],
    /// Maximum length of an input in bytes.
    pub longest: u32,
    /// Seconds after which an input is a finding, far above the time of any input on a busy machine.
    pub timeout: u32,
}

/// Memory limit of a fuzzer's process in MiB. An input that exceeds it is a finding.
const MEMORY_MIB: u32 = 1500;

impl Target {
    /// libFuzzer's arguments with the limits of an input.
    pub fn limits(&self) -> [String; 3] {
        [
            format!("-rss_limit_mb={MEMORY_MIB}"),
            format!("-timeout={}", self.timeout),
            format!("-max_len={}", self.longest),
        ]
    }
}

/// All fuzzers.
const TARGETS: [Target; 11] = [
    Target {
        name: "template",
        seeds: &[
            "crates/tokenizer/tests/fixtures/chat/templates",
            "crates/tokenizer/src/chat/templates",
        ],
        longest: 8 << 10,
        timeout: 10,
    },
    Target {
        name: "tokenizer",
        seeds: &[
            "crates/tokenizer/tests/fixtures/chat",
            "crates/tokenizer/tests/fixtures/files",
            "crates/tokenizer/tests/fixtures/sentence_piece",
            "crates/tokenizer/tests/fixtures/trained",
        ],
        longest: 16 << 10,
        timeout: 10,
    },
    Target {
        name: "inputs",
        seeds: &["crates/data/tests/fixtures/inputs"],
        longest: 16 << 10,
        timeout: 25,
    },
    Target {
        name: "shard",
        seeds: &["crates/data/tests/fixtures/datasets"],
        longest: 8 << 10,
        timeout: 25,
    },
    Target {
        name: "manifest",
        seeds: &["fuzz/seeds/manifest"],
        longest: 8 << 10,
        timeout: 25,
    },
    Target {
        name: "config",
        seeds: &[
            "crates/model/tests/fixtures/corpus/config",
            "crates/model/tests/fixtures/families",
        ],
        longest: 8 << 10,
        timeout: 25,
    },
    Target {
        name: "weights",
        seeds: &[
            "crates/model/tests/fixtures/corpus/weights",
            "crates/model/tests/fixtures/corpus/index",
        ],
        longest: 8 << 10,
        timeout: 25,
    },
    Target {
        name: "gguf",
        seeds: &["crates/model/tests/fixtures/gguf"],
        longest: 64 << 10,
        timeout: 25,
    },
    Target {
        name: "adapter",
        seeds: &[
            "crates/model/tests/fixtures/adapters/llama-lora",
            "crates/model/tests/fixtures/adapters/llama-dora",
            "crates/model/tests/fixtures/adapters/llama-saved-norms",
        ],
        longest: 8 << 10,
        timeout: 25,
    },
    Target {
        name: "bodies",
        seeds: &["fuzz/seeds/bodies"],
        longest: 4 << 10,
        timeout: 25,
    },
    Target {
        name: "events",
        seeds: &["fuzz/seeds/events"],
        longest: 8 << 10,
        timeout: 25,
    },
];

/// The fuzzers with the given names, or all.
pub fn chosen(names: &[String]) -> Result<Vec<&'static Target>, Error> {
    if names.is_empty() {
        return Ok(TARGETS.iter().collect());
    }
    let find = |name: &String| {
        let mut targets = TARGETS.iter();
        let found = targets.find(|target| target.name == name);
        found.ok_or_else(|| Error::NoTarget {
            name: name.clone(),
            known: TARGETS.map(|target| target.name).join(", "),
        })
    };
    names.iter().map(find).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace;

    #[test]
    fn every_fuzzer_is_listed_with_its_seeds() {
        let root = workspace::metadata().unwrap().workspace_root;
        let listed: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
        let entries = std::fs::read_dir(root.join("fuzz/fuzz_targets")).unwrap();
        let mut files = 0;
        for entry in entries {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            assert!(listed.contains(&name.as_str()), "{name}");
            files += 1;
        }
        assert_eq!(files, listed.len());
        for seed in TARGETS.iter().flat_map(|target| target.seeds) {
            assert!(root.join(seed).is_dir(), "{seed}");
        }
    }

    #[test]
    fn an_unknown_name_is_an_error_with_the_known_ones() {
        let error = chosen(&["shards".to_owned()]).unwrap_err();
        assert!(error.to_string().contains("shard, manifest"), "{error}");
        assert_eq!(chosen(&[]).unwrap().len(), TARGETS.len());
    }
}
