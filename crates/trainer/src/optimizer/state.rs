//! The optimizer's state in a checkpoint.
//!
//! `PATH` is the parameter's path in the model. A rule stores the tensors of its [`StateKind`]s. The
//! state of a parameter that is split into parts is joined when written and split when read, so a run can be resumed with
//! a different split.

use std::collections::HashMap;

use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::ops::FloatTensor;
use emberlm_model::weights::{HostTensor, Parts, part_path};

use super::{Moments, Rule};

/// The names of the tensors, for the reference documentation.
pub(crate) fn names() -> String {
    let mut states: Vec<(&[StateKind], Vec<String>)> = Vec::new();
    for &(optimizer, kinds) in super::STATES {
        let optimizer = format!("`{}`", optimizer.name());
        match states.iter_mut().find(|(known, _)| *known == kinds) {
            Some((_, optimizers)) => optimizers.push(optimizer),
            None => states.push((kinds, vec![optimizer])),
        }
    }
    let states = states.into_iter().map(|(kinds, optimizers)| {
        let tensors = kinds.iter().map(|kind| format!("`PATH{}`", kind.suffix()));
        format!("{} with {}", enumerated(tensors), enumerated(optimizers))
    });
    let states = states.collect::<Vec<_>>().join("; ");
    format!("{states}, where `PATH` is the parameter's path in `model.safetensors`")
}

/// Names as "a, b and c".
fn enumerated(names: impl IntoIterator<Item = String>) -> String {
    let mut names: Vec<String> = names.into_iter().collect();
    match names.pop() {
        Some(last) if !names.is_empty() => format!("{} and {last}", names.join(", ")),
        last => last.unwrap_or_default(),
    }
}

const FIRST: &str = ".moment1";
const SECOND: &str = ".moment2";
const ONE: &str = ".momentum";
const NEURONS: &str = ".neurons";
const LEFT: &str = ".left";
const LEFT_BASIS: &str = ".left_basis";
const RIGHT: &str = ".right";
const RIGHT_BASIS: &str = ".right_basis";

/// One of the tensors of a parameter's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum StateKind {
    /// AdamW's and SOAP's running mean of the gradient.
    First,
    /// AdamW's running mean of the squared gradient, SOAP's of the rotated one.
    Second,
    /// Muon's and Lion's running mean of the gradient.
    Momentum,
    /// NorMuon's running mean of the squared update of each neuron, `[1, columns]`.
    Neurons,
    /// SOAP's running mean of `G Gᵀ`, `[rows, rows]`.
    Left,
    /// SOAP's eigenbasis of it, in columns.
    LeftBasis,
    /// SOAP's running mean of `Gᵀ G`, `[columns, columns]`.
    Right,
    /// SOAP's eigenbasis of it, in columns.
    RightBasis,
}

/// The kinds of tensors that an update rule stores.
#[derive(Clone, Copy, Debug)]
pub(super) struct StateKinds {
    pub(super) all: &'static [StateKind],
    /// The largest dimension of a parameter that has square tensors.
    pub(super) largest_side: usize,
}

impl StateKinds {
    /// The kinds that a parameter of this shape has.
    pub(super) fn of(self, parameter: &[usize]) -> impl Iterator<Item = StateKind> {
        let is_small = move |kind: &StateKind| match kind.side(parameter) {
            Some(side) => side <= self.largest_side,
            None => true,
        };
        self.all.iter().copied().filter(is_small)
    }
}

/// The rows and columns of a parameter of this shape as a matrix, whose columns are the last dimension.
pub(super) fn matrix_shape(parameter: &[usize]) -> [usize; 2] {
    match parameter.split_last() {
        Some((columns, rows)) => [rows.iter().product(), *columns],
        None => [1, 1],
    }
}

impl StateKind {
    pub(super) const ALL: [Self; 8] = [
        Self::First,
        Self::Second,
        Self::Momentum,
        Self::Neurons,
        Self::Left,
        Self::LeftBasis,
        Self::Right,
        Self::RightBasis,
    ];

    /// The rows of a square tensor for a parameter of this shape; `None` for the other kinds.
    fn side(self, parameter: &[usize]) -> Option<usize> {
        let [rows, columns] = matrix_shape(parameter);
        match self {
            Self::Left | Self::LeftBasis => Some(rows),
            Self::Right | Self::RightBasis => Some(columns),
            Self::First | Self::Second | Self::Momentum | Self::Neurons => None,
        }
    }

    /// The end of the tensor's name.
    pub(super) fn suffix(self) -> &'static str {
        match self {
            Self::First => FIRST,
            Self::Second => SECOND,
            Self::Momentum => ONE,
            Self::Neurons => NEURONS,
            Self::Left => LEFT,
            Self::LeftBasis => LEFT_BASIS,
            Self::Right => RIGHT,
            Self::RightBasis => RIGHT_BASIS,
        }
    }

    /// The kind of the tensors whose names end like this.
    pub(super) fn of_end(end: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.suffix() == end)
    }

    /// Splits the name of a tensor into the parameter's path and the kind.
    fn of_name(name: &str) -> Option<(&str, Self)> {
        let mut found = Self::ALL.into_iter();
        found.find_map(|kind| Some((name.strip_suffix(kind.suffix())?, kind)))
    }

    /// Returns true if the tensor has the shape of its parameter.
    pub(super) fn has_parameter_shape(self) -> bool {
        matches!(self, Self::First | Self::Second | Self::Momentum)
    }

    /// The shape of the tensor for a parameter of shape `parameter`. It has as many dimensions.
    pub(super) fn shape(self, parameter: &[usize]) -> Vec<usize> {
        if self.has_parameter_shape() {
            return parameter.to_vec();
        }
        let [_, columns] = matrix_shape(parameter);
        let own = match self.side(parameter) {
            Some(side) => [side, side],
            None => [1, columns],
        };
        let mut shape = vec![1; parameter.len()];
        for (to, from) in shape.iter_mut().rev().zip(own.into_iter().rev()) {
            *to = from;
        }
        shape
    }

    /// The elements of the tensor for a parameter of shape `parameter`.
    pub(super) fn elements(self, parameter: &[usize]) -> usize {
        self.shape(parameter).iter().product()
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
    // The shapes and the tensors of the parameters, and what this process holds of them.
    let mut found: HashMap<String, (Vec<usize>, Vec<StateKind>)> = HashMap::new();
    let mut held: HashMap<String, Vec<(StateKind, FloatTensor<B>)>> = HashMap::new();
    for (name, tensor) in tensors {
        let own = name.strip_prefix(prefix).unwrap_or(&name);
        let Some((path, kind)) = StateKind::of_name(own) else {
            return Err(name);
        };
        let dimensions = tensor.shape.len();
        let is_known = rule(path, dimensions).state_kinds().all.contains(&kind);
        let new = || (vec![1; dimensions], Vec::new());
        let (shape, kinds) = found.entry(path.to_owned()).or_insert_with(new);
        if !is_known || kinds.contains(&kind) {
            return Err(name);
        }
        if kind.has_parameter_shape() {
            shape.clone_from(&tensor.shape);
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
                held.entry(path).or_default().push((kind, tensor));
            }
        }
    }
    for (path, (shape, kinds)) in found {
        let needed: Vec<_> = rule(&path, shape.len()).state_kinds().of(&shape).collect();
        let missing = needed.iter().find(|kind| !kinds.contains(kind));
        let surplus = || kinds.iter().find(|kind| !needed.contains(kind));
        if let Some(wrong) = missing.or_else(surplus) {
            return Err(format!("{path}{}", wrong.suffix()));
        }
    }
    let moments = held.into_iter();
    Ok(moments
        .map(|(path, tensors)| (path, tensors.into_iter().collect()))
        .collect())
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
