//! `emberlm activations`: writes the tensors inside a model's pass over a text.

mod recorder;

use std::collections::HashMap;
use std::path::PathBuf;

use burn::tensor::Device;
use clap::{Args, ValueHint};
use emberlm_kernels::TrainingBackend;
use emberlm_model::id_tensor;
use emberlm_model::nn::probe::Site;
use emberlm_model::weights::{HostTensor, save_own};
use glob::Pattern;

use crate::adapter_arg::AdapterArg;
use crate::backend::{BackendArg, Job};
use crate::error::CliError;
use crate::examples;
use crate::opened_model::OpenedModel;
use crate::output::print;
use crate::text_arg::TextArg;
use recorder::Recorder;

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
    wanted: &'a dyn Fn(&Site) -> bool,
}

impl Job for Activations<'_> {
    type Output = Result<Vec<(String, HostTensor)>, CliError>;

    fn run<B: TrainingBackend>(self, device: Device<B>) -> Self::Output {
        let ids = id_tensor::<B::InnerBackend>(self.tokens, [1, self.tokens.len()], &device);
        let mut recorder = Recorder::new(self.wanted);
        match self.model {
            OpenedModel::Decoder(model) | OpenedModel::EncoderDecoder(model) => {
                let decoder = model.decoder::<B::InnerBackend>(&device)?;
                decoder.forward_probed(ids, &mut recorder);
            }
            OpenedModel::Encoder(model) => {
                let encoder = model.load::<B::InnerBackend>(&device)?;
                encoder.states_probed(ids, &mut recorder);
            }
        }
        Ok(recorder.tensors)
    }
}
