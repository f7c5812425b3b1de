//! What a run begins with: weights, the optimizer's state and where it stands.

use std::path::PathBuf;

use burn::module::AutodiffModule;
use burn::tensor::Device;
use burn::tensor::backend::Backend as BurnBackend;
use emberlm_checkpoint::CheckpointError;
use emberlm_kernels::TrainingBackend;
use emberlm_model::weights::Parts;
use emberlm_model::{Decoder, DecoderConfig};

use crate::checkpoint::{Checkpoint, State};
use crate::config::RunConfig;
use crate::data::TrainingData;
use crate::ema::Average;
use crate::error::TrainError;
use crate::optimizer::Optimizer;

/// What a run begins with.
pub(crate) struct Begun<B: TrainingBackend> {
    pub(crate) decoder: Decoder<B>,
    pub(crate) optimizer: Optimizer<B::InnerBackend>,
    pub(crate) average: Option<Average<B::InnerBackend>>,
    pub(crate) state: State,
    /// Where it was computed before, if elsewhere.
    pub(crate) moved_from: Option<String>,
    /// The newest checkpoint there is.
    pub(crate) checkpoint: Option<PathBuf>,
}

impl<B: TrainingBackend> Begun<B> {
    pub(crate) fn new(
        checkpoint: Option<&Checkpoint>,
        weights: Option<Decoder<B>>,
        config: &RunConfig,
        model: &DecoderConfig,
        data: &TrainingData,
        device: &Device<B>,
    ) -> Result<Self, TrainError> {
        let mut state = State::default();
        let decoder = match (checkpoint, weights) {
            (Some(checkpoint), _) => checkpoint.training_decoder::<B>(device)?,
            (None, Some(weights)) => weights.reconfigured(model)?,
            (None, None) => model.init::<B>(config.train.seed, device),
        };
        let mut optimizer = Optimizer::new(&config.train, decoder.parameters());
        if let Some(checkpoint) = checkpoint {
            state = checkpoint.state.clone().unwrap_or_default();
            let parts = Parts::of::<B, _>(&decoder);
            optimizer
                .restore(state.updates, checkpoint.optimizer()?, &parts, device)
                .map_err(|name| CheckpointError::Damaged {
                    path: checkpoint.path.clone(),
                    reason: format!("its optimizer has a stray {name}"),
                })?;
        }
        let averaged = match checkpoint {
            Some(checkpoint) if checkpoint.holds_average() => Some(checkpoint.decoder(device)?),
            _ => None,
        };
        let decay = config.train.ema;
        let average =
            (decay > 0.0).then(|| Average::new(averaged.unwrap_or_else(|| decoder.valid()), decay));
        state.data = data.identities();
        let backend = B::InnerBackend::name(device);
        let before = std::mem::replace(&mut state.backend, backend);
        let moved_from = (checkpoint.is_some() && before != state.backend).then_some(before);
        Ok(Self {
            decoder,
            optimizer,
            average,
            state,
            moved_from,
            checkpoint: checkpoint.map(|checkpoint| checkpoint.path.clone()),
        })
    }
}
