//! An optimizer's state as it goes into a checkpoint and comes back.
//!
//! `PATH.moment1` and `PATH.moment2` are AdamW's, `PATH.momentum` is Muon's and Lion's.

use std::collections::HashMap;

use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Device, TensorData};
use emberlm_model::weights::{DeviceTensor, HostTensor};

use super::Moments;
use super::rule::{Rule, Settings};

const FIRST: &str = ".moment1";
const SECOND: &str = ".moment2";
const ONE: &str = ".momentum";

/// What an optimizer carries from one update to the next.
#[derive(Clone)]
pub struct Snapshot<B: BurnBackend> {
    /// Updates made.
    pub updates: u64,
    tensors: Vec<(String, FloatTensor<B>)>,
}

impl<B: BurnBackend> Snapshot<B> {
    pub(super) fn of(updates: u64, moments: &HashMap<String, Moments<B>>) -> Self {
        let mut tensors = Vec::with_capacity(2 * moments.len());
        for (path, moments) in moments {
            match moments {
                Moments::Two { first, second } => {
                    tensors.push((format!("{path}{FIRST}"), first.clone()));
                    tensors.push((format!("{path}{SECOND}"), second.clone()));
                }
                Moments::One(mean) => tensors.push((format!("{path}{ONE}"), mean.clone())),
            }
        }
        tensors.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        Self { updates, tensors }
    }

    /// Its tensors in the order of their names.
    pub fn tensors(&self) -> Vec<(String, DeviceTensor<B>)> {
        let tensors = self.tensors.iter();
        tensors
            .map(|(name, tensor)| (name.clone(), DeviceTensor::new(tensor.clone())))
            .collect()
    }
}

/// The moments that tensors of a snapshot are.
pub(super) fn restored<B: BurnBackend>(
    settings: &Settings,
    tensors: impl IntoIterator<Item = (String, HostTensor)>,
    device: &Device<B>,
) -> Result<HashMap<String, Moments<B>>, String> {
    let mut tensors: HashMap<String, HostTensor> = tensors.into_iter().collect();
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
        let rule = settings.rule(path, tensor.shape.len());
        match matches!(rule, Rule::AdamW(_)) == two {
            true => Ok(on_device::<B>(tensor, device)),
            false => Err(name),
        }
    };
    let mut moments = HashMap::new();
    for path in twos {
        let first = take(&path, FIRST, true)?;
        let second = take(&path, SECOND, true)?;
        moments.insert(path, Moments::Two { first, second });
    }
    for path in ones {
        let mean = take(&path, ONE, false)?;
        moments.insert(path, Moments::One(mean));
    }
    tensors.into_keys().next().map_or(Ok(moments), Err)
}

fn on_device<B: BurnBackend>(tensor: HostTensor, device: &Device<B>) -> FloatTensor<B> {
    B::float_from_data(TensorData::new(tensor.values, tensor.shape), device)
}
