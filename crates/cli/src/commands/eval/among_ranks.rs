//! Evaluations of a model that the ranks of a job divide among themselves.

use burn::tensor::Device;
use emberlm_checkpoint::Model;
use emberlm_kernels::{Backend, TrainingBackend};
use emberlm_model::Transformer;
use emberlm_trainer::config::ExchangeMemory;
use emberlm_trainer::peers::{Peers, weights_hash};

use crate::backend::Job;
use crate::error::CliError;
use crate::model;
use crate::ranks::Ranks;
use crate::weights_arg::Formats;

/// An evaluation on every rank.
pub trait ModelEvaluation {
    type Output;

    fn evaluate<B: Backend>(
        self,
        decoder: &Transformer<B>,
        peers: &dyn Peers<B>,
    ) -> Result<Self::Output, CliError>;
}

/// Loads the model on every rank, checks that all have the same weights, and evaluates it.
pub struct AmongRanks<'a, E> {
    pub ranks: &'a Ranks,
    pub model: &'a Model,
    pub formats: Formats,
    pub evaluation: E,
}

impl<E: ModelEvaluation> Job for AmongRanks<'_, E> {
    type Output = Result<E::Output, CliError>;

    fn run<B: TrainingBackend>(self, device: Device<B>) -> Self::Output {
        let decoder = model::decoder_in::<B::InnerBackend>(self.model, self.formats, &device)?;
        self.ranks.agree(
            "evaluate",
            &[("the hash of the weights", weights_hash(&decoder))],
        )?;
        let peers = self
            .ranks
            .peers::<B::InnerBackend>(ExchangeMemory::Host, &device)?;
        self.evaluation.evaluate(&decoder, &*peers)
    }
}
