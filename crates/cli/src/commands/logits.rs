//! `emberlm logits`: writes a model's logits for given tokens, for comparison with other programs.

use std::collections::HashMap;
use std::path::PathBuf;

use burn::tensor::{Device, Tensor};
use clap::Args;
use emberlm_checkpoint::{ModelKind, kind_of};
use emberlm_kernels::{Backend, TrainingBackend};
use emberlm_model::weights::{HostTensor, save_own};
use emberlm_model::{CacheFormat, id_tensor};

use crate::adapter_arg::AdapterArg;
use crate::backend::{BackendArg, Job};
use crate::cache_arg::{self, CacheArg};
use crate::error::CliError;
use crate::examples;
use crate::model;
use crate::opened_model::OpenedModel;
use crate::output::print;
use crate::values;
use crate::weights_arg::Formats;

/// Arguments of `logits`.
#[derive(Debug, Args)]
#[command(after_help = examples::LOGITS)]
pub struct LogitsArgs {
    /// A run, checkpoint or Hugging Face directory
    pub model: PathBuf,
    /// The token ids, or an encoder–decoder's source, such as 1,2,3
    #[arg(long, value_name = "IDS", value_delimiter = ',', value_parser = values::token_id, required = true)]
    pub tokens: Vec<u32>,
    /// The token ids of an encoder–decoder's target, without the start token: row i has the logits of its token i
    #[arg(long, value_name = "IDS", value_delimiter = ',', value_parser = values::token_id)]
    pub target_tokens: Option<Vec<u32>>,
    /// The file to write: tensor `logits`, f32, [seq, vocab]; [seq, labels] or [labels] of an encoder's classifier
    #[arg(long, value_name = "FILE.safetensors")]
    pub out: PathBuf,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub cache: CacheArg,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub adapter: AdapterArg,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub backend: BackendArg,
}

/// Computes the logits and writes them.
pub fn run(args: LogitsArgs) -> Result<(), CliError> {
    let backend = args.backend.choose()?;
    let subject = Subject::open(&args)?;
    let logits = backend.run(Logits {
        subject: &subject,
        tokens: &args.tokens,
        cache: args.cache.cache,
    })??;
    let (path, shape) = (args.out.display().to_string(), logits.shape.clone());
    save_own(&[("logits".to_owned(), logits)], HashMap::new(), &args.out)?;
    print(&format!("{path}: logits {shape:?}\n"))
}

/// A model whose weights have not been read, with its tokens checked.
struct Subject {
    model: OpenedModel,
    /// The decoder's input of an encoder–decoder: the start token, then all tokens of the target but the last.
    input: Vec<u32>,
}

impl Subject {
    fn open(args: &LogitsArgs) -> Result<Self, CliError> {
        let path = args.model.display();
        let kind = kind_of(&args.model);
        cache_arg::check_kind(args.cache.cache, kind, &args.model)?;
        let is_pair = kind == ModelKind::EncoderDecoder;
        if !is_pair && args.target_tokens.is_some() {
            let message = format!("--target-tokens is for encoder–decoders, and {path} is none");
            return Err(CliError::new(message).hint("leave --target-tokens out"));
        }
        let model = OpenedModel::open_with(&args.model, &args.adapter)?;
        model.check_tokens(&args.tokens)?;
        let input = match &model {
            OpenedModel::Decoder(_) | OpenedModel::Encoder(_) => Vec::new(),
            OpenedModel::EncoderDecoder(pair) => {
                let Some(target) = &args.target_tokens else {
                    let message = format!("{path} is an encoder–decoder, which needs a target");
                    return Err(CliError::new(message).hint("give one: --target-tokens 1,2,3"));
                };
                model.check_tokens(target)?;
                let start = pair.config().start_token().unwrap_or(0);
                let before_last = target.iter().take(target.len() - 1);
                std::iter::once(start).chain(before_last.copied()).collect()
            }
        };
        Ok(Self { model, input })
    }
}

struct Logits<'a> {
    subject: &'a Subject,
    tokens: &'a [u32],
    cache: CacheFormat,
}

impl Job for Logits<'_> {
    type Output = Result<HostTensor, CliError>;

    fn run<B: TrainingBackend>(self, device: Device<B>) -> Self::Output {
        let row = |ids: &[u32]| id_tensor::<B::InnerBackend>(ids, [1, ids.len()], &device);
        let ids = row(self.tokens); // [1, seq]
        match &self.subject.model {
            OpenedModel::Decoder(model) => {
                let formats = Formats {
                    cache: self.cache,
                    ..Formats::default()
                };
                let decoder = model::decoder_in::<B::InnerBackend>(model, formats, &device)?;
                Ok(host(decoder.forward(ids).squeeze_dim::<2>(0))) // [seq, vocab_size]
            }
            OpenedModel::Encoder(model) => {
                let encoder = model.load::<B::InnerBackend>(&device)?;
                let states = encoder.states(ids); // [1, seq, d_model]
                if let Some(logits) = encoder.token_logits(states.clone()) {
                    return Ok(host(logits.squeeze_dim::<2>(0))); // [seq, outputs]
                }
                let pooled = encoder.class_states(states, None); // [1, d_model]
                match encoder.class_logits(pooled) {
                    Some(logits) => Ok(host(logits.squeeze_dim::<1>(0))), // [labels]
                    None => {
                        let path = model.model().path().display();
                        let message = format!("{path} has no head that computes logits");
                        Err(CliError::new(message)
                            .hint("its states are pooled by emberlm embed MODEL FILE"))
                    }
                }
            }
            OpenedModel::EncoderDecoder(model) => {
                let loaded = model.decoder::<B::InnerBackend>(&device)?;
                let source = loaded.encode_source(ids, None);
                let logits = loaded.decode(row(&self.subject.input), &source);
                Ok(host(logits.squeeze_dim::<2>(0))) // [target, vocab_size]
            }
        }
    }
}

/// Reads a tensor from the device.
fn host<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> HostTensor {
    HostTensor {
        shape: tensor.dims().to_vec(),
        values: tensor.into_data().iter::<f32>().collect(),
    }
}
