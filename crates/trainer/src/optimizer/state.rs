//! The optimizer's state in a checkpoint.
//!
//! `PATH` is the parameter's path in the model. AdamW stores `PATH.moment1` and `PATH.moment2`, Muon and Lion store
//! `PATH.momentum`. The state of a parameter that is split into parts is joined when written and split when read, so a
//! run can be resumed with a different split.

use std::collections::HashMap;

use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Device, TensorData};
use emberlm_model::weights::{DeviceTensor, HostTensor, Parts, join_parts, part_of, part_path};

use super::Moments;
use super::rule::Rule;

/// The names of the tensors, for the reference documentation.
pub(crate) const NAMES: &str = "`PATH.moment1` and `PATH.moment2` with AdamW, `PATH.momentum` with Muon and Lion, where \
                                `PATH` is the parameter's path in `model.safetensors`";

const FIRST: &str = ".moment1";
const SECOND: &str = ".moment2";
const ONE: &str = ".momentum";

/// The state of an optimizer between two updates.
#[derive(Clone)]
pub struct Snapshot<B: BurnBackend> {
    /// The number of updates made.
    pub updates: u64,
    /// The tensors by name, with the parts of a split parameter joined.
    tensors: Vec<(String, Vec<FloatTensor<B>>)>,
}

impl<B: BurnBackend> Snapshot<B> {
    pub(super) fn of(updates: u64, moments: &HashMap<String, Moments<B>>) -> Self {
        let mut moments: Vec<_> = moments.iter().collect();
        moments.sort_unstable_by_key(|&(path, _)| part_of(path).unwrap_or((path, 0)));
        let of = |suffix: &'static str| {
            let tensors = moments.iter().filter_map(move |(path, moments)| {
                let tensor = match (moments, suffix) {
                    (Moments::Two { first, .. }, FIRST) => first,
                    (Moments::Two { second, .. }, SECOND) => second,
                    (Moments::One(mean), ONE) => mean,
                    _ => return None,
                };
                Some(((*path).clone(), tensor.clone()))
            });
            let named = join_parts::<B>(tensors).into_iter();
            named.map(move |(path, tensors)| (format!("{path}{suffix}"), tensors))
        };
        let mut tensors: Vec<_> = [FIRST, SECOND, ONE].into_iter().flat_map(of).collect();
        tensors.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        Self { updates, tensors }
    }

    /// The tensors ordered by name.
    pub fn tensors(&self) -> Vec<(String, DeviceTensor<B>)> {
        let tensors = self.tensors.iter();
        tensors
            .map(|(name, parts)| (name.clone(), DeviceTensor::joined(parts.clone())))
            .collect()
    }
}

/// The prefix of a decoder's paths in states of earlier versions.
pub(super) const OLD_PREFIX: &str = "decoder.";

/// Converts a snapshot's tensors into moments. `rule` returns the update rule of a parameter by its path and
/// dimensions. `prefix` is removed from the tensors' names.
pub(super) fn restored<B: BurnBackend>(
    rule: impl Fn(&str, usize) -> Rule,
    tensors: impl IntoIterator<Item = (String, HostTensor)>,
    prefix: &str,
    parts: &Parts,
    device: &Device<B>,
) -> Result<HashMap<String, Moments<B>>, String> {
    let mut named = HashMap::new();
    for (name, tensor) in tensors {
        let own = name.strip_prefix(prefix).unwrap_or(&name).to_owned();
        if named.insert(own, tensor).is_some() {
            return Err(name);
        }
    }
    let mut tensors: HashMap<String, HostTensor> = named;
    let paths = |suffix: &str| -> Vec<String> {
        let named = tensors.keys().filter_map(|name| name.strip_suffix(suffix));
        named.map(str::to_owned).collect()
    };
    let (twos, ones) = (paths(FIRST), paths(ONE));
    let mut take = |path: &str, suffix: &str, two: bool| {
        let name = format!("{path}{suffix}");
        let Some(tensor) = tensors.remove(&name) else {
            return Err(name);
        };
        let rule = rule(path, tensor.shape.len());
        match matches!(rule, Rule::AdamW(_)) == two {
            true => on_device::<B>(tensor, parts.rows(path), device).ok_or(name),
            false => Err(name),
        }
    };
    let own_path = |path: &str, number| match parts.rows(path) {
        Some(_) => part_path(path, number),
        None => path.to_owned(),
    };
    let mut moments = HashMap::new();
    for path in twos {
        let first = take(&path, FIRST, true)?;
        let second = take(&path, SECOND, true)?;
        for (number, (first, second)) in first.into_iter().zip(second).enumerate() {
            let path = own_path(&path, number);
            moments.insert(path, Moments::Two { first, second });
        }
    }
    for path in ones {
        let mean = take(&path, ONE, false)?;
        for (number, mean) in mean.into_iter().enumerate() {
            moments.insert(own_path(&path, number), Moments::One(mean));
        }
    }
    tensors.into_keys().next().map_or(Ok(moments), Err)
}

/// Splits a snapshot's tensor like its parameter, into parts of these numbers of rows. `None` if the rows do not match.
fn on_device<B: BurnBackend>(
    tensor: HostTensor,
    parts: Option<&[usize]>,
    device: &Device<B>,
) -> Option<Vec<FloatTensor<B>>> {
    let made =
        |values, shape: Vec<usize>| B::float_from_data(TensorData::new(values, shape), device);
    let HostTensor { shape, values } = tensor;
    let Some(parts) = parts else {
        return Some(vec![made(values, shape)]);
    };
    let (rows, rest) = shape.split_first()?;
    if parts.iter().sum::<usize>() != *rows {
        return None;
    }
    let columns: usize = rest.iter().product();
    let mut values = values.as_slice();
    let mut tensors = Vec::with_capacity(parts.len());
    for &rows in parts {
        let (own, after) = values.split_at_checked(rows * columns)?;
        let shape = [&[rows], rest].concat();
        tensors.push(made(own.to_vec(), shape));
        values = after;
    }
    Some(tensors)
}
