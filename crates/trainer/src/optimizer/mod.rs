//! The optimizers over a module's parameters. Their state is stored by parameter path, which is
//! the name in the model's list ([`Parameters`]) and in weight files.
//!
//! Map: `apply` updates a module and `sharded` one rank's shard, each by `updates`; `groups` assigns parameters to groups, `rule`
//! is the interface of the update rules, `adamw`, `muon`, `normuon`, `soap` and `lion` are the rules, `orthogonal` is the iteration of two
//! of them, `eigenbasis` the rotation of SOAP, `moments` is the state of a parameter, `state` reads that of a checkpoint, `snapshot` writes it, `burn_optimizer`
//! implements Burn's `Optimizer`. Beside them are the learning rate ([`schedule`]), the weight decay ([`decay`]) and the decisions
//! on an update:
//! `guard` on the device, [`skip`] on the host, and [`loss_scale`].

mod adamw;
mod apply;
mod burn_optimizer;
pub mod decay;
mod eigenbasis;
mod groups;
pub(crate) mod guard;
mod lion;
pub mod loss_scale;
mod moments;
mod muon;
mod normuon;
mod orthogonal;
mod rule;
pub mod schedule;
mod sharded;
mod size_ratio;
pub mod skip;
pub(crate) mod snapshot;
mod soap;
pub(crate) mod state;
mod updates;

use std::collections::HashMap;
use std::sync::Arc;

use burn::module::AutodiffModule;
use burn::optim::GradientsParams;
use burn::optim::adaptor::GradAdaptor;
use burn::tensor::backend::{AutodiffBackend, Backend as BurnBackend};
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Device, Tensor, TensorPrimitive};

use apply::apply;
use emberlm_kernels::{Backend, TrainingBackend};
use emberlm_model::config::SizeRatio;
use emberlm_model::weights::{HostTensor, Parts};
use emberlm_model::{ParameterRole, Parameters};

use crate::config::{OptimizerConfig, OptimizerKind, TrainConfig};
use crate::optimizer::decay::Decay;
use crate::optimizer::guard::{Guard, StepFactor};
use crate::optimizer::moments::Moments;
use crate::peers::shards::Shards;
use crate::peers::{Peers, PeersError};
pub use burn_optimizer::OptimizerRecord;
pub use groups::ParameterGroup;
pub(crate) use rule::UpdateMemory;
use rule::{RuleSettings, Settings, UpdateInputs, UpdateRule, Updated, rules};
pub(crate) use sharded::RankCost;
pub use snapshot::Snapshot;
use state::{StateKind, StateKinds};

rules! {
    AdamW => adamw,
    Muon => muon,
    NorMuon => normuon,
    Soap => soap,
    Lion => lion,
}

/// The optimizer of a run, with its settings and its state by parameter path. It implements Burn's
/// [`Optimizer`](burn::optim::Optimizer) for any module.
#[derive(Clone)]
pub struct Optimizer<B: BurnBackend> {
    settings: Settings,
    /// Paths and roles. A parameter that is not listed uses its path in the module, and a role derived from this path
    /// or from its dimensions.
    parameters: Parameters,
    /// Blocks of the model, or of the deeper of its two stacks.
    blocks: usize,
    /// The model's size over that of the base of its parametrization.
    size: SizeRatio,
    /// Number of updates.
    updates: u64,
    moments: HashMap<String, Moments<B>>,
    /// The factor on the weight decay of the next updates.
    decay_factor: f64,
    /// The division of the parameters among ranks; `None` for a single process.
    shards: Option<Arc<Shards>>,
}

/// The first components of the paths below the first block.
pub(crate) const EMBEDDINGS: [&str; 4] = ["tokens", "positions", "segments", "norm_embedding"];

/// The index of the block that a parameter belongs to.
fn block_index(path: &str) -> Option<usize> {
    let mut parts = path.split('.').skip_while(|part| *part != "blocks");
    parts.nth(1)?.parse().ok()
}

impl<B: Backend> Optimizer<B> {
    /// A new optimizer for a model's `parameters`.
    pub fn new(config: &TrainConfig, parameters: Parameters) -> Self {
        let blocks = parameters
            .iter()
            .filter_map(|parameter| block_index(&parameter.path))
            .max()
            .map_or(0, |last| last + 1);
        Self {
            settings: Settings::of(config),
            blocks,
            size: size_ratio::of(&config.parametrization, &parameters, blocks),
            parameters,
            updates: 0,
            moments: HashMap::new(),
            decay_factor: 1.0,
            shards: None,
        }
    }

    /// The factor of `train.layer_decay` on the learning rate of the parameter at `path`.
    fn layer_factor(&self, path: &str) -> f64 {
        let decay = self.settings.layer_decay;
        if decay == 1.0 {
            return 1.0;
        }
        let above = match block_index(path) {
            Some(block) => self.blocks - block,
            None if EMBEDDINGS.contains(&path.split('.').next().unwrap_or(path)) => self.blocks + 1,
            None => 0,
        };
        decay.powi(above as i32)
    }

    /// Sets the factor on the weight decay of the next updates, see [`decay::decay_factor`].
    pub fn set_decay_factor(&mut self, factor: f64) {
        self.decay_factor = factor;
    }

    /// Number of updates.
    pub fn updates(&self) -> u64 {
        self.updates
    }

    /// Updates every parameter that has a gradient. Gradients are first multiplied by `factor` `[1]`. `rate` is the
    /// step's learning rate, before the groups' factors.
    pub fn update<A, M>(
        &mut self,
        module: M,
        grads: GradientsParams,
        factor: Option<Tensor<B, 1>>,
        rate: f64,
    ) -> M
    where
        A: TrainingBackend + AutodiffBackend<InnerBackend = B>,
        M: AutodiffModule<A>,
    {
        self.guarded_update::<A, M>(module, grads, factor, rate, None)
    }

    /// [`Optimizer::update`] under a guard. If the guard forbids the update, parameters and moments stay unchanged, and
    /// the update is counted until it is undone.
    pub(crate) fn guarded_update<A, M>(
        &mut self,
        module: M,
        grads: GradientsParams,
        factor: Option<Tensor<B, 1>>,
        rate: f64,
        guard: Option<&Guard<B>>,
    ) -> M
    where
        A: TrainingBackend + AutodiffBackend<InnerBackend = B>,
        M: AutodiffModule<A>,
    {
        self.mapped::<A, M>(module, grads.into(), factor, rate, guard)
    }

    /// Returns the module after the update of every parameter that has a gradient.
    fn mapped<A, M>(
        &mut self,
        module: M,
        grads: GradAdaptor,
        factor: Option<Tensor<B, 1>>,
        rate: f64,
        guard: Option<&Guard<B>>,
    ) -> M
    where
        A: TrainingBackend + AutodiffBackend<InnerBackend = B>,
        M: AutodiffModule<A>,
    {
        self.updates += 1;
        apply::<B, A, M>(self, module, grads, StepFactor::new(factor, guard), rate)
    }

    /// Removes the newest updates from the count. A guard must have forbidden them.
    pub(crate) fn take_back(&mut self, updates: u64) {
        self.updates = self.updates.saturating_sub(updates);
        if self.updates == 0 {
            // A forbidden first update leaves moments of zeros.
            self.moments.clear();
        }
    }

    /// The current state, as tensor handles rather than copies, so that another thread can write it. With several ranks, all
    /// must call this.
    ///
    /// # Errors
    /// A peer cannot be reached.
    pub(crate) fn snapshot_among(&self, peers: &dyn Peers<B>) -> Result<Snapshot<B>, PeersError> {
        match &self.shards {
            Some(shards) => self.shard_snapshot(shards, peers),
            None => Ok(self.snapshot()),
        }
    }

    /// Restores a snapshot from its tensors by name. `parts` describes how the module splits parameters: a snapshot has
    /// only complete parameters.
    ///
    /// # Errors
    /// The name of a tensor that does not match this optimizer's state of its parameter, or of a missing one.
    pub fn restore(
        &mut self,
        updates: u64,
        tensors: impl IntoIterator<Item = (String, HostTensor)>,
        parts: &Parts,
        device: &Device<B>,
    ) -> Result<(), String> {
        let rule = |path: &str, dimensions| {
            let unlisted = ParameterRole::of_dimensions(dimensions);
            self.settings
                .rule(self.parameters.role(path).unwrap_or(&unlisted))
        };
        // The paths in an encoder–decoder begin like this, too.
        let begins = |path: &str| path.starts_with(state::OLD_PREFIX);
        let prefix = match self
            .parameters
            .iter()
            .any(|parameter| begins(&parameter.path))
        {
            true => "",
            false => state::OLD_PREFIX,
        };
        let put = |path: &str, tensor| self.own_state(path, tensor, device);
        self.moments = state::restored(rule, tensors, prefix, parts, put)?;
        self.updates = updates;
        Ok(())
    }
}

impl<B: Backend> Optimizer<B> {
    /// The role of the parameter at `path`.
    fn role(&self, path: &str, dimensions: usize) -> ParameterRole {
        let listed = self.parameters.role(path).cloned();
        listed.unwrap_or_else(|| ParameterRole::of_dimensions(dimensions))
    }
}

fn typed<B: BurnBackend, const D: usize>(primitive: FloatTensor<B>) -> Tensor<B, D> {
    Tensor::from_primitive(TensorPrimitive::Float(primitive))
}

fn primitive<B: BurnBackend, const D: usize>(tensor: Tensor<B, D>) -> FloatTensor<B> {
    tensor.into_primitive().tensor()
}
