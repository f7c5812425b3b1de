//! Two ranks with one micro-batch each must match one process with two micro-batches.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Condvar, Mutex};

use burn::tensor::ops::{FloatTensor, FloatTensorOps};

use super::*;
use crate::bench::random_batch;
use crate::engine::{StepBatches, StepEngine, StepOutcome, StepPosition};
use crate::loader::to_tensors;
use crate::optimizer::Optimizer;
use crate::peers::{Peers, PeersError, Rank};
use crate::training_model::{TokenBatch, TrainingModel};

type Training = Autodiff<Flex>;

/// Lets one rank compute at a time, as if each had its own process: the seed of the flex backend, which
/// dropout sets, and Burn's autodiff graphs are global to a process.
#[derive(Default)]
struct Turn {
    taken: Mutex<bool>,
    freed: Condvar,
}

impl Turn {
    fn take(&self) {
        let mut taken = self.taken.lock().unwrap();
        while *taken {
            taken = self.freed.wait(taken).unwrap();
        }
        *taken = true;
    }

    fn give(&self) {
        *self.taken.lock().unwrap() = false;
        self.freed.notify_one();
    }

    /// Computes while holding the turn, and releases it even on a panic.
    fn hold<R>(&self, compute: impl FnOnce() -> R) -> R {
        struct Held<'a>(&'a Turn);
        impl Drop for Held<'_> {
            fn drop(&mut self) {
                self.0.give();
            }
        }
        self.take();
        let _held = Held(self);
        compute()
    }
}

/// Both directions of one rank's channel to the other.
struct Exchange<T> {
    turn: Arc<Turn>,
    sender: Sender<T>,
    receiver: Mutex<Receiver<T>>,
}

impl<T> Exchange<T> {
    fn pair(turn: &Arc<Turn>) -> [Self; 2] {
        let ((to_first, at_first), (to_second, at_second)) = (channel(), channel());
        let new = |sender, receiver| Self {
            turn: Arc::clone(turn),
            sender,
            receiver: Mutex::new(receiver),
        };
        [new(to_second, at_first), new(to_first, at_second)]
    }

    /// Sends a value and returns the other rank's, which computes in the meantime.
    fn swap(&self, own: T) -> T {
        self.sender.send(own).unwrap();
        self.turn.give();
        let other = self.receiver.lock().unwrap().recv();
        self.turn.take();
        other.unwrap()
    }
}

/// One of two ranks, run as threads of one process.
struct OfTwo {
    rank: Rank,
    counts: Exchange<usize>,
    tensors: Exchange<Vec<FloatTensor<Flex>>>,
}

impl OfTwo {
    fn pair(turn: &Arc<Turn>) -> [Self; 2] {
        let [first, second] = Exchange::pair(turn);
        let [first_tensors, second_tensors] = Exchange::pair(turn);
        let new = |index, counts, tensors| Self {
            rank: Rank::new(index, 2).unwrap(),
            counts,
            tensors,
        };
        [new(0, first, first_tensors), new(1, second, second_tensors)]
    }
}

impl Peers<Flex> for OfTwo {
    fn rank(&self) -> Rank {
        self.rank
    }

    fn sum_count(&self, count: usize) -> Result<usize, PeersError> {
        Ok(count + self.counts.swap(count))
    }

    fn sum_tensors(
        &self,
        tensors: Vec<FloatTensor<Flex>>,
    ) -> Result<Vec<FloatTensor<Flex>>, PeersError> {
        let others = self.tensors.swap(tensors.clone());
        let sum = |(own, other)| match self.rank.is_zero() {
            true => <Flex as FloatTensorOps<Flex>>::float_add(own, other),
            false => <Flex as FloatTensorOps<Flex>>::float_add(other, own),
        };
        Ok(tensors.into_iter().zip(others).map(sum).collect())
    }
}

/// The losses of a few steps, and the weights after them. `own` picks a rank's micro-batches of each step's
/// two.
fn steps(
    place: &TestFolder,
    config: &RunConfig,
    peers: Arc<dyn Peers<Flex>>,
    own: impl Fn(usize) -> bool,
) -> (Vec<f64>, Vec<(String, Vec<f32>)>) {
    let device = Default::default();
    let model = resolve_model(&mut config.clone(), &place.dataset()).unwrap();
    let decoder = model.init::<Training>(1, &device);
    let optimizer = Optimizer::new(&config.train, decoder.parameters());
    let mut training = TrainingModel::Decoder(decoder);
    let mut engine = StepEngine::<Training>::new(
        config.train.clone(),
        ReadPolicy::EveryStep,
        peers,
        optimizer,
        None,
        StepPosition::default(),
    );
    let whole = to_tensors::<Training>(&random_batch(&model, &config.train, 16), &device);
    let mut losses = Vec::new();
    for _ in 0..4 {
        let micro = |number: usize| TokenBatch {
            tokens: emberlm_model::Tokens {
                ids: whole.tokens.ids.clone().narrow(0, number, 1),
                documents: None,
            },
            segments: None,
            padding: None,
            targets: whole.targets.clone().narrow(0, number, 1),
            learnt: 16,
            completions: None,
        };
        let batches = StepBatches::new((0..2).filter(|&n| own(n)).map(micro).collect());
        let report;
        (training, report) = engine.step(training, batches, true);
        match report.unwrap().outcome {
            StepOutcome::Updated(metrics) => losses.push(metrics.loss),
            other => panic!("{other:?}"),
        }
    }
    let named = emberlm_model::weights::named_tensors(&training);
    let weights = named
        .into_iter()
        .map(|(name, tensor)| (name, tensor.values));
    (losses, weights.collect())
}

#[test]
fn two_ranks_match_one_process() {
    let place = TestFolder::new(0);
    let mut config = place.config();
    config.model.decoder_mut().unwrap().dropout = 0.1;
    config.train.micro_batch = 2;
    let one = steps(&place, &config, Arc::new(SingleProcess), |_| true);
    let turn = Arc::new(Turn::default());
    let [first, second] = OfTwo::pair(&turn);
    let (place, config, turn) = (&place, &config, &*turn);
    let two = std::thread::scope(|scope| {
        let other =
            scope.spawn(move || turn.hold(|| steps(place, config, Arc::new(second), |n| n == 1)));
        let own = turn.hold(|| steps(place, config, Arc::new(first), |n| n == 0));
        assert_eq!(own, other.join().unwrap(), "ranks agree");
        own
    });
    assert_eq!(two, one);
}

#[test]
fn ranks_interleave_micro_batches() {
    let of = |index| Rank::new(index, 3).unwrap();
    let numbers: Vec<u64> = (0..2)
        .flat_map(|own| [0, 1, 2].map(|index| of(index).micro_batch(own)))
        .collect();
    assert_eq!(numbers, [0, 1, 2, 3, 4, 5]);
    assert_eq!(Rank::new(3, 3), None);
    assert_eq!(Rank::new(0, 0), None);
}
