//! Low-rank adapters of whole models: which linear layers they update, and their files in the format of PEFT.
//!
//! | module | contents |
//! |---|---|
//! | `bank` | several adapters of one model, for the rows of a ragged pass to select |
//! | `config` | [`LoraConfig`]: rank, scale and targets |
//! | `modules` | the linear layers by the names of published checkpoints |
//! | `whole` | parameters of the base model that are trained and saved with an adapter |
//! | `peft`, `peft_config`, `peft_errors`, `peft_task` | `adapter_model.safetensors` and `adapter_config.json` |

mod bank;
mod config;
mod modules;
mod peft;
mod peft_config;
mod peft_errors;
mod peft_task;
mod whole;

pub use config::{ALL_LINEAR, AdapterBias, LoraConfig};

pub use peft::{ADAPTER_CONFIG_FILE, ADAPTER_WEIGHTS_FILE, PeftAdapter, write_peft};

use std::collections::HashMap;

use burn::module::Module;
use emberlm_kernels::Backend;

use crate::error::AdapterError;
use crate::nn::init::fnv1a;
use crate::nn::linear::Linear;
use crate::nn::low_rank::{Adapter, LowRankConfig};
use crate::transformer::model::Transformer;
use crate::transformer::originals::Originals;
use crate::weights::TensorStore;
use crate::weights::map::Source;
use modules::AdaptableModule;

impl<B: Backend> Transformer<B> {
    /// Returns the model with new adapters, which leave its output unchanged. All other parameters are frozen, except the
    /// modules and biases that `config` names, and a classifier, which is trained whole. The initial values of A depend only on `seed` and the parameters' paths.
    ///
    /// # Errors
    /// A setting is out of range, a name matches no module, or the model has adapters already.
    pub fn with_adapter(self, config: &LoraConfig, seed: u64) -> Result<Self, AdapterError> {
        config.check()?;
        let modules = self.adaptable_modules();
        let targets = config.targeted(&modules)?;
        // A new classifier has to be trained whole, as PEFT does.
        let config = &self.with_classifier(config, |_| true);
        let rank = |module: &AdaptableModule| config.rank_of(&module.name);
        self.adapted(&targets, config, rank, seed)
    }

    /// Adds adapters to `targets`, whose ranks `rank` returns.
    fn adapted(
        self,
        targets: &[&AdaptableModule],
        config: &LoraConfig,
        rank: impl Fn(&AdaptableModule) -> usize,
        seed: u64,
    ) -> Result<Self, AdapterError> {
        if self.has_adapter() {
            return Err(AdapterError::Adapted);
        }
        let device = self.device();
        let paths: Vec<String> = self.linears().map(|(path, _)| path).collect();
        let mut by_path: HashMap<&str, Vec<&AdaptableModule>> = HashMap::new();
        for module in targets {
            by_path.entry(&module.path).or_default().push(module);
        }
        let mut decoder = self.no_grad();
        for (path, linear) in paths.iter().zip(decoder.linears_mut()) {
            let Some(modules) = by_path.get(path.as_str()) else {
                continue;
            };
            let parts = modules.iter().enumerate().map(|(number, module)| {
                let rank = rank(module);
                let low_rank = LowRankConfig {
                    outputs: module.outputs.clone(),
                    rank,
                    scale: config.scale_of(&module.name, rank),
                    magnitude: config.dora,
                };
                let seed = seed ^ fnv1a(&format!("{path}.adapter.{number}.a"));
                low_rank.init(&linear.weight, seed, &device)
            });
            linear.adapter = Some(Adapter::new(parts.collect(), config.dropout));
        }
        decoder.with_whole_parameters(config, targets)
    }

    /// True if a linear layer has an adapter.
    pub fn has_adapter(&self) -> bool {
        self.linears().any(|(_, linear)| linear.adapter.is_some())
    }

    /// Removes the adapters: the model that [`Transformer::with_adapter`] was given.
    pub fn without_adapter(mut self) -> Self {
        for linear in self.linears_mut() {
            linear.adapter = None;
        }
        self.with_originals()
    }

    /// Adds the adapters to the weights and removes them. Packed weights with an adapter are unpacked to f32.
    pub fn merged(mut self) -> Self {
        for linear in self.linears_mut() {
            linear.merge();
        }
        self.originals = Originals::default();
        self
    }

    /// Prepares the adapters for inference: their factors are joined, and DoRA's norms are computed, once instead of in every
    /// pass. They can then no longer be written.
    pub fn with_fused_adapters(mut self) -> Self {
        for linear in self.linears_mut() {
            let fused = linear
                .adapter
                .as_ref()
                .map(|adapter| adapter.fused(&linear.weight));
            linear.adapter = fused;
        }
        self
    }

    /// Loads the trained parameters of a run with adapters into a model that [`Transformer::with_adapter`] returned.
    ///
    /// # Errors
    /// A tensor is missing, unexpected, or has another shape.
    pub fn load_adapter(self, store: &dyn TensorStore) -> Result<Self, AdapterError> {
        let originals = self.originals.clone();
        let is_saved = |path: &str| is_adapter_path(path) || originals.contains(path);
        self.load_trained(store, None, |path| {
            is_saved(path).then(|| Source::as_is(path))
        })
    }

    /// True if the parameter at `path` is trained and saved with the adapters: a factor or a magnitude of one, or a
    /// parameter of the base model that [`LoraConfig`] names.
    pub fn is_saved_with_adapter(&self, path: &str) -> bool {
        is_adapter_path(path) || self.originals.contains(path)
    }

    /// True if parameters of the base model are trained and saved with the adapters.
    pub fn has_whole_parameters(&self) -> bool {
        !self.originals.is_empty()
    }

    /// The linear layers with adapters, with their paths.
    fn adapted_linears(&self) -> impl Iterator<Item = (String, &Linear<B>)> {
        self.linears()
            .filter(|(_, linear)| linear.adapter.is_some())
    }
}

/// Occurs in the paths of all parameters of adapters.
const ADAPTER: &str = ".adapter.";

/// Returns true if `path` is that of a parameter of an adapter.
pub fn is_adapter_path(path: &str) -> bool {
    path.contains(ADAPTER)
}
