//! `emberlm logits`: writes a model's logits for given tokens, for comparison with other programs.

use std::collections::HashMap;

use burn::tensor::{Device, Int, Tensor, TensorData};
use emberlm_checkpoint::Model;
use emberlm_kernels::TrainingBackend;
use emberlm_model::weights::{HostTensor, save_own};

use crate::args::LogitsArgs;
use crate::backend::Job;
use crate::error::CliError;
use crate::model;
use crate::output::print;

/// Computes the logits and writes them.
pub fn run(args: LogitsArgs) -> Result<(), CliError> {
    let backend = args.backend.choose()?;
    let model = model::open(&args.model)?;
    model.config().check_tokens(&args.tokens)?;
    let logits = backend.run(Logits {
        model: &model,
        tokens: &args.tokens,
    })??;
    let (path, tokens) = (args.out.display().to_string(), args.tokens.len());
    let vocab_size = model.config().vocab_size();
    save_own(&[("logits".to_owned(), logits)], HashMap::new(), &args.out)?;
    print(&format!("{path}: logits [{tokens}, {vocab_size}]\n"))
}

struct Logits<'a> {
    model: &'a Model,
    tokens: &'a [u32],
}

impl Job for Logits<'_> {
    type Output = Result<HostTensor, CliError>;

    fn run<B: TrainingBackend>(self, device: Device<B>) -> Self::Output {
        let decoder = self.model.decoder::<B::InnerBackend>(&device)?;
        let ids: Vec<i64> = self.tokens.iter().map(|&id| i64::from(id)).collect();
        let ids = TensorData::new(ids, [1, self.tokens.len()]);
        let ids = Tensor::<B::InnerBackend, 2, Int>::from_data(ids, &device); // [1, seq]
        let logits = decoder.forward(ids).squeeze_dim::<2>(0); // [seq, vocab_size]
        Ok(HostTensor {
            shape: logits.dims().to_vec(),
            values: logits.into_data().iter::<f32>().collect(),
        })
    }
}
