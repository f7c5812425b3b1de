//! Changes the models of a running server: for an administrator, and when the file of `--config` changes.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use emberlm_kernels::Backend;
use emberlm_kernels::memory::{return_freed, return_freed_soon};
use emberlm_serve::{LoadRequest, ModelEntry, RefusedLoad, ServedModel, ServedModels};

use super::ServeArgs;
use super::fleet::{Failure, Fleet};
use super::follow;
use super::groups;
use super::log::Log;
use super::models::{self, ModelSpec};
use super::roots::{Roots, is_same};
use crate::error::CliError;
use crate::opened_model::OpenedModel;
use crate::run_folders;

/// The interval at which the file and the removed models are looked at.
const PAUSE: Duration = Duration::from_secs(1);

/// Changes the models of a running server.
pub struct Manager<B: Backend> {
    pub fleet: Fleet<B>,
    pub served: Arc<ServedModels>,
    pub args: ServeArgs,
    pub roots: Roots,
    /// The models of the command line and of its file that were loaded last.
    pub specs: Vec<ModelSpec>,
    pub file: Option<WatchedFile>,
    pub log: Log,
    /// The models that an administrator loads; `None` without one.
    pub loads: Option<Receiver<LoadRequest>>,
}

/// A file that is read again when it changes.
pub struct WatchedFile {
    path: PathBuf,
    /// The content that was applied or rejected last.
    done: Option<Vec<u8>>,
    /// The last content. A file that is being written differs between two looks.
    seen: Option<Vec<u8>>,
}

impl WatchedFile {
    /// Watches a regular file. Returns `None` for others, such as pipes, which cannot be read again.
    pub fn new(path: &Path) -> Option<Self> {
        let is_regular = fs::metadata(path).is_ok_and(|metadata| metadata.is_file());
        is_regular.then(|| Self {
            path: path.to_owned(),
            done: fs::read(path).ok(),
            seen: None,
        })
    }

    /// Returns true if the file has a new content, which it had at the last call too.
    fn has_changed(&mut self) -> bool {
        let now = fs::read(&self.path).ok();
        let is_complete = now == self.seen;
        let has_changed = is_complete && now != self.done;
        if has_changed {
            self.done.clone_from(&now);
        }
        self.seen = now;
        has_changed
    }
}

impl<B: Backend> Manager<B> {
    /// Starts the thread of the manager, if there is an administrator or a file to watch.
    ///
    /// # Errors
    /// The operating system cannot start a thread.
    pub fn start(self) -> Result<(), CliError> {
        if self.loads.is_none() && self.file.is_none() {
            return Ok(());
        }
        let started = thread::Builder::new()
            .name("models".to_owned())
            .spawn(move || self.run());
        started.map_err(|error| CliError::new(format!("cannot start a thread: {error}")))?;
        Ok(())
    }

    fn run(mut self) {
        loop {
            match self.loads.as_ref().map(|loads| loads.recv_timeout(PAUSE)) {
                Some(Ok(LoadRequest { entry, answer })) => {
                    let added = self.add(entry);
                    // An administrator who has left gets no answer.
                    let _ = answer.send(added);
                }
                Some(Err(RecvTimeoutError::Timeout)) => {}
                // The server has ended.
                Some(Err(RecvTimeoutError::Disconnected)) => return,
                None => thread::sleep(PAUSE),
            }
            self.fleet.free_unused();
            if self.file.as_mut().is_some_and(WatchedFile::has_changed)
                && let Err(error) = self.apply()
            {
                let path = self.args.config.as_deref().unwrap_or(Path::new(""));
                let path = path.display();
                let warning = format!("{path}: {}; the models stay as they are", text(error));
                self.log.warn(warning);
            }
        }
    }

    /// Loads a model for an administrator and returns its name.
    fn add(&mut self, mut entry: ModelEntry) -> Result<String, RefusedLoad> {
        let path = self.roots.admit(&entry.path, &self.specs)?;
        if path != entry.path {
            // The name is that of the path as it was sent, which may be a link.
            let names = run_folders::names(std::slice::from_ref(&entry.path));
            entry.name = entry.name.or(names.into_iter().next());
            entry.path = path;
        }
        if let Some(draft) = &mut entry.draft {
            *draft = self.roots.admit(draft, &self.specs)?;
        }
        let mut templates = entry.chat_template.iter().map(Path::new);
        // Built-in templates have names.
        if let Some(template) = templates.find(|template| template.exists()) {
            self.roots.admit(template, &[])?;
        }
        let invalid = |error| RefusedLoad::Invalid(text(error));
        let spec = models::added(entry, &self.args).map_err(invalid)?;
        let name = spec.options.name.clone();
        check_name(&spec, &self.served.models(), |_| false)?;
        let (roots, specs, running) = (&self.roots, &self.specs, self.served.models());
        let models = load(&mut self.fleet, &[spec], &self.served, |model| {
            let base = groups::base_path(model.model());
            let is_base = |running: &Arc<ServedModel>| is_same(&running.source.path, &base);
            if !model.model().has_adapter() || running.iter().any(is_base) {
                return Ok(());
            }
            // An adapter records the path of its base model.
            match roots.admit(&base, specs) {
                Ok(_) => Ok(()),
                Err(refused) => Err(CliError::new(refused.to_string()).into()),
            }
        });
        let models = models.map_err(|failure| match failure {
            Failure::Memory(error) => RefusedLoad::Memory(text(error)),
            Failure::Invalid(error) => RefusedLoad::Invalid(text(error)),
        })?;
        for model in models {
            self.served.put(model);
        }
        Ok(name)
    }

    /// Applies the changed file. Nothing changes if it is invalid.
    fn apply(&mut self) -> Result<(), CliError> {
        let wanted = models::specs(&self.args)?;
        let running = self.served.models();
        let was = |spec: &ModelSpec| find(&self.specs, &spec.options.name);
        let changed: Vec<ModelSpec> = wanted
            .iter()
            .filter(|spec| was(spec) != Some(spec))
            .cloned()
            .collect();
        let is_of_file = |name: &str| find(&self.specs, name).is_some();
        for spec in &changed {
            let checked = check_name(spec, &running, is_of_file);
            checked.map_err(|error| CliError::new(error.to_string()))?;
        }
        let gone: Vec<String> = self
            .specs
            .iter()
            .map(|spec| spec.options.name.clone())
            .filter(|name| find(&wanted, name).is_none())
            .collect();
        check_ready(&changed)?;
        // Everything new is checked before anything changes.
        Fleet::<B>::check_models(&changed, &running)?;
        let mut to_load = Vec::new();
        for spec in changed {
            match self.revise(&spec, &running) {
                Ok(true) => {}
                Ok(false) => to_load.push(spec),
                Err(error) => return Err(error.within(&spec.options.name)),
            }
        }
        drop(running);
        for name in &gone {
            self.remove(name);
        }
        let mut failed: Vec<String> = Vec::new();
        if let Err(error) = self.replace(&to_load) {
            failed.extend(to_load.iter().map(|spec| spec.options.name.clone()));
            self.log
                .warn(format!("{}: {}", failed.join(", "), text(error)));
        }
        // A model that could not be loaded is tried again when the file changes again.
        let is_failed = |spec: &ModelSpec| failed.contains(&spec.options.name);
        let is_served = |spec: &ModelSpec| self.served.find(&spec.options.name).is_some();
        let mut specs = std::mem::take(&mut self.specs);
        specs.retain(|spec| is_failed(spec) && is_served(spec));
        specs.extend(wanted.into_iter().filter(|spec| !is_failed(spec)));
        self.specs = specs;
        Ok(())
    }

    /// Changes the names and settings of requests of a running model. Returns false if it has to be loaded.
    fn revise(&self, spec: &ModelSpec, running: &[Arc<ServedModel>]) -> Result<bool, CliError> {
        let was = find(&self.specs, &spec.options.name);
        let model = running.iter().find(|model| model.name == spec.options.name);
        let (Some(was), Some(model)) = (was, model) else {
            return Ok(false);
        };
        let mut same = was.clone();
        same.options.aliases.clone_from(&spec.options.aliases);
        same.options.sampling = spec.options.sampling;
        let template = &mut same.options.chat_template;
        template.clone_from(&spec.options.chat_template);
        if same != *spec {
            return Ok(false);
        }
        let revised = Fleet::<B>::revise(spec, model, running)?;
        Ok(revised.map(|revised| self.served.put(revised)).is_some())
    }

    /// Loads models, in the places of those of the same names: beside them if the memory permits, otherwise after they were
    /// removed.
    fn replace(&mut self, specs: &[ModelSpec]) -> Result<(), CliError> {
        if specs.is_empty() {
            return Ok(());
        }
        let mut loaded = load(&mut self.fleet, specs, &self.served, |_| Ok(()));
        if let Err(Failure::Memory(_)) = loaded {
            let names = specs.iter().map(|spec| &*spec.options.name);
            let removed = names.filter_map(|name| self.remove(name));
            let threads: Vec<_> = removed.map(|model| model.worker.watch()).collect();
            // Running requests have this long.
            let limit = Duration::from_secs(self.args.timeout as u64);
            let start = Instant::now();
            while threads.iter().any(|thread| thread.is_used()) && start.elapsed() < limit {
                thread::sleep(Duration::from_millis(50));
            }
            self.fleet.free_unused();
            loaded = match threads.is_empty() {
                true => loaded,
                false => load(&mut self.fleet, specs, &self.served, |_| Ok(())),
            };
        }
        for model in loaded? {
            self.served.put(model);
        }
        Ok(())
    }

    fn remove(&self, name: &str) -> Option<Arc<ServedModel>> {
        let removed = self.served.remove(name)?;
        let running = match removed.worker.requests() {
            0 => String::new(),
            count => format!("; its memory is freed after {count} running prompts"),
        };
        self.log.note(format!("{name}: removed{running}"));
        Some(removed)
    }
}

/// Loads models beside the running ones.
fn load<B: Backend>(
    fleet: &mut Fleet<B>,
    specs: &[ModelSpec],
    served: &ServedModels,
    check: impl Fn(&OpenedModel) -> Result<(), Failure>,
) -> Result<Vec<ServedModel>, Failure> {
    check_ready(specs)?;
    return_freed();
    let loaded = fleet.load(specs, &served.models(), check);
    return_freed_soon();
    loaded
}

/// Checks that the runs to follow have checkpoints. Waiting for one would delay all changes.
fn check_ready(specs: &[ModelSpec]) -> Result<(), CliError> {
    let is_unready = |spec: &&ModelSpec| spec.follows && follow::has_no_checkpoint(&spec.path);
    match specs.iter().find(is_unready) {
        Some(spec) => {
            let message = format!("{} has no checkpoint yet", spec.path.display());
            Err(CliError::new(message).within(&spec.options.name))
        }
        None => Ok(()),
    }
}

/// Checks that no served model has a name or alias of a model, except for those that it `replaces`.
fn check_name(
    spec: &ModelSpec,
    running: &[Arc<ServedModel>],
    replaces: impl Fn(&str) -> bool,
) -> Result<(), RefusedLoad> {
    let options = &spec.options;
    let mut names = std::iter::once(&options.name).chain(&options.aliases);
    if names.clone().any(String::is_empty) {
        let message = "a model's name or alias is empty".to_owned();
        return Err(RefusedLoad::Invalid(message));
    }
    let is_taken = |name: &&String| {
        let mut running = running.iter().filter(|model| !replaces(&model.name));
        running.any(|model| model.is_called(name))
    };
    match names.find(is_taken) {
        Some(name) => Err(RefusedLoad::Exists(format!(
            "a served model has the name or alias `{name}`; remove it first, or choose another name"
        ))),
        None => Ok(()),
    }
}

fn find<'a>(specs: &'a [ModelSpec], name: &str) -> Option<&'a ModelSpec> {
    specs.iter().find(|spec| spec.options.name == name)
}

/// The message and hints of an error in one line.
fn text(error: impl Into<CliError>) -> String {
    error.into().in_one_line()
}
