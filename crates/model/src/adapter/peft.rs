//! Adapters in the format of PEFT: `adapter_config.json` and `adapter_model.safetensors`.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use burn::module::ParamId;
use burn::tensor::Tensor;
use emberlm_kernels::Backend;
use emberlm_system::read;
use serde_json::{Map, Value};

use super::ADAPTER;
use super::config::{LoraConfig, is_named};
use super::modules::AdaptableModule;
use super::peft_config::{PeftSelection, config_fields, read_config};
use super::peft_errors::foreign;
use super::peft_task::{check_task, names_classifier, task_of};
use super::whole::{TOKENS, module_of};
use crate::error::{AdapterError, WeightsError};
use crate::transformer::model::Transformer;
use crate::weights::map::Source;
use crate::weights::{
    Element, Naming, ParamVisitor, SafetensorsStore, TensorStore, load_present, published,
    visit_params, whole_path, write,
};

/// The file with an adapter's settings.
pub const ADAPTER_CONFIG_FILE: &str = "adapter_config.json";
/// The file with an adapter's weights.
pub const ADAPTER_WEIGHTS_FILE: &str = "adapter_model.safetensors";

/// The file with an adapter's weights that early versions of PEFT wrote.
const PICKLE: &str = "adapter_model.bin";

/// Begins the names of all tensors.
pub(super) const PREFIX: &str = "base_model.model.";

/// An adapter in a directory that PEFT or [`write_peft`] wrote.
#[derive(Debug)]
pub struct PeftAdapter {
    folder: PathBuf,
    config: LoraConfig,
    /// The fields of the configuration.
    fields: Map<String, Value>,
}

impl PeftAdapter {
    /// Opens the adapter in `folder`.
    ///
    /// # Errors
    /// A file is missing or damaged, or a setting is not supported.
    pub fn open(folder: &Path) -> Result<Self, AdapterError> {
        let file = folder.join(ADAPTER_CONFIG_FILE);
        let text = read::read_text(&file, read::DESCRIPTION_LIMIT).map_err(|error| {
            AdapterError::File {
                path: file.clone(),
                reason: error.to_string(),
            }
        })?;
        let fields: Map<String, Value> =
            serde_json::from_str(&text).map_err(|error| AdapterError::File {
                path: file.clone(),
                reason: error.to_string(),
            })?;
        let config = read_config(&fields)?;
        let pickle = folder.join(PICKLE);
        if pickle.exists() && !folder.join(ADAPTER_WEIGHTS_FILE).exists() {
            let reason = "it is a PyTorch pickle, which can run any program when it is opened, and is not read";
            return Err(AdapterError::File {
                path: pickle,
                reason: reason.to_owned(),
            });
        }
        Ok(Self {
            folder: folder.to_owned(),
            config,
            fields,
        })
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.folder
    }

    /// The settings.
    pub fn config(&self) -> &LoraConfig {
        &self.config
    }

    /// The base model's name or path, as stored.
    pub fn base(&self) -> Option<&str> {
        self.fields.get("base_model_name_or_path")?.as_str()
    }

    /// True if a head that is tied to a trained embedding stays tied.
    fn is_tied(&self) -> bool {
        self.fields.get("ensure_weight_tying") == Some(&Value::Bool(true))
    }

    /// Adds the adapter to its base model.
    ///
    /// # Errors
    /// The weights cannot be read, do not match the settings, or are those of another model.
    pub fn add_to<B: Backend>(
        &self,
        decoder: Transformer<B>,
    ) -> Result<Transformer<B>, AdapterError> {
        check_task(&self.fields, decoder.config())?;
        let store = SafetensorsStore::open(&self.folder.join(ADAPTER_WEIGHTS_FILE))?;
        let modules = decoder.adaptable_modules();
        let rank = |module: &AdaptableModule| {
            let name = format!("{PREFIX}{}.lora_A.weight", module.name);
            store.shape(&name).and_then(|shape| shape.first().copied())
        };
        let found: Vec<&AdaptableModule> = modules
            .iter()
            .filter(|module| rank(module).is_some())
            .collect();
        for module in &found {
            self.check_module(&module.name, rank(module).unwrap_or_default())?;
        }
        let settings = self.settings_for(&store);
        let ranks = |module: &AdaptableModule| settings.rank_of(&module.name);
        let adapted = decoder.adapted(&found, &settings, ranks, 0)?;
        let sources = adapted.peft_sources();
        let tied_head = adapted.trained_tied_head();
        if tied_head.is_some() && !self.is_tied() {
            return Err(AdapterError::Unsupported {
                field: "ensure_weight_tying".to_owned(),
                value: "false, with a trained embedding to which the head is tied,".to_owned(),
                reason: String::new(),
            });
        }
        let head = tied_head.map(|name| format!("{PREFIX}{name}"));
        let published = adapted.published_modules();
        let loaded =
            adapted.load_trained(&store, head.as_deref(), |path| sources.get(path).cloned());
        loaded.map_err(|error| match error {
            AdapterError::UnknownTensor { name } => foreign(&store, name, &published),
            error => error,
        })
    }

    /// Checks that the settings select a layer of which the file has tensors, with the rank `found`.
    fn check_module(&self, module: &str, found: usize) -> Result<(), AdapterError> {
        let selection = PeftSelection::new(&self.fields);
        if let Some(field) = selection.leaves_out(module) {
            return Err(AdapterError::LeftOut {
                field,
                value: selection.value(field),
                module: module.to_owned(),
            });
        }
        let expected = self.config.rank_of(module);
        if expected != found {
            let is_own = |name: &String| is_named(module, name);
            return Err(AdapterError::Rank {
                field: match self.config.rank_pattern.keys().any(is_own) {
                    true => "rank_pattern",
                    false => "r",
                },
                module: module.to_owned(),
                expected,
                found,
            });
        }
        Ok(())
    }

    /// The settings with the modules in `modules_to_save` by their whole names. PEFT saves each module whose name ends
    /// with one of the given names, also within a word: "norm" selects "input_layernorm".
    fn settings_for(&self, store: &dyn TensorStore) -> LoraConfig {
        let mut unmatched = self.config.modules_to_save.clone();
        let mut modules = Vec::new();
        for name in store.names().filter(|name| !name.contains(".lora_")) {
            let module = module_of(name.strip_prefix(PREFIX).unwrap_or(name));
            let mut ancestors = std::iter::successors(Some(module), |module| {
                module.rsplit_once('.').map(|(parent, _)| parent)
            });
            let given = self.config.modules_to_save.iter();
            let is_saved =
                ancestors.any(|ancestor| given.clone().any(|own| ancestor.ends_with(own)));
            if is_saved {
                let is_other = |own: &String| !module.contains(own.as_str());
                unmatched.retain(is_other);
                modules.push(module.to_owned());
            }
        }
        // PEFT adds the names of classifiers, whichever of them the model has.
        let added = |name: &String| names_classifier(&self.fields, name);
        modules.extend(unmatched.into_iter().filter(|name| !added(name)));
        modules.dedup();
        LoraConfig {
            modules_to_save: modules,
            ..self.config.clone()
        }
    }
}

impl<B: Backend> Transformer<B> {
    /// The tensors in PEFT's files of the parameters that are trained and saved with the adapters, by path.
    pub fn peft_sources(&self) -> HashMap<String, Source> {
        let modules = self.adaptable_modules();
        let mut sources = HashMap::new();
        let mut adapted = HashSet::new();
        for (path, linear) in self.adapted_linears() {
            let parts = linear.adapter.iter().flat_map(|adapter| &adapter.parts);
            for (number, part) in parts.enumerate() {
                let outputs = part.outputs();
                let is_own =
                    |module: &&AdaptableModule| module.path == path && module.outputs == outputs;
                let Some(module) = modules.iter().find(is_own) else {
                    continue;
                };
                adapted.insert(module.name.as_str());
                let named = |kind| format!("{PREFIX}{}.{kind}", module.name);
                let own = |field: &str| format!("{path}{ADAPTER}{number}.{field}");
                let b = module.b.clone();
                sources.insert(own("a"), Source::transposed(named("lora_A.weight")));
                sources.insert(own("b"), b.clone().renamed(&named("lora_B.weight")));
                let magnitude = b.renamed(&named("lora_magnitude_vector"));
                sources.insert(own("magnitude"), magnitude);
            }
        }
        for path in self.originals.paths() {
            let source = self.published_source(path).map_names(|name| {
                // PEFT moves the parameters of an adapted layer into `base_layer`.
                match name.rsplit_once('.') {
                    Some((module, field)) if adapted.contains(module) => {
                        format!("{PREFIX}{module}.base_layer.{field}")
                    }
                    _ => format!("{PREFIX}{name}"),
                }
            });
            sources.insert(path.to_owned(), source);
        }
        sources
    }

    /// Loads the tensors of a store into the parameters for which `source` returns their names. `repeated` is the name
    /// of a tensor that is stored under another name, too.
    ///
    /// # Errors
    /// A tensor of such a parameter is missing or has another shape, or a tensor belongs to no parameter.
    pub(super) fn load_trained(
        self,
        store: &dyn TensorStore,
        repeated: Option<&str>,
        source: impl Fn(&str) -> Option<Source>,
    ) -> Result<Self, AdapterError> {
        let mut expected = ExpectedTensors {
            source: &source,
            names: repeated.iter().map(|&name| name.to_owned()).collect(),
        };
        visit_params(&self, &mut expected);
        if let Some(name) = store.names().find(|name| !expected.names.contains(*name)) {
            let name = name.to_owned();
            return Err(AdapterError::UnknownTensor { name });
        }
        let naming = Naming {
            source: &source,
            optional_prefix: "",
            constant: Box::new(|_| false),
            tied: &[],
        };
        Ok(load_present(self, store, naming, |path| {
            source(whole_path(path)).is_none()
        })?)
    }
}

/// Collects the names of the tensors of a module's parameters.
struct ExpectedTensors<'a, S> {
    source: &'a S,
    names: HashSet<String>,
}

impl<B: Backend, S: Fn(&str) -> Option<Source>> ParamVisitor<B> for ExpectedTensors<'_, S> {
    fn visit<const D: usize>(&mut self, path: &str, _id: ParamId, _value: Tensor<B, D>) {
        let source = (self.source)(whole_path(path));
        let names = source.iter().flat_map(Source::names).map(str::to_owned);
        self.names.extend(names);
    }
}

/// Writes the adapters of a model into an existing directory, as PEFT does. `config` is their settings, and `base` the
/// name or path of the base model.
///
/// # Errors
/// The model has no adapters, PEFT cannot express them, or a file cannot be written.
pub fn write_peft<B: Backend>(
    decoder: &Transformer<B>,
    config: &LoraConfig,
    base: &str,
    folder: &Path,
) -> Result<usize, AdapterError> {
    let config = &decoder.with_classifier(config, |path| decoder.originals.contains(path));
    let sources = decoder.peft_sources();
    let modules = decoder.adaptable_modules();
    let adapted: HashSet<String> = decoder.adapted_linears().map(|(path, _)| path).collect();
    let targets = config.targeted(&modules)?;
    let mut written = Vec::new();
    for module in targets
        .iter()
        .filter(|module| adapted.contains(&module.path))
    {
        if module.shared {
            let name = module.name.clone();
            return Err(AdapterError::SharedModule { name });
        }
        written.push(*module);
    }
    if written.is_empty() {
        return Err(AdapterError::None);
    }
    let mut tensors = published(decoder, Element::F32, |path| sources.get(path).cloned());
    let tied_head = decoder.trained_tied_head();
    if let Some(name) = &tied_head {
        let head = |path: &str| (path == TOKENS).then(|| Source::as_is(format!("{PREFIX}{name}")));
        tensors.extend(published(decoder, Element::F32, head));
    }
    let names: Vec<&str> = written.iter().map(|module| module.name.as_str()).collect();
    let inputs_first = written.iter().any(|module| module.inputs_first);
    let head = tied_head.as_deref().map(module_of);
    let task = task_of(decoder.config());
    let fields = config_fields(config, task, &names, base, inputs_first, head);
    let text = serde_json::to_string_pretty(&fields).unwrap_or_default() + "\n";
    let file = folder.join(ADAPTER_CONFIG_FILE);
    fs::write(&file, text).map_err(|source| WeightsError::Io { path: file, source })?;
    let views = tensors.iter().map(|tensor| (tensor.name(), tensor));
    let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    let views: BTreeMap<&str, _> = views.collect();
    let count = views.len();
    write(views, metadata, &folder.join(ADAPTER_WEIGHTS_FILE))?;
    Ok(count)
}
