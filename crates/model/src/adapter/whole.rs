//! Parameters of the base model that are trained and saved with an adapter: whole modules (PEFT's `modules_to_save`) and
//! biases (PEFT's `bias`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use burn::module::ParamId;
use burn::tensor::{Tensor, TensorData};
use emberlm_kernels::Backend;

use super::config::{AdapterBias, LoraConfig, is_named};
use super::is_adapter_path;
use super::modules::AdaptableModule;
use crate::config::{EncoderHeadConfig, ModelKind};
use crate::error::AdapterError;
use crate::transformer::model::Transformer;
use crate::transformer::originals::Originals;
use crate::weights::map::Source;
use crate::weights::{HostTensor, ParamMapper, Parts, device_tensors, map_params, whole_path};

/// Path of the token embedding.
pub(super) const TOKENS: &str = "tokens";
/// Path of the head.
const HEAD: &str = "head";
/// Begins the paths of the parameters of an encoder's head.
const CLASSIFIER: &str = "head.";

impl<B: Backend> Transformer<B> {
    /// Makes the parameters that `config` names trainable, and keeps their values. `targets` are the adapted layers.
    ///
    /// # Errors
    /// A name matches no module, or a parameter cannot be trained.
    pub(super) fn with_whole_parameters(
        mut self,
        config: &LoraConfig,
        targets: &[&AdaptableModule],
    ) -> Result<Self, AdapterError> {
        let paths = self.whole_paths(config, targets)?;
        if paths.is_empty() {
            return Ok(self);
        }
        let tensors = device_tensors(&self).into_iter();
        let trained = tensors.filter(|(path, _)| paths.contains(path));
        let originals = trained.map(|(path, tensor)| (path, tensor.on_host()));
        self.originals = Originals(Some(Arc::new(originals.collect())));
        Ok(map_params(self, &mut RequireGradients(paths)))
    }

    /// Restores the parameters that were trained whole to their values in the base model.
    pub(super) fn with_originals(mut self) -> Self {
        let Originals(Some(originals)) = std::mem::take(&mut self.originals) else {
            return self;
        };
        let parts = Parts::of(&self);
        map_params(self, &mut Restore { originals, parts })
    }

    /// The name of the head's tensor if the head is tied to an embedding that is trained.
    pub(super) fn trained_tied_head(&self) -> Option<String> {
        let is_tied = self.has_tied_head() && self.originals.contains(TOKENS);
        is_tied.then(|| self.head_name())
    }

    /// True if the token embedding is the weight of a language model's head.
    fn has_tied_head(&self) -> bool {
        self.config().head().tied && self.config().kind() != ModelKind::Encoder
    }

    /// The name of the head's tensor in published checkpoints.
    pub(super) fn head_name(&self) -> String {
        let source = self.published_source(HEAD);
        source.names().next().unwrap_or(HEAD).to_owned()
    }

    /// The tensors of a parameter in published checkpoints; under its path if the family has no published form.
    pub(super) fn published_source(&self, path: &str) -> Source {
        let source = self.transformers_source(path);
        source.unwrap_or_else(|| Source::as_is(path))
    }

    /// The tensors of a parameter by the names in `transformers`; `None` if the family has no published form.
    pub(super) fn transformers_source(&self, path: &str) -> Option<Source> {
        let family = self.config().family();
        let source = family.source(self.config(), path)?;
        Some(match family.left_out(self.config()) {
            Some(prefix) => {
                source.map_names(|name| name.strip_prefix(prefix).unwrap_or(name).to_owned())
            }
            None => source,
        })
    }

    /// `config` with the modules of a classifier among those that are saved, if `is_saved` returns true for their paths.
    pub(super) fn with_classifier(
        &self,
        config: &LoraConfig,
        is_saved: impl Fn(&str) -> bool,
    ) -> LoraConfig {
        let mut config = config.clone();
        let head = self.config().encoder_head();
        if head.and_then(EncoderHeadConfig::labels).is_none() {
            return config;
        }
        for parameter in self.parameters().iter() {
            let path = whole_path(&parameter.path);
            if !path.starts_with(CLASSIFIER) || !is_saved(path) {
                continue;
            }
            let source = self.published_source(path);
            for module in source.names().map(module_of) {
                let saved = &mut config.modules_to_save;
                if !saved.iter().any(|own| is_named(module, own)) {
                    saved.push(module.to_owned());
                }
            }
        }
        config
    }

    /// The paths of the parameters that `config` names.
    fn whole_paths(
        &self,
        config: &LoraConfig,
        targets: &[&AdaptableModule],
    ) -> Result<BTreeSet<String>, AdapterError> {
        let packed: BTreeSet<String> = self
            .packed_weights()
            .into_iter()
            .map(|(path, _)| path)
            .collect();
        let parameters = self.parameters();
        let paths = parameters.iter().map(|own| whole_path(&own.path));
        let paths = paths.filter(|path| !is_adapter_path(path));
        let paths: BTreeSet<&str> = paths.chain(packed.iter().map(String::as_str)).collect();
        let mut selection = Selection::new(config, targets);
        let mut selected = BTreeSet::new();
        for path in paths {
            let source = self.published_source(path);
            let names: Vec<&str> = source.names().collect();
            let head = (path == TOKENS && self.has_tied_head()).then(|| self.head_name());
            let count = names.iter().filter(|name| selection.selects(name)).count();
            let is_head = head.is_some_and(|head| selection.selects(&head));
            let refused = |rule| {
                Err(AdapterError::NotTrainable {
                    name: names.join(", "),
                    rule,
                })
            };
            match count {
                0 if !is_head => continue,
                count if count != names.len() && !is_head => {
                    return refused("all of these must be selected, or none");
                }
                _ if packed.contains(path) => return refused("it is quantized"),
                _ if path == TOKENS && self.has_tied_head() && packed.contains(HEAD) => {
                    return refused("the head that is tied to it is quantized");
                }
                _ if targets
                    .iter()
                    .any(|own| format!("{}.weight", own.path) == path) =>
                {
                    return refused("the adapter updates it already");
                }
                _ => selected.insert(path.to_owned()),
            };
        }
        selection.check()?;
        Ok(selected)
    }
}

/// Selects tensors of published checkpoints by the settings of an adapter.
struct Selection<'a> {
    config: &'a LoraConfig,
    targets: BTreeSet<&'a str>,
    /// Names of modules that have matched no tensor so far.
    unmatched: BTreeSet<&'a str>,
    /// The last components of the modules' names.
    known: BTreeSet<String>,
}

impl<'a> Selection<'a> {
    fn new(config: &'a LoraConfig, targets: &[&'a AdaptableModule]) -> Self {
        Self {
            config,
            targets: targets.iter().map(|module| module.name.as_str()).collect(),
            unmatched: config.modules_to_save.iter().map(String::as_str).collect(),
            known: BTreeSet::new(),
        }
    }

    /// True if the tensor `name` is selected.
    fn selects(&mut self, name: &str) -> bool {
        let module = module_of(name);
        let kind = module.rsplit('.').next().unwrap_or(module);
        self.known.insert(kind.to_owned());
        let is_bias = match self.config.bias {
            AdapterBias::None => false,
            // As PEFT recognizes them.
            AdapterBias::All => name.contains("bias"),
            AdapterBias::LoraOnly => name.ends_with(".bias") && self.targets.contains(module),
        };
        let mut is_in_module = false;
        for own in &self.config.modules_to_save {
            // A module that contains others is saved with them.
            let mut ancestors = std::iter::successors(Some(module), |module| {
                module.rsplit_once('.').map(|(parent, _)| parent)
            });
            if ancestors.any(|ancestor| is_named(ancestor, own)) {
                self.unmatched.remove(own.as_str());
                is_in_module = true;
            }
        }
        is_bias || is_in_module
    }

    /// Checks that every name has matched a tensor.
    fn check(self) -> Result<(), AdapterError> {
        match self.unmatched.first() {
            None => Ok(()),
            Some(&module) => Err(AdapterError::NoModule {
                module: module.to_owned(),
                known: self.known.into_iter().collect(),
            }),
        }
    }
}

/// The module of a tensor: its name without the last component.
pub(super) fn module_of(name: &str) -> &str {
    name.rsplit_once('.').map_or(name, |(module, _)| module)
}

struct RequireGradients(BTreeSet<String>);

impl<B: Backend> ParamMapper<B> for RequireGradients {
    fn map<const D: usize>(
        &mut self,
        path: &str,
        _id: ParamId,
        value: Tensor<B, D>,
    ) -> Tensor<B, D> {
        match self.0.contains(whole_path(path)) {
            true => value.set_require_grad(true),
            false => value,
        }
    }
}

struct Restore {
    originals: Arc<BTreeMap<String, HostTensor>>,
    parts: Parts,
}

impl<B: Backend> ParamMapper<B> for Restore {
    fn map<const D: usize>(
        &mut self,
        path: &str,
        _id: ParamId,
        value: Tensor<B, D>,
    ) -> Tensor<B, D> {
        let range = self.parts.row_range(path);
        let Some(original) = self.originals.get(range.whole) else {
            return value;
        };
        let shape = value.dims();
        let values = original.values[range.elements(&shape)].to_vec();
        Tensor::from_data(TensorData::new(values, shape), &value.device())
    }
}
