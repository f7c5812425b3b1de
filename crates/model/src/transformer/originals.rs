//! The values that an adapter's base model had before training.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::params::{HostTensor, whole_path};

/// The parameters of the base model that are trained with an adapter, by path, with their values in the base model.
#[derive(Clone, Debug, Default)]
pub(crate) struct Originals(pub(crate) Option<Arc<BTreeMap<String, HostTensor>>>);

impl Originals {
    /// True if the parameter at `path` is one of them.
    pub(crate) fn contains(&self, path: &str) -> bool {
        self.paths().any(|own| own == whole_path(path))
    }

    /// True if there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.paths().next().is_none()
    }

    /// Their paths.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &str> {
        self.0.iter().flat_map(|own| own.keys().map(String::as_str))
    }
}
