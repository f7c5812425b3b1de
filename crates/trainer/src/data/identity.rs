//! Identifies datasets, so that a run is not resumed on different data.

use emberlm_data::{Dataset, Split, SplitManifest};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The identity of a dataset: the tokens of both splits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DataIdentity {
    /// The training split.
    pub train: SplitIdentity,
    /// The validation split.
    pub val: SplitIdentity,
}

/// The identity of a split.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SplitIdentity {
    /// The number of tokens.
    pub tokens: u64,
    /// The BLAKE3 hash of the hashes of all shards and masks, in order.
    pub blake3: String,
}

impl DataIdentity {
    /// The identity of a dataset, according to its manifest.
    pub fn of(dataset: &Dataset) -> Self {
        let split = |split| SplitIdentity::of(dataset.manifest().split(split));
        Self {
            train: split(Split::Train),
            val: split(Split::Val),
        }
    }

    /// Describes the first difference from `now`. `None` if both are equal.
    pub fn difference(&self, now: &Self) -> Option<String> {
        let pairs = [
            (Split::Train, &self.train, &now.train),
            (Split::Val, &self.val, &now.val),
        ];
        let (split, then, now) = pairs.into_iter().find(|(_, then, now)| then != now)?;
        Some(match then.tokens == now.tokens {
            true => format!("its {split} split has other tokens"),
            false => format!(
                "its {split} split had {} tokens and has {}",
                then.tokens, now.tokens
            ),
        })
    }
}

impl SplitIdentity {
    fn of(split: &SplitManifest) -> Self {
        let mut hasher = blake3::Hasher::new();
        for shard in &split.shards {
            hasher.update(shard.blake3.as_bytes());
            if let Some(mask) = &shard.mask {
                hasher.update(mask.blake3.as_bytes());
            }
        }
        Self {
            tokens: split.tokens,
            blake3: hasher.finalize().to_string(),
        }
    }
}
