//! The optimizers AdamW, Muon and Lion over a module's parameters. Their state is stored by parameter path, which is
//! the name in the model's list ([`Parameters`]) and in weight files.
//!
//! Map: `apply` updates a module and `sharded` one rank's shard, each by `updates`; `groups` assigns parameters to groups, `rule`
//! is the interface of the update rules, `adamw`, `muon` and `lion` are the rules, `state` reads the state of a checkpoint,
//! `snapshot` writes it, `burn_optimizer` implements Burn's `Optimizer`. Beside them are the learning rate ([`schedule`]) and the
//! decisions on an update:
//! `guard` on the device, [`skip`] on the host, and [`loss_scale`].

mod adamw;
mod apply;
mod burn_optimizer;
mod groups;
pub(crate) mod guard;
mod lion;
pub mod loss_scale;
mod muon;
mod rule;
pub mod schedule;
mod sharded;
pub mod skip;
pub(crate) mod snapshot;
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
use emberlm_model::weights::{HostTensor, Parts};
use emberlm_model::{ParameterRole, Parameters};

use crate::config::{OptimizerConfig, TrainConfig};
use crate::optimizer::guard::{Guard, StepFactor};
use crate::peers::shards::Shards;
use crate::peers::{Peers, PeersError};
pub use burn_optimizer::OptimizerRecord;
pub use groups::ParameterGroup;
pub(crate) use rule::UpdateMemory;
use rule::{RuleSettings, Settings, UpdateInputs, UpdateRule, Updated, rules};
pub(crate) use sharded::RankCost;
pub use snapshot::Snapshot;
use state::StateKind;

rules! {
    AdamW => adamw,
    Muon => muon,
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
    /// Number of updates.
    updates: u64,
    moments: HashMap<String, Moments<B>>,
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

/// The optimizer's state of one parameter. Each tensor has the parameter's shape, or is a vector `[n]` for a piece of a
/// parameter that is divided among ranks.
#[derive(Clone)]
enum Moments<B: BurnBackend> {
    /// AdamW's running means of the gradient and its square.
    Two {
        first: FloatTensor<B>,
        second: FloatTensor<B>,
    },
    /// Muon's and Lion's running mean of the gradient.
    One(FloatTensor<B>),
}

impl<B: Backend> Optimizer<B> {
    /// A new optimizer for a model's `parameters`.
    pub fn new(config: &TrainConfig, parameters: Parameters) -> Self {
        Self {
            settings: Settings::of(config),
            blocks: parameters
                .iter()
                .filter_map(|parameter| block_index(&parameter.path))
                .max()
                .map_or(0, |last| last + 1),
            parameters,
            updates: 0,
            moments: HashMap::new(),
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
    /// The name of a tensor that does not match this optimizer's state of its parameter, or of a missing one of a pair.
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

impl<B: Backend> Moments<B> {
    /// The moments `after` an update if the guard allows it, otherwise the moments before it (zeros before the first
    /// update).
    fn chosen<const D: usize>(guard: &Guard<B>, before: Option<Self>, after: Self) -> Self {
        let choose = |before: Option<FloatTensor<B>>, after: FloatTensor<B>| {
            let after: Tensor<B, D> = typed(after);
            let before = before.map_or_else(|| after.zeros_like(), typed);
            primitive(guard.choose(before, after))
        };
        match (before, after) {
            (
                Some(Self::Two { first, second }),
                Self::Two {
                    first: a,
                    second: b,
                },
            ) => Self::Two {
                first: choose(Some(first), a),
                second: choose(Some(second), b),
            },
            (_, Self::Two { first, second }) => Self::Two {
                first: choose(None, first),
                second: choose(None, second),
            },
            (Some(Self::One(mean)), Self::One(after)) => Self::One(choose(Some(mean), after)),
            (_, Self::One(after)) => Self::One(choose(None, after)),
        }
    }
}

impl<B: BurnBackend> Moments<B> {
    fn one<const D: usize>(mean: Tensor<B, D>) -> Self {
        Self::One(primitive(mean))
    }

    /// The momentum of a parameter with this gradient; zeros before the first update.
    fn mean_or_zeros<const D: usize>(moments: Option<Self>, grad: &Tensor<B, D>) -> Tensor<B, D> {
        match moments {
            Some(Self::One(mean)) => typed(mean),
            Some(Self::Two { .. }) | None => grad.zeros_like(),
        }
    }
}

fn typed<B: BurnBackend, const D: usize>(primitive: FloatTensor<B>) -> Tensor<B, D> {
    Tensor::from_primitive(TensorPrimitive::Float(primitive))
}

fn primitive<B: BurnBackend, const D: usize>(tensor: Tensor<B, D>) -> FloatTensor<B> {
    tensor.into_primitive().tensor()
}
