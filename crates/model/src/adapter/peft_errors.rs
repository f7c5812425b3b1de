//! The reason why a tensor of an adapter in PEFT's format cannot be used.

use std::collections::BTreeSet;

use emberlm_kernels::Backend;

use super::is_adapter_path;
use super::peft::PREFIX;
use super::whole::module_of;
use crate::error::AdapterError;
use crate::transformer::model::Transformer;
use crate::weights::{TensorStore, whole_path};

impl<B: Backend> Transformer<B> {
    /// The modules that have a parameter in published checkpoints.
    pub(super) fn published_modules(&self) -> BTreeSet<String> {
        let parameters = self.parameters();
        let paths = parameters.iter().map(|own| whole_path(&own.path));
        let packed = self.packed_weights().into_iter().map(|(path, _)| path);
        let paths = paths.map(str::to_owned).chain(packed);
        let paths = paths.filter(|path| !is_adapter_path(path));
        let sources = paths.map(|path| self.published_source(&path));
        let mut modules = BTreeSet::new();
        for source in sources {
            modules.extend(source.names().map(|name| module_of(name).to_owned()));
        }
        if self.config().head().tied {
            modules.insert(module_of(&self.head_name()).to_owned());
        }
        modules
    }
}

/// The error of the tensor `name`, which belongs to no parameter that the adapter trains. `modules` are those of the
/// model.
pub(super) fn foreign(
    store: &dyn TensorStore,
    name: String,
    modules: &BTreeSet<String>,
) -> AdapterError {
    // The weights of an adapted embedding and head are stored, too.
    let name = match name.split_once(".base_layer.") {
        Some((module, _)) => {
            let begin = format!("{module}.lora_");
            let mut updates = store.names().filter(|name| name.starts_with(&begin));
            updates.next().map_or(name.clone(), str::to_owned)
        }
        None => name,
    };
    let own = name.strip_prefix(PREFIX).unwrap_or(&name);
    let (module, kind) = match own.split_once(".lora_") {
        Some(parts) => parts,
        None => (module_of(own), ""),
    };
    let module = module.strip_suffix(".base_layer").unwrap_or(module);
    if !modules.contains(module) {
        return AdapterError::UnknownTensor { name };
    }
    let other = match kind {
        "A.weight" => "B.weight",
        "B.weight" => "A.weight",
        _ => "",
    };
    let partner = name.replace(&format!(".lora_{kind}"), &format!(".lora_{other}"));
    if !other.is_empty() && !store.names().any(|name| name == partner) {
        return AdapterError::Part { name: partner };
    }
    let rule = match kind {
        "" => "`modules_to_save` and `bias` do not name it",
        kind if kind.starts_with("embedding_") => {
            "low-rank updates of embeddings are not supported"
        }
        kind if kind.starts_with("magnitude") => "`use_dora` is false",
        "B.bias" => "`lora_bias` is not supported",
        _ => "low-rank updates are supported of the linear layers of blocks only",
    };
    AdapterError::OtherPart {
        module: module.to_owned(),
        name,
        rule,
    }
}
