//! The devices of all ranks, and the engine options that they share.
//!
//! Ranks may compute on different backends. Each computes its micro-batches and updates its shard on its own device, and
//! all receive the same updated parameters. Two decisions of a step depend on the device, and must be the same on all ranks:
//!
//! | decision | on ranks with different backends |
//! |---|---|
//! | when a step is judged ([`ReadPolicy`]) | before its update, from sums that every rank has on its host. A guard on the device would be computed by each device |
//! | the adaptive loss scale | on all ranks if one of them has f16 products: the gradients that are summed must have the same scale |

use std::collections::BTreeMap;

use burn::tensor::Device;
use emberlm_kernels::{Precision, TrainingBackend};
use serde::{Deserialize, Serialize};

use crate::peers::{Peers, PeersError};
use crate::step::engine::{EngineOptions, ReadPolicy};

/// The device of one rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct RankDevice {
    backend: String,
    options: EngineOptions,
    /// True if the device multiplies matrices in the configured precision.
    multiplies: bool,
}

/// The devices of all ranks, in rank order.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RankDevices(Vec<RankDevice>);

impl RankDevices {
    /// Exchanges the name of this rank's backend, its engine options, and whether it supports `products`.
    ///
    /// # Errors
    /// A peer cannot be reached, or sends something else.
    pub(crate) fn gather<B: TrainingBackend>(
        peers: &dyn Peers<B::InnerBackend>,
        options: EngineOptions,
        products: Precision,
        device: &Device<B>,
    ) -> Result<Self, PeersError> {
        let own = RankDevice {
            backend: <B::InnerBackend as burn::tensor::backend::Backend>::name(device),
            options,
            multiplies: B::multiplies_in(products, device),
        };
        // A description always serializes.
        let own = serde_json::to_string(&own).unwrap_or_default();
        let all = peers.gather_texts(&own)?;
        let read = |text: &String| {
            serde_json::from_str(text).map_err(|error| PeersError {
                rank: peers.rank(),
                what: "descriptions",
                reason: error.to_string(),
            })
        };
        all.iter().map(read).collect::<Result<_, _>>().map(Self)
    }

    /// The number of ranks.
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// The number of ranks of each backend, by its name.
    fn backends(&self) -> BTreeMap<&str, usize> {
        let mut counts = BTreeMap::new();
        for device in &self.0 {
            *counts.entry(device.backend.as_str()).or_default() += 1;
        }
        counts
    }

    /// Returns true if all ranks have the same backend.
    pub(crate) fn are_alike(&self) -> bool {
        self.backends().len() <= 1
    }

    /// The name of the backend, or the sorted names of several.
    pub(crate) fn backend(&self) -> String {
        self.backends().into_keys().collect::<Vec<_>>().join(" + ")
    }

    /// The options of all ranks.
    pub(crate) fn options(&self) -> EngineOptions {
        let mut options = self.0.iter().map(|device| device.options);
        let judged_late = options
            .clone()
            .all(|it| it.read_policy == ReadPolicy::WhenDue);
        EngineOptions {
            read_policy: match judged_late && self.are_alike() {
                true => ReadPolicy::WhenDue,
                false => ReadPolicy::EveryStep,
            },
            loss_scale: options.find_map(|it| it.loss_scale),
        }
    }

    /// Warnings about differences between ranks, and about products in `precision` that a device does not support.
    pub(crate) fn warnings(&self, precision: Precision) -> Vec<String> {
        let mut warnings = Vec::new();
        if !self.are_alike() {
            let backends = self.backends().into_iter().map(|(name, count)| {
                let unit = if count == 1 { "rank" } else { "ranks" };
                format!("{name} ({count} {unit})")
            });
            let backends: Vec<String> = backends.collect();
            warnings.push(format!(
                "warning: the ranks compute on different backends: {}; results depend on the division of a step among ranks, and differ from those of one process by rounding",
                backends.join(", ")
            ));
        }
        let without = self.0.iter().filter(|device| !device.multiplies);
        let mut without: Vec<&str> = without.map(|device| device.backend.as_str()).collect();
        without.sort_unstable();
        without.dedup();
        let name = precision.name();
        warnings.extend(without.into_iter().map(|backend| {
            format!("warning: {backend} does not support matrix products in {name}; they are computed in f32")
        }));
        warnings
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::optimizer::loss_scale::LossScale;

    const FLEX: EngineOptions = EngineOptions {
        read_policy: ReadPolicy::EveryStep,
        loss_scale: None,
    };

    fn device(backend: &str, options: EngineOptions, multiplies: bool) -> RankDevice {
        RankDevice {
            backend: backend.to_owned(),
            options,
            multiplies,
        }
    }

    fn on_gpu(loss_scale: Option<LossScale>) -> EngineOptions {
        EngineOptions {
            read_policy: ReadPolicy::WhenDue,
            loss_scale,
        }
    }

    #[test]
    fn ranks_of_one_backend_keep_their_options() {
        let flex = RankDevices(vec![device("flex", FLEX, true); 2]);
        assert_eq!((flex.options(), flex.backend()), (FLEX, "flex".to_owned()));
        let scaled = on_gpu(Some(LossScale::default()));
        let gpus = RankDevices(vec![device("cuda", scaled, true); 3]);
        assert_eq!(gpus.options(), scaled);
        assert_eq!(gpus.warnings(Precision::F16), [""; 0]);
    }

    #[test]
    fn ranks_of_different_backends_judge_every_step() {
        let gpu = on_gpu(None);
        for (other, options) in [("flex", FLEX), ("vulkan", gpu)] {
            let devices = RankDevices(vec![
                device(other, options, true),
                device("cuda", gpu, true),
                device(other, options, true),
            ]);
            assert_eq!(devices.options(), FLEX);
            assert_eq!(devices.backend(), format!("cuda + {other}"));
            let expected = format!(
                "warning: the ranks compute on different backends: cuda (1 rank), {other} (2 ranks); results depend on the division of a step among ranks, and differ from those of one process by rounding"
            );
            assert_eq!(devices.warnings(Precision::F32), [expected]);
        }
    }

    /// The gradients of all ranks are summed, so all must scale their loss.
    #[test]
    fn one_rank_with_f16_products_scales_the_loss_of_all() {
        let scale = Some(LossScale::default());
        let devices = RankDevices(vec![
            device("flex", FLEX, false),
            device("cuda", on_gpu(scale), true),
        ]);
        let expected = EngineOptions {
            loss_scale: scale,
            ..FLEX
        };
        assert_eq!(devices.options(), expected);
        let warnings = devices.warnings(Precision::F16);
        let unsupported =
            "warning: flex does not support matrix products in f16; they are computed in f32";
        assert_eq!(warnings[1..], [unsupported]);
        // GPUs of one backend, of which one has no f16 products.
        let devices = RankDevices(vec![
            device("vulkan", on_gpu(None), false),
            device("vulkan", on_gpu(scale), true),
        ]);
        assert_eq!(devices.options(), on_gpu(scale));
    }
}
