//! `emberlm activations`: writes the tensors inside a model's pass over a text.

mod recorder;

use std::collections::HashMap;
use std::path::PathBuf;

use burn::tensor::{Device, Int, Tensor};
use clap::{Args, ValueHint};
use emberlm_kernels::{Backend, TrainingBackend};
use emberlm_model::id_tensor;
use emberlm_model::nn::probe::{Probe, Site};
use emberlm_model::weights::{HostTensor, save_own};
use glob::Pattern;

use crate::adapter_arg::AdapterArg;
use crate::backend::{BackendArg, Job};
use crate::error::CliError;
use crate::examples;
use crate::memory_guard::{Demand, MemoryArg, MemoryGuard};
use crate::opened_model::OpenedModel;
use crate::output::print;
use crate::text_arg::TextArg;
use recorder::{Recorder, SizeProbe};

/// Arguments of `activations`.
#[derive(Debug, Args)]
#[command(after_help = examples::ACTIVATIONS)]
pub struct ActivationsArgs {
    /// A run, checkpoint or Hugging Face directory of a decoder or an encoder
    pub model: PathBuf,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub text: TextArg,
    /// Only activations with this name, such as 'blocks.*.hook_resid_post', where * is any text; can be repeated
    /// [default: all]
    #[arg(long, value_name = "NAME")]
    pub site: Vec<Pattern>,
    /// The file to write: tensors in f32 under the names of TransformerLens, each [1, seq, …], attention patterns [1, heads, seq, seq]
    #[arg(long, value_name = "FILE.safetensors", value_hint = ValueHint::FilePath)]
    pub out: PathBuf,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub adapter: AdapterArg,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub memory: MemoryArg,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub backend: BackendArg,
}

/// Computes the activations and writes them.
pub fn run(args: ActivationsArgs) -> Result<(), CliError> {
    let backend = args.backend.choose()?;
    let model = OpenedModel::open_with(&args.model, &args.adapter)?;
    let tokens = args.text.tokens(&model, &args.model)?;
    let tensors = backend.run(Activations {
        model: &model,
        tokens: &tokens,
        guard: args.memory.guard(backend),
        wanted: &|site: &Site| {
            let name = site.to_string();
            args.site.is_empty() || args.site.iter().any(|pattern| pattern.matches(&name))
        },
    })??;
    for pattern in &args.site {
        if !tensors.iter().any(|(name, _)| pattern.matches(name)) {
            let message = format!("--site {pattern}: the model has no such activation");
            return Err(CliError::new(message).hint(
                "names are those of TransformerLens, such as blocks.0.hook_resid_pre; without --site, all are written",
            ));
        }
    }
    save_own(&tensors, HashMap::new(), &args.out)?;
    let (path, count) = (args.out.display(), tensors.len());
    print(&format!(
        "{path}: {count} activations of {} tokens\n",
        tokens.len()
    ))
}

/// Computes the wanted activations of a text.
struct Activations<'a> {
    model: &'a OpenedModel,
    tokens: &'a [u32],
    guard: MemoryGuard,
    wanted: &'a dyn Fn(&Site) -> bool,
}

impl Job for Activations<'_> {
    type Output = Result<Vec<(String, HostTensor)>, CliError>;

    fn run<B: TrainingBackend>(self, device: Device<B>) -> Self::Output {
        match self.model {
            OpenedModel::Decoder(model) | OpenedModel::EncoderDecoder(model) => {
                let decoder = model.decoder::<B::InnerBackend>(&device)?;
                self.recorded(&device, |ids, probe| {
                    decoder.forward_probed(ids, probe);
                })
            }
            OpenedModel::Encoder(model) => {
                let encoder = model.load::<B::InnerBackend>(&device)?;
                self.recorded(&device, |ids, probe| {
                    encoder.states_probed(ids, probe);
                })
            }
        }
    }
}

impl Activations<'_> {
    /// The activations that `pass` shows to a probe. A pass over one token determines their memory.
    fn recorded<B: Backend>(
        &self,
        device: &Device<B>,
        pass: impl Fn(Tensor<B, 2, Int>, &mut dyn Probe<B>),
    ) -> Result<Vec<(String, HostTensor)>, CliError> {
        let ids = |tokens: &[u32]| id_tensor::<B>(tokens, [1, tokens.len()], device);
        let mut sizes = SizeProbe::new(self.wanted, self.tokens.len());
        pass(ids(&self.tokens[..1]), &mut sizes);
        let demand = Demand::host_tensors("the activations", sizes.bytes);
        self.guard.check(&demand, || {
            vec!["choose some of the activations with --site, or a shorter text".to_owned()]
        })?;
        let mut recorder = Recorder::new(self.wanted);
        pass(ids(self.tokens), &mut recorder);
        Ok(recorder.tensors)
    }
}
