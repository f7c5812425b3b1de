//! The models of a server, which change while it runs.

use std::sync::{Arc, PoisonError, RwLock};

use crate::model::ServedModel;

/// The served models, in the order in which they are listed.
///
/// A request takes its model from here once and keeps it to its end. A model that was removed is therefore freed after its
/// last request.
#[derive(Default)]
pub struct ServedModels(RwLock<Arc<[Arc<ServedModel>]>>);

impl ServedModels {
    /// These models. Names and aliases must be unique.
    pub fn new(models: Vec<ServedModel>) -> Self {
        Self(RwLock::new(models.into_iter().map(Arc::new).collect()))
    }

    /// The models that are served now.
    pub fn models(&self) -> Arc<[Arc<ServedModel>]> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Finds a model by its name or an alias.
    pub fn find(&self, name: &str) -> Option<Arc<ServedModel>> {
        let models = self.models();
        models.iter().find(|model| model.is_called(name)).cloned()
    }

    /// Adds a model, in the place of one of the same name if there is one, which is returned. Its other names must be those of
    /// no other model.
    pub fn put(&self, model: ServedModel) -> Option<Arc<ServedModel>> {
        let model = Arc::new(model);
        self.change(
            |models| match models.iter_mut().find(|old| old.name == model.name) {
                Some(old) => Some(std::mem::replace(old, model)),
                None => {
                    models.push(model);
                    None
                }
            },
        )
    }

    /// Removes the model of this name. New requests no longer find it, and running ones finish.
    pub fn remove(&self, name: &str) -> Option<Arc<ServedModel>> {
        self.change(|models| {
            let at = models.iter().position(|model| model.name == name)?;
            Some(models.remove(at))
        })
    }

    fn change<T>(&self, change: impl FnOnce(&mut Vec<Arc<ServedModel>>) -> T) -> T {
        let mut current = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let mut models = current.to_vec();
        let changed = change(&mut models);
        *current = models.into();
        changed
    }
}
