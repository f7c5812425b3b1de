//! The optimizer's state in a checkpoint.
//!
//! `PATH` is the parameter's path in the model. A rule stores `PATH.moment1` and `PATH.moment2`, or `PATH.momentum`. The
//! state of a parameter that is split into parts is joined when written and split when read, so a run can be resumed with
//! a different split.

use std::collections::HashMap;

use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::ops::FloatTensor;
use emberlm_model::weights::{HostTensor, Parts, part_path};

use super::{Moments, Rule};

/// The names of the tensors, for the reference documentation.
pub(crate) fn names() -> String {
    let mut states: Vec<(&[StateKind], Vec<&str>)> = Vec::new();
    for &(optimizer, kinds) in super::STATES {
        match states.iter_mut().find(|(known, _)| *known == kinds) {
            Some((_, optimizers)) => optimizers.push(optimizer),
            None => states.push((kinds, vec![optimizer])),
        }
    }
    let states = states.into_iter().map(|(kinds, optimizers)| {
        let tensors = kinds
            .iter()
            .map(|kind| format!("`PATH{}`", kind.suffix()))
            .collect::<Vec<_>>()
            .join(" and ");
        format!("{tensors} with {}", optimizers.join(" and "))
    });
    let states = states.collect::<Vec<_>>().join(", ");
    format!("{states}, where `PATH` is the parameter's path in `model.safetensors`")
}

const FIRST: &str = ".moment1";
const SECOND: &str = ".moment2";
const ONE: &str = ".momentum";

/// One of the tensors of a parameter's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum StateKind {
    /// AdamW's running mean of the gradient.
    First,
    /// AdamW's running mean of the squared gradient.
    Second,
    /// Muon's and Lion's running mean of the gradient.
    Momentum,
}

impl StateKind {
    pub(super) const ALL: [Self; 3] = [Self::First, Self::Second, Self::Momentum];

    /// The end of the tensor's name.
    pub(super) fn suffix(self) -> &'static str {
        match self {
            Self::First => FIRST,
            Self::Second => SECOND,
            Self::Momentum => ONE,
        }
    }

    /// Splits the name of a tensor into the parameter's path and the kind.
    fn of_name(name: &str) -> Option<(&str, Self)> {
        let mut found = Self::ALL.into_iter();
        found.find_map(|kind| Some((name.strip_suffix(kind.suffix())?, kind)))
    }

    /// The tensor among a parameter's moments.
    pub(super) fn of<B: BurnBackend>(self, moments: &Moments<B>) -> Option<&FloatTensor<B>> {
        match (moments, self) {
            (Moments::Two { first, .. }, Self::First) => Some(first),
            (Moments::Two { second, .. }, Self::Second) => Some(second),
            (Moments::One(mean), Self::Momentum) => Some(mean),
            _ => None,
        }
    }
}

/// The prefix of a decoder's paths in states of earlier versions.
pub(super) const OLD_PREFIX: &str = "decoder.";

/// Converts a snapshot's tensors into moments. `rule` returns the update rule of a parameter by its path and
/// dimensions. `prefix` is removed from the tensors' names. `put` creates the tensor of a parameter's state, or returns
/// `None` if this process does not hold it.
pub(super) fn restored<B: BurnBackend>(
    rule: impl Fn(&str, usize) -> Rule,
    tensors: impl IntoIterator<Item = (String, HostTensor)>,
    prefix: &str,
    parts: &Parts,
    put: impl Fn(&str, HostTensor) -> Option<FloatTensor<B>>,
) -> Result<HashMap<String, Moments<B>>, String> {
    // The whole parameters of which each tensor was found, and what this process holds of them.
    let mut found: HashMap<String, Vec<StateKind>> = HashMap::new();
    let mut held: HashMap<(String, StateKind), FloatTensor<B>> = HashMap::new();
    for (name, tensor) in tensors {
        let own = name.strip_prefix(prefix).unwrap_or(&name);
        let Some((path, kind)) = StateKind::of_name(own) else {
            return Err(name);
        };
        let is_known = rule(path, tensor.shape.len()).state_kinds().contains(&kind);
        let kinds = found.entry(path.to_owned()).or_default();
        if !is_known || kinds.contains(&kind) {
            return Err(name);
        }
        kinds.push(kind);
        let is_split = parts.rows(path).is_some();
        let Some(tensors) = split_rows(tensor, parts.rows(path)) else {
            return Err(name);
        };
        for (number, tensor) in tensors.into_iter().enumerate() {
            let path = match is_split {
                true => part_path(path, number),
                false => path.to_owned(),
            };
            if let Some(tensor) = put(&path, tensor) {
                held.insert((path, kind), tensor);
            }
        }
    }
    for (path, kinds) in found {
        // One of a pair.
        if matches!(kinds[..], [StateKind::First | StateKind::Second]) {
            return Err(format!("{path}{SECOND}"));
        }
    }
    let mut seconds = HashMap::new();
    let mut others = Vec::new();
    for ((path, kind), tensor) in held {
        match kind {
            StateKind::Second => {
                seconds.insert(path, tensor);
            }
            StateKind::First | StateKind::Momentum => others.push((path, tensor)),
        }
    }
    let moments = others.into_iter().map(|(path, tensor)| {
        let moments = match seconds.remove(&path) {
            Some(second) => Moments::Two {
                first: tensor,
                second,
            },
            None => Moments::One(tensor),
        };
        (path, moments)
    });
    Ok(moments.collect())
}

/// Splits a snapshot's tensor like its parameter, into parts of these numbers of rows. `None` if the rows do not match.
fn split_rows(tensor: HostTensor, parts: Option<&[usize]>) -> Option<Vec<HostTensor>> {
    let Some(parts) = parts else {
        return Some(vec![tensor]);
    };
    let HostTensor { shape, values } = tensor;
    let (rows, rest) = shape.split_first()?;
    if parts.iter().sum::<usize>() != *rows {
        return None;
    }
    let columns: usize = rest.iter().product();
    let mut values = values.as_slice();
    let mut tensors = Vec::with_capacity(parts.len());
    for &rows in parts {
        let (own, after) = values.split_at_checked(rows * columns)?;
        tensors.push(HostTensor {
            shape: [&[rows], rest].concat(),
            values: own.to_vec(),
        });
        values = after;
    }
    Some(tensors)
}
