//! The check before the first step that all ranks train the same run.
//!
//! Ranks with different settings, data or weights would exchange gradients of different models, or would wait for
//! each other forever.

use std::collections::{BTreeMap, BTreeSet};

use emberlm_kernels::TrainingBackend;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::config::RunConfig;
use crate::data::identity::DataIdentity;
use crate::error::TrainError;
use crate::peers::shards::DividedParameter;
use crate::peers::{Peers, weights_hash};
use crate::run::initial_state::InitialState;
use crate::run::resume;

/// Settings that may differ between ranks. The contents of the data and the weights are compared instead of their
/// paths, and batches do not depend on the number of workers.
const MAY_DIFFER: [&str; 5] = [
    "data.dataset",
    "data.validation",
    "data.mix.*.dataset",
    "train.from",
    "train.loader_workers",
];

/// The most differing settings listed in an error.
const SHOWN_SETTINGS: usize = 6;

/// The properties of a run that all ranks must share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct RankDescription {
    version: String,
    settings: BTreeMap<String, Value>,
    data: Vec<DataIdentity>,
    step: usize,
    /// The BLAKE3 hash of the trained parameters' paths and shapes. A device whose buffers are too small for a token table
    /// stores it in several parameters.
    parameters: String,
    /// The BLAKE3 hash of the initial weights.
    weights: String,
}

/// Compares this rank's run with those of all others.
///
/// # Errors
/// A rank differs from rank 0, or cannot be reached. Differences are the same error on every rank.
pub(crate) fn check<B: TrainingBackend>(
    peers: &dyn Peers<B::InnerBackend>,
    config: &RunConfig,
    data: &[DataIdentity],
    initial: &InitialState<B>,
) -> Result<(), TrainError> {
    let world_size = peers.rank().world_size();
    if world_size == 1 {
        return Ok(());
    }
    let mut settings = resume::flat(config);
    settings.retain(|key, _| !MAY_DIFFER.contains(&resume::general(key).as_str()));
    let own = RankDescription {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        settings,
        data: data.to_vec(),
        step: initial.state.step,
        parameters: parameters_hash(initial.optimizer.shards().map_or(&[], |it| it.parameters())),
        weights: weights_hash(&initial.model),
    };
    // A description always serializes. One of another version may have other fields.
    let own = serde_json::to_string(&own).unwrap_or_default();
    let all = peers.gather_texts(&own)?;
    match first_difference(&all) {
        Some((rank, difference)) => Err(TrainError::RanksDiffer {
            rank,
            world_size,
            difference,
        }),
        None => Ok(()),
    }
}

/// The first rank that differs from rank 0, and the difference.
fn first_difference(all: &[String]) -> Option<(usize, String)> {
    let read = |text: &str| serde_json::from_str::<RankDescription>(text).ok();
    let (first, others) = all.split_first()?;
    let expected = read(first);
    (1..).zip(others).find_map(|(rank, text)| {
        let difference = match (&expected, read(text)) {
            (Some(expected), Some(found)) => expected.difference(&found),
            // Both are of a version with other fields than this one.
            _ if first == text => None,
            _ => Some("it runs another version of emberlm".to_owned()),
        };
        difference.map(|difference| (rank, difference))
    })
}

impl RankDescription {
    /// Describes the first difference of `other` from rank 0's description.
    fn difference(&self, other: &Self) -> Option<String> {
        let differs = |name, own: &str, other: &str| {
            (own != other).then(|| format!("{name} is {other}, and {own} on rank 0"))
        };
        differs("the version of emberlm", &self.version, &other.version)
            .or_else(|| self.data_difference(other))
            .or_else(|| self.setting_differences(other))
            .or_else(|| {
                let [own, other] = [self.step, other.step].map(|step| step.to_string());
                differs("the step of its checkpoint", &own, &other)
            })
            .or_else(|| {
                let other_parts = self.parameters != other.parameters;
                other_parts.then(|| "its device stores the parameters in other parts".to_owned())
            })
            .or_else(|| {
                let other_weights = self.weights != other.weights;
                other_weights.then(|| "its initial weights are other numbers".to_owned())
            })
    }

    fn setting_differences(&self, other: &Self) -> Option<String> {
        let keys: BTreeSet<&String> = self.settings.keys().chain(other.settings.keys()).collect();
        let shown = |value: Option<&Value>| value.map_or("unset".to_owned(), Value::to_string);
        let differences: Vec<String> = keys
            .into_iter()
            .filter(|key| self.settings.get(*key) != other.settings.get(*key))
            .map(|key| {
                let [own, other] = [self, other].map(|it| shown(it.settings.get(key)));
                format!("{key} is {other}, and {own} on rank 0")
            })
            .take(SHOWN_SETTINGS)
            .collect();
        (!differences.is_empty()).then(|| differences.join("; "))
    }

    fn data_difference(&self, other: &Self) -> Option<String> {
        if self.data.len() != other.data.len() {
            let [own, other] = [self.data.len(), other.data.len()];
            return Some(format!("it has {other} datasets, and rank 0 has {own}"));
        }
        let pairs = self.data.iter().zip(&other.data);
        let (place, _) = (0..).zip(pairs).find(|(_, (own, other))| own != other)?;
        Some(match self.data.len() {
            1 => "its dataset has other tokens than that of rank 0".to_owned(),
            _ => format!("its dataset {place} of the mix has other tokens than that of rank 0"),
        })
    }
}

/// The BLAKE3 hash of the paths and shapes of divided parameters.
fn parameters_hash(parameters: &[DividedParameter]) -> String {
    let mut hasher = blake3::Hasher::new();
    for parameter in parameters {
        hasher.update(format!("{} {:?}\n", parameter.path, parameter.shape).as_bytes());
    }
    hasher.finalize().to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn described(change: impl FnOnce(&mut RankDescription)) -> String {
        let mut description = RankDescription {
            version: "0.1.0".to_owned(),
            settings: [("train.seed".to_owned(), json!(1))].into(),
            data: Vec::new(),
            step: 0,
            parameters: "12".to_owned(),
            weights: "ab".to_owned(),
        };
        change(&mut description);
        serde_json::to_string(&description).unwrap()
    }

    fn difference(change: impl FnOnce(&mut RankDescription)) -> Option<(usize, String)> {
        let same = || described(|_| {});
        first_difference(&[same(), same(), described(change)])
    }

    #[test]
    fn differences_name_the_rank_and_both_values() {
        assert_eq!(difference(|_| {}), None);
        let named = |text: &str| Some((2, text.to_owned()));
        let seed = |it: &mut RankDescription| {
            it.settings.insert("train.seed".to_owned(), json!(2));
        };
        assert_eq!(difference(seed), named("train.seed is 2, and 1 on rank 0"));
        assert_eq!(
            difference(|it| it.version = "0.2.0".to_owned()),
            named("the version of emberlm is 0.2.0, and 0.1.0 on rank 0")
        );
        assert_eq!(
            difference(|it| it.step = 6),
            named("the step of its checkpoint is 6, and 0 on rank 0")
        );
        assert_eq!(
            difference(|it| it.parameters = "34".to_owned()),
            named("its device stores the parameters in other parts")
        );
        assert_eq!(
            difference(|it| it.weights = "cd".to_owned()),
            named("its initial weights are other numbers")
        );
    }

    #[test]
    fn descriptions_with_other_fields_are_another_version() {
        let other = [described(|_| {}), "{\"version\":\"0.9.0\"}".to_owned()];
        let expected = "it runs another version of emberlm".to_owned();
        assert_eq!(first_difference(&other), Some((1, expected)));
    }
}
