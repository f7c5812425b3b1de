//! Writes the adapter of a run as the files of PEFT.

use std::path::Path;

use burn::tensor::Device;
use emberlm_checkpoint::{AdapterDescription, Model};
use emberlm_kernels::TrainingBackend;
use emberlm_model::adapter::write_peft;

use crate::backend::{BackendArg, Job};
use crate::error::CliError;
use crate::new_folder::NewFolder;
use crate::output::print;

/// Writes the adapter into the folder `out`, and prints a summary.
pub fn run(
    model: &Model,
    adapter: &AdapterDescription,
    out: &Path,
    force: bool,
    backend: &BackendArg,
) -> Result<(), CliError> {
    let backend = backend.choose()?;
    let folder = NewFolder::for_model(out, force)?;
    let tensors = backend.run(Write {
        model,
        adapter,
        folder: folder.path(),
    })??;
    if let Some(tokenizer) = model.tokenizer()? {
        super::write_tokenizer(model, &tokenizer, folder.path())?;
    }
    folder.finish()?;
    let (out, base) = (out.display(), adapter.base.path.display());
    print(&format!("{out}: an adapter of {base}, {tensors} tensors\n"))
}

struct Write<'a> {
    model: &'a Model,
    adapter: &'a AdapterDescription,
    folder: &'a Path,
}

impl Job for Write<'_> {
    type Output = Result<usize, CliError>;

    fn run<B: TrainingBackend>(self, device: Device<B>) -> Self::Output {
        let decoder = self.model.decoder::<B::InnerBackend>(&device)?;
        let base = self.adapter.base.path.to_string_lossy();
        Ok(write_peft(
            &decoder,
            &self.adapter.settings,
            &base,
            self.folder,
        )?)
    }
}
