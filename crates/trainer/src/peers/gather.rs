//! The gather of updated parameters, which continues while the next step begins:
//!
//! ```text
//! this thread     update ─► model whose parameters wait for their values ─► next step: embedding, block 1, block 2, …
//! gather          bucket of the embedding ─► bucket of block 1 ─► bucket of block 2 ─► …
//! ```
//!
//! A parameter waits when it is first used.

use std::collections::HashMap;
use std::panic::resume_unwind;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use burn::module::Module;
use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Device, Tensor};
use emberlm_kernels::{Backend, TrainingBackend};
use emberlm_model::weights::{LazyParams, LazyValue, replace_lazily};

use super::exchange::{error, no_thread, typed};
use super::shards::Shards;
use super::{Divided, Peers, PeersError};

/// A gather in progress.
pub(crate) struct Gather(Result<JoinHandle<Result<(), PeersError>>, PeersError>);

impl Gather {
    /// Begins to gather the updated pieces of all ranks. Of the divided parameters, those that `are_present` are updated;
    /// `own` are this rank's pieces of them, in order. Returns the module with the updated parameters.
    pub(crate) fn begin<A: TrainingBackend, M: Module<A>>(
        peers: Arc<dyn Peers<A::InnerBackend>>,
        shards: Arc<Shards>,
        are_present: Vec<bool>,
        own: Vec<FloatTensor<A::InnerBackend>>,
        module: M,
        device: Device<A>,
    ) -> (Self, M) {
        let mut senders = Vec::with_capacity(are_present.len());
        let mut receivers = HashMap::new();
        for (parameter, &is_present) in shards.parameters().iter().zip(&are_present) {
            senders.push(is_present.then(|| {
                let (sender, receiver) = mpsc::channel();
                receivers.insert(parameter.path.clone(), receiver);
                sender
            }));
        }
        let module = replace_lazily(
            module,
            &mut Awaited {
                receivers,
                device: device.clone(),
            },
        );
        let of_shards = Arc::clone(&shards);
        let gather = move || gather::<A::InnerBackend>(&*peers, &shards, senders, own, &device);
        let thread = thread::Builder::new().spawn(gather);
        let thread = thread.map_err(|source| no_thread(&of_shards, "parameters", &source));
        (Self(thread), module)
    }

    /// Waits for all parameters.
    ///
    /// # Errors
    /// A peer cannot be reached, or the system did not start a thread. The parameters that did not arrive are NaN.
    pub(crate) fn finish(self) -> Result<(), PeersError> {
        self.0?.join().unwrap_or_else(|panic| resume_unwind(panic))
    }
}

/// Gathers bucket by bucket, in the order in which the next forward pass uses the parameters, and sends each parameter that
/// has a sender.
fn gather<B: Backend>(
    peers: &dyn Peers<B>,
    shards: &Shards,
    senders: Vec<Option<Sender<FloatTensor<B>>>>,
    own: Vec<FloatTensor<B>>,
    device: &Device<B>,
) -> Result<(), PeersError> {
    let rank = shards.rank().index();
    let mut own = own.into_iter();
    for bucket in shards.buckets().iter().rev() {
        let parameters = shards.parameters()[bucket.clone()].iter();
        let updated = parameters.zip(&senders[bucket.clone()]);
        let updated = updated.filter_map(|(parameter, sender)| Some((parameter, sender.as_ref()?)));
        let (vectors, senders): (Vec<_>, Vec<_>) = updated
            .map(|(parameter, sender)| {
                let value = parameter.piece_of(rank).and_then(|_| own.next());
                let pieces = parameter.pieces.clone();
                (Divided { value, pieces }, sender)
            })
            .unzip();
        if vectors.is_empty() {
            continue;
        }
        let gathered = peers.all_gather(vectors, device)?;
        if gathered.len() != senders.len() {
            let reason = format!("{} vectors came back for {}", gathered.len(), senders.len());
            return Err(error(shards, "parameters", reason));
        }
        for (sender, parameter) in senders.into_iter().zip(gathered) {
            // A module that was dropped waits for nothing.
            let _ = sender.send(parameter);
        }
    }
    Ok(())
}

/// The parameters that wait, by path.
struct Awaited<B: BurnBackend, D> {
    receivers: HashMap<String, Receiver<FloatTensor<B>>>,
    device: D,
}

impl<A: TrainingBackend> LazyParams<A> for Awaited<A::InnerBackend, Device<A>> {
    fn value<const D: usize>(&mut self, path: &str, shape: [usize; D]) -> Option<LazyValue<A, D>> {
        let receiver = self.receivers.remove(path)?;
        let device = self.device.clone();
        let state = Mutex::new(Arrival::Awaited(receiver));
        Some(Box::new(move || {
            let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
            state.value(shape, &device)
        }))
    }
}

/// The value of a parameter, once it has arrived.
enum Arrival<A: TrainingBackend, const D: usize> {
    Awaited(Receiver<FloatTensor<A::InnerBackend>>),
    Arrived(Tensor<A, D>),
}

impl<A: TrainingBackend, const D: usize> Arrival<A, D> {
    /// Waits for the value if it has not arrived.
    fn value(&mut self, shape: [usize; D], device: &Device<A>) -> Tensor<A, D> {
        let value = match self {
            Self::Arrived(value) => return value.clone(),
            Self::Awaited(gathered) => match gathered.recv() {
                Ok(gathered) => typed::<A::InnerBackend>(gathered).reshape(shape),
                // The gather has failed: its error ends the run, and no result may depend on the old values.
                Err(_) => Tensor::full(shape, f32::NAN, device),
            },
        };
        let value = Tensor::from_inner(value).require_grad();
        *self = Self::Arrived(value.clone());
        value
    }
}

#[cfg(test)]
mod tests {
    use burn::backend::Autodiff;
    use burn_flex::Flex;
    use emberlm_model::nn::LinearConfig;

    use super::*;
    use crate::peers::shards::Bucketing;
    use crate::peers::{OrderedPeers, Rank, Transport};

    type B = Autodiff<Flex>;

    /// Rank 0 of two. Its peer sends what it sends itself, each time that it may.
    struct Gate(Mutex<Receiver<Result<(), String>>>);

    impl Transport for Gate {
        fn rank(&self) -> Rank {
            Rank::new(0, 2).unwrap()
        }

        fn all_to_all(&self, _: &[f32], _: &mut [f32]) -> Result<(), String> {
            Err("not used".to_owned())
        }

        fn all_gather(&self, own: &[f32], received: &mut [f32]) -> Result<(), String> {
            self.0.lock().unwrap().recv().unwrap()?;
            received.copy_from_slice(own);
            Ok(())
        }

        fn all_gather_bytes(&self, own: &[u8]) -> Result<Vec<Vec<u8>>, String> {
            Ok(vec![own.to_vec(); 2])
        }
    }

    #[test]
    fn parameters_are_used_before_later_ones_arrive() {
        let device = Default::default();
        let linear = LinearConfig::new(4, 4).with_bias(true).init::<B>(&device);
        let parameters = [("weight", vec![4, 4]), ("bias", vec![4])];
        let parameters = parameters.map(|(path, shape)| (path.to_owned(), shape, true));
        let one_each = Bucketing {
            least: 1,
            imbalance: 2.0,
        };
        let shards = Shards::new(Rank::new(0, 2).unwrap(), one_each, parameters);
        assert_eq!(shards.buckets(), [1..2, 0..1]);
        let sevens = shards.parameters().iter().filter_map(|parameter| {
            let own = parameter.piece_of(0)?;
            let sevens = Tensor::<Flex, 1>::full([own.len()], 7.0, &device);
            Some(sevens.into_primitive().tensor())
        });
        let (own, shards) = (sevens.collect(), Arc::new(shards));
        let (permit, permits) = mpsc::channel();
        let peers = Arc::new(OrderedPeers::new(Gate(Mutex::new(permits))));
        let (gather, linear) =
            Gather::begin::<B, _>(peers, shards, vec![true; 2], own, linear, device);

        permit.send(Ok(())).unwrap();
        let weight = linear.weight.val();
        assert!(weight.is_require_grad());
        assert_eq!(weight.dims(), [4, 4]);
        let bias = linear.bias.as_ref().unwrap();
        assert!(!bias.is_initialized());
        // A clone has the same tensor, so gradients of one are those of the other.
        let grads = linear.clone().weight.val().sum().backward();
        assert!(weight.grad(&grads).is_some());

        permit.send(Err("the cable was cut".to_owned())).unwrap();
        assert!(bias.val().into_data().iter::<f32>().all(f32::is_nan));
        let error = gather.finish().unwrap_err().to_string();
        assert!(error.contains("the cable was cut"), "{error}");
    }
}
