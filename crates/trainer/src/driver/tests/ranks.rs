//! Ranks with one micro-batch each must match one process with as many micro-batches.

use std::sync::{Barrier, Condvar, Mutex};

use emberlm_data::{Packing, Split};

use super::*;
use crate::bench::random_batch;
use crate::engine::{StepBatches, StepEngine, StepOutcome, StepPosition};
use crate::evaluate::{
    evaluate_among, evaluate_observed, evaluate_positions, evaluate_positions_among,
};
use crate::loader::to_tensors;
use crate::optimizer::Optimizer;
use crate::peers::{OrderedPeers, Peers, Rank, Transport};
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

/// The meeting point of ranks that run as threads of one process.
struct Hub {
    turn: Arc<Turn>,
    barrier: Barrier,
    slots: Mutex<Vec<Vec<u8>>>,
}

/// One of the ranks.
struct Threads {
    rank: Rank,
    hub: Arc<Hub>,
}

impl Threads {
    /// All ranks of a world.
    fn all(turn: &Arc<Turn>, world_size: usize) -> Vec<Self> {
        let hub = Arc::new(Hub {
            turn: Arc::clone(turn),
            barrier: Barrier::new(world_size),
            slots: Mutex::new(vec![Vec::new(); world_size]),
        });
        let ranks = (0..world_size).map(|index| Self {
            rank: Rank::new(index, world_size).unwrap(),
            hub: Arc::clone(&hub),
        });
        ranks.collect()
    }

    /// Hands over this rank's bytes and returns those of all ranks, which compute in the meantime.
    fn exchange(&self, own: Vec<u8>) -> Vec<Vec<u8>> {
        let hub = &self.hub;
        hub.slots.lock().unwrap()[self.rank.index()] = own;
        hub.turn.give();
        hub.barrier.wait();
        let all = hub.slots.lock().unwrap().clone();
        hub.barrier.wait();
        hub.turn.take();
        all
    }

    fn exchange_numbers(&self, own: &[f32]) -> Vec<Vec<f32>> {
        let own = own.iter().flat_map(|x| x.to_le_bytes()).collect();
        let numbers = |bytes: Vec<u8>| {
            let (numbers, _) = bytes.as_chunks::<4>();
            numbers.iter().map(|&x| f32::from_le_bytes(x)).collect()
        };
        self.exchange(own).into_iter().map(numbers).collect()
    }
}

impl Transport for Threads {
    fn rank(&self) -> Rank {
        self.rank
    }

    fn all_to_all(&self, sent: &[f32], received: &mut [f32]) -> Result<(), String> {
        let slice = sent.len() / self.rank.world_size();
        let own = self.rank.index() * slice..(self.rank.index() + 1) * slice;
        let all = self.exchange_numbers(sent);
        for (received, of_rank) in received.chunks_mut(slice).zip(all) {
            received.copy_from_slice(&of_rank[own.clone()]);
        }
        Ok(())
    }

    fn all_gather(&self, own: &[f32], received: &mut [f32]) -> Result<(), String> {
        received.copy_from_slice(&self.exchange_numbers(own).concat());
        Ok(())
    }

    fn all_gather_bytes(&self, own: &[u8]) -> Result<Vec<Vec<u8>>, String> {
        Ok(self.exchange(own.to_vec()))
    }
}

/// Numbers of tokens per micro-batch, and micro-batches of a step.
const TOKENS: usize = 16;
const MICRO_BATCHES: usize = 4;

/// The losses of a few steps, and the weights after them.
fn steps(
    place: &TestFolder,
    config: &RunConfig,
    peers: Arc<dyn Peers<Flex>>,
) -> (Vec<f64>, Vec<(String, Vec<f32>)>) {
    let device = Default::default();
    let model = resolve_model(&mut config.clone(), &place.dataset()).unwrap();
    let decoder = model.init::<Training>(1, &device);
    let optimizer = Optimizer::new(&config.train, decoder.parameters());
    let mut training = TrainingModel::Decoder(decoder);
    let rank = peers.rank();
    let mut engine = StepEngine::<Training>::new(
        config.train.clone(),
        ReadPolicy::EveryStep,
        peers,
        optimizer,
        None,
        StepPosition::default(),
    );
    let whole = to_tensors::<Training>(&random_batch(&model, &config.train, TOKENS), &device);
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
            learnt: TOKENS,
            completions: None,
        };
        let own = (0..MICRO_BATCHES).filter(|n| n % rank.world_size() == rank.index());
        let batches = StepBatches::new(own.map(micro).collect());
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

/// [`steps`] of several ranks, which must have the same result.
fn steps_of_ranks(
    place: &TestFolder,
    config: &RunConfig,
    world_size: usize,
) -> (Vec<f64>, Vec<(String, Vec<f32>)>) {
    let turn = Arc::new(Turn::default());
    let ranks = Threads::all(&turn, world_size);
    let turn = &*turn;
    std::thread::scope(|scope| {
        let threads: Vec<_> = ranks
            .into_iter()
            .map(|rank| {
                // Small buckets cut through tensors.
                let peers = Arc::new(OrderedPeers::new(rank).with_bucket(1000));
                scope.spawn(move || turn.hold(|| steps(place, config, peers)))
            })
            .collect();
        let mut results = threads.into_iter().map(|thread| thread.join().unwrap());
        let first = results.next().unwrap();
        results.for_each(|other| assert_eq!(other, first, "ranks agree"));
        first
    })
}

fn dropout_config(place: &TestFolder) -> RunConfig {
    let mut config = place.config();
    config.model.decoder_mut().unwrap().dropout = 0.1;
    config.train.micro_batch = MICRO_BATCHES;
    config
}

#[test]
fn ranks_with_one_micro_batch_match_one_process_to_the_bit() {
    let place = TestFolder::new(0);
    let config = dropout_config(&place);
    let one = steps(&place, &config, Arc::new(SingleProcess));
    assert_eq!(steps_of_ranks(&place, &config, MICRO_BATCHES), one);
}

#[test]
fn ranks_with_several_micro_batches_match_one_process_within_rounding() {
    let place = TestFolder::new(0);
    let config = dropout_config(&place);
    let (one, _) = steps(&place, &config, Arc::new(SingleProcess));
    let (two, weights) = steps_of_ranks(&place, &config, 2);
    for (one, two) in one.iter().zip(&two) {
        assert!((one - two).abs() < 1e-4, "{one} {two}");
    }
    let again = steps_of_ranks(&place, &config, 2);
    assert_eq!(again, (two, weights), "each time the same");
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

#[test]
fn evaluations_do_not_depend_on_the_number_of_ranks() {
    let place = TestFolder::new(0);
    let dataset = place.dataset();
    let model = resolve_model(&mut place.config(), &dataset).unwrap();
    let decoder = model.init::<Flex>(1, &Default::default());
    let windows = dataset.windows(Split::Val, 16, Packing::Stream).unwrap();
    let mut seen = 0;
    let one = evaluate_observed(&decoder, &windows, 2, None, |_| seen += 1).unwrap();
    let positions = evaluate_positions(&decoder, &windows, 2, |_| ()).unwrap();
    // Some ranks have a batch more than others, and several exchanges are needed.
    assert!(seen % 5 > 0 && seen > 3 * 8, "{seen} batches");
    for world_size in [2, 3, 5] {
        let turn = Arc::new(Turn::default());
        let ranks = Threads::all(&turn, world_size);
        let evaluated = |rank: Threads| {
            turn.hold(|| {
                let peers = OrderedPeers::new(rank);
                let mut batches = 0;
                let found = evaluate_among(&peers, &decoder, &windows, 2, None, |_| batches += 1);
                let by_position =
                    evaluate_positions_among(&peers, &decoder, &windows, 2, |_| ()).unwrap();
                (found.unwrap(), by_position, batches)
            })
        };
        let results: Vec<_> = std::thread::scope(|scope| {
            let evaluated = &evaluated;
            let threads = ranks.into_iter();
            let threads: Vec<_> = threads
                .map(|rank| scope.spawn(move || evaluated(rank)))
                .collect();
            threads.into_iter().map(|it| it.join().unwrap()).collect()
        });
        for (found, by_position, batches) in results {
            assert_eq!(found.loss.to_bits(), one.loss.to_bits());
            assert_eq!((found.tokens, batches), (one.tokens, seen));
            assert_eq!(by_position, positions);
        }
    }
}
