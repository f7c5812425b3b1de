//! Ranks with one micro-batch each must match one process with as many micro-batches.

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use burn::module::AutodiffModule;
use emberlm_checkpoint::checkpoint::OPTIMIZER;
use emberlm_data::{Packing, Split};
use emberlm_model::ExpertLoad;
use emberlm_model::config::{ExpertScores, Experts};
use emberlm_model::weights::{HostTensor, named_tensors};

use super::threads::Threads;
use super::*;
use crate::bench::random_batch;
use crate::checkpoint::shards::ShardWriter;
use crate::checkpoint::{FOLDER, OptimizerState};
use crate::evaluate::{
    evaluate_among, evaluate_observed, evaluate_positions, evaluate_positions_among,
};
use crate::objective::loader::to_tensors;
use crate::objective::model::{TokenBatch, TrainingModel};
use crate::optimizer::Optimizer;
use crate::peers::shards::Bucketing;
use crate::peers::{DeviceMemoryPeers, OrderedPeers, Peers, Rank};
use crate::report::events::LayerNorms;
use crate::step::ema::Average;
use crate::step::engine::{StepBatches, StepEngine, StepOutcome, StepPosition};

type Training = Autodiff<Flex>;

/// Small buckets, which cut through tensors.
const BUCKET: usize = 1000;

/// Numbers of tokens per micro-batch, and micro-batches of a step.
const TOKENS: usize = 16;
const MICRO_BATCHES: usize = 4;
const STEPS: usize = 4;

/// Buckets that are exchanged during the backward pass of a small model.
const BUCKETS: Bucketing = Bucketing {
    least: 10_000,
    imbalance: 1.5,
};

/// The result of a few steps.
#[derive(Clone, Debug, PartialEq)]
struct Trained {
    losses: Vec<f64>,
    norms: Vec<f64>,
    weights: Vec<(String, HostTensor)>,
    average: Vec<(String, HostTensor)>,
    /// Of the last step.
    expert_load: ExpertLoad,
    /// The norms by layer of the last step, on rank 0.
    layers: Option<Vec<LayerNorms>>,
}

/// The file of the optimizer's state of all ranks.
type StateFile = Vec<u8>;

/// The folders of the ranks.
#[derive(Clone, Copy, Debug)]
enum Folders {
    /// All ranks see the same one.
    Shared,
    /// Each has another one, as without a shared file system.
    Separate,
}

impl Folders {
    /// The run's directory as a rank sees it.
    fn of(self, place: &TestFolder, rank: Rank) -> PathBuf {
        let run = place.path(&match self {
            Self::Shared => "ranks".to_owned(),
            Self::Separate => format!("ranks-{}", rank.index()),
        });
        fs::create_dir_all(run.join(FOLDER)).unwrap();
        run
    }
}

/// A few steps as one of the ranks. Also returns the file of the optimizer's state, which rank 0 has, and the bytes of the
/// state that this rank holds.
fn steps(
    place: &TestFolder,
    config: &RunConfig,
    read_policy: ReadPolicy,
    peers: Arc<dyn Peers<Flex>>,
    folders: Folders,
) -> (Trained, Option<StateFile>, usize) {
    let device = Default::default();
    let model = resolve_model(&mut config.clone(), &place.dataset()).unwrap();
    let decoder = model.init::<Training>(1, &device);
    let rank = peers.rank();
    let optimizer = Optimizer::new(&config.train, decoder.parameters());
    let optimizer = optimizer.sharded_in_buckets(rank, BUCKETS);
    let mut training = TrainingModel::from(decoder);
    let decay = config.train.ema;
    let average = (decay > 0.0).then(|| Average::new(training.valid(), decay));
    let run = folders.of(place, rank);
    let writer = ShardWriter::of_ranks(&run, &*peers).unwrap();
    let mut engine = StepEngine::<Training>::new(
        config.train.clone(),
        read_policy,
        peers,
        optimizer,
        average,
        StepPosition::default(),
    )
    .with_shard_writer(writer);
    let whole = to_tensors::<Training>(&random_batch(&model, &config.train, TOKENS), &device);
    let (mut losses, mut norms) = (Vec::new(), Vec::new());
    for step in 1..=STEPS {
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
        // The outcome of other steps is known as well if each is judged, while their parameters are gathered.
        let due = step == STEPS || read_policy == ReadPolicy::WhenDue;
        let report;
        (training, report) = engine.step(training, batches, due);
        match report.unwrap().outcome {
            StepOutcome::Updated(metrics) => {
                losses.push(metrics.loss);
                norms.push(metrics.gradient_norm);
            }
            other => panic!("{other:?}"),
        }
    }
    let state = engine.optimizer_state().unwrap();
    let state = state.map(|state| match state.unwrap() {
        OptimizerState::Held(snapshot) => {
            let file = run.join("state");
            snapshot.save(&file).unwrap();
            fs::read(file).unwrap()
        }
        OptimizerState::Written(partial) => fs::read(partial.path().join(OPTIMIZER)).unwrap(),
    });
    let names = fs::read_dir(run.join(FOLDER)).unwrap().count();
    assert!(names == 0 || !rank.is_zero(), "nothing is left");
    let trained = Trained {
        losses,
        norms,
        weights: named_tensors(&training),
        average: named_tensors(&engine.evaluated(&training)),
        expert_load: engine.expert_load().clone(),
        layers: engine.norms().map(<[_]>::to_vec),
    };
    (trained, state, engine.held_state_bytes())
}

/// [`steps`] of several ranks, which must have the same result, the bytes that each sent to others, and those of the state
/// that each holds.
fn measured_steps_of_ranks(
    place: &TestFolder,
    config: &RunConfig,
    read_policy: ReadPolicy,
    world_size: usize,
    folders: Folders,
) -> (Trained, StateFile, Vec<usize>, Vec<usize>) {
    let over = |rank| Arc::new(OrderedPeers::new(rank).with_bucket(BUCKET)) as _;
    steps_of_ranks_over(place, config, read_policy, world_size, folders, over)
}

/// [`measured_steps_of_ranks`] with other peers.
fn steps_of_ranks_over(
    place: &TestFolder,
    config: &RunConfig,
    read_policy: ReadPolicy,
    world_size: usize,
    folders: Folders,
    over: impl Fn(Threads) -> Arc<dyn Peers<Flex>>,
) -> (Trained, StateFile, Vec<usize>, Vec<usize>) {
    let ranks = Threads::all(world_size);
    std::thread::scope(|scope| {
        let threads: Vec<_> = ranks
            .into_iter()
            .map(|rank| {
                let sent = Arc::clone(&rank.sent);
                let peers = over(rank);
                let thread = scope.spawn(move || steps(place, config, read_policy, peers, folders));
                (thread, sent)
            })
            .collect();
        let results = threads.into_iter().map(|(thread, sent)| {
            let (trained, state, held) = thread.join().unwrap();
            (trained, state, (sent.load(Ordering::Relaxed), held))
        });
        let (trained, states, bytes): (Vec<_>, Vec<_>, Vec<_>) = results.collect();
        let (sent, held) = bytes.into_iter().unzip();
        let mut states = states.into_iter();
        let state = states.next().flatten().expect("rank 0 has the state");
        assert!(states.all(|other| other.is_none()), "only rank 0 has it");
        let of_others = Trained {
            layers: None,
            ..trained[0].clone()
        };
        for other in &trained[1..] {
            assert_eq!(other, &of_others, "ranks agree");
        }
        (trained[0].clone(), state, sent, held)
    })
}

fn steps_of_ranks(
    place: &TestFolder,
    config: &RunConfig,
    read_policy: ReadPolicy,
    world_size: usize,
    folders: Folders,
) -> (Trained, Option<StateFile>) {
    let (trained, state, ..) =
        measured_steps_of_ranks(place, config, read_policy, world_size, folders);
    (trained, Some(state))
}

fn steps_of_one(place: &TestFolder, config: &RunConfig) -> (Trained, Option<StateFile>) {
    let (trained, state, _) = steps(
        place,
        config,
        ReadPolicy::EveryStep,
        Arc::new(SingleProcess),
        Folders::Shared,
    );
    (trained, state)
}

fn dropout_config(place: &TestFolder) -> RunConfig {
    let mut config = place.config();
    config.model.dropout = 0.1;
    config.train.micro_batch = MICRO_BATCHES;
    config.train.norms_interval = STEPS;
    config
}

/// A model whose matrices are large enough to be divided, a loss scale, clipped gradients, and an average.
fn large_config(place: &TestFolder, optimizer: OptimizerKind) -> RunConfig {
    let mut config = dropout_config(place);
    let model = &mut config.model;
    (model.d_model, model.head_dim) = (96, Some(48));
    model.feed_forward.width = Some(200);
    config.train.optimizer = optimizer.into();
    config.train.decay_schedule = DecayScheduleKind::LearningRate.into();
    config.train.parametrization = ParametrizationKind::CompleteP.into();
    config.train.clip_norm = 0.05;
    config.train.precision.loss_scale = 1024.0;
    config.train.ema = 0.9;
    config
}

#[test]
fn ranks_with_one_micro_batch_match_one_process_to_the_bit() {
    let place = TestFolder::new(0);
    let config = dropout_config(&place);
    let one = steps_of_one(&place, &config);
    assert_eq!(
        steps_of_ranks(
            &place,
            &config,
            ReadPolicy::EveryStep,
            MICRO_BATCHES,
            Folders::Shared
        ),
        one
    );
}

/// Also the logged shares of the experts are those of all ranks.
#[test]
fn ranks_with_experts_match_one_process_to_the_bit() {
    let place = TestFolder::new(0);
    let mut config = dropout_config(&place);
    let model = &mut config.model;
    model.experts = Some(Experts {
        count: 4,
        width: Some(32),
        normalize: true,
        scores: ExpertScores::Sigmoid,
        choice_bias: true,
        shared_width: Some(16),
        balance_loss: 0.2,
        ..Experts::default()
    });
    let one = steps_of_one(&place, &config);
    let tokens = &one.0.expert_load.layers[0];
    assert_eq!(tokens.iter().sum::<usize>(), 2 * MICRO_BATCHES * TOKENS);
    let policy = ReadPolicy::EveryStep;
    let ranks = steps_of_ranks(&place, &config, policy, MICRO_BATCHES, Folders::Shared);
    assert_eq!(ranks, one);
}

#[test]
fn sharded_optimizers_match_one_process_to_the_bit() {
    let place = TestFolder::new(0);
    for kind in OptimizerKind::ALL {
        let config = large_config(&place, kind);
        let one = steps_of_one(&place, &config);
        assert!(one.0.norms.iter().all(|&norm| norm > 0.05), "clipped");
        for (read_policy, folders) in [
            (ReadPolicy::EveryStep, Folders::Shared),
            (ReadPolicy::WhenDue, Folders::Separate),
        ] {
            let ranks = steps_of_ranks(&place, &config, read_policy, MICRO_BATCHES, folders);
            assert!(ranks == one, "{kind:?}, {read_policy:?}, {folders:?}");
        }
    }
}

#[test]
fn exchanges_of_device_memory_match_those_of_host_memory_to_the_bit() {
    let place = TestFolder::new(0);
    for (kind, ranks) in [
        (OptimizerKind::AdamW, 4),
        (OptimizerKind::Muon, 2),
        (OptimizerKind::Lion, 4),
    ] {
        let config = large_config(&place, kind);
        let policy = ReadPolicy::EveryStep;
        let host = measured_steps_of_ranks(&place, &config, policy, ranks, Folders::Shared);
        for bucket in [BUCKET, 1 << 22] {
            let over = |rank| Arc::new(DeviceMemoryPeers::new(rank).with_bucket(bucket)) as _;
            let device = steps_of_ranks_over(&place, &config, policy, ranks, Folders::Shared, over);
            assert!((&device.0, &device.1) == (&host.0, &host.1), "{kind:?}");
            // Also the same bytes.
            assert_eq!((device.2, device.3), (host.2.clone(), host.3.clone()));
        }
    }
}

/// A run prints a rank's memory and exchanges by [`Optimizer::rank_cost`]. Both are within 5 % of the real ones.
#[test]
fn memory_and_exchanges_of_a_rank_match_the_formula() {
    let place = TestFolder::new(0);
    for kind in OptimizerKind::ALL {
        let config = large_config(&place, kind);
        let model = resolve_model(&mut config.clone(), &place.dataset()).unwrap();
        let decoder = model.init::<Training>(1, &Default::default());
        let whole: usize = named_tensors(&decoder)
            .iter()
            .map(|(_, it)| 4 * it.values.len())
            .sum();
        let optimizer = Optimizer::<Flex>::new(&config.train, decoder.parameters());
        assert_eq!(optimizer.rank_cost(), None);
        for (ranks, folders) in [(2, Folders::Separate), (4, Folders::Shared)] {
            let rank = Rank::new(0, ranks).unwrap();
            let sharded = optimizer.clone().sharded_in_buckets(rank, BUCKETS);
            let buckets = sharded.shards().unwrap().buckets().len();
            // Four ranks cannot share the matrices of a block.
            let cuts = matches!(kind, OptimizerKind::AdamW | OptimizerKind::Lion);
            assert!(buckets > 2 || !cuts, "{kind:?}");
            let cost = sharded.rank_cost().unwrap();
            assert_eq!(cost.weights as usize, whole);
            let (_, state, sent, held) =
                measured_steps_of_ranks(&place, &config, ReadPolicy::EveryStep, ranks, folders);
            let (header, _) = state.split_first_chunk().unwrap();
            let bytes = state.len() - 8 - u64::from_le_bytes(*header) as usize;
            assert_eq!(cost.all_state as usize, bytes);
            assert_eq!(held.iter().sum::<usize>(), bytes, "each is held once");
            assert_eq!(held.iter().max(), Some(&(cost.state as usize)));
            for (sent, held) in sent.iter().zip(&held) {
                // The state is sent once, unless each rank writes its own.
                let for_checkpoint = match folders {
                    Folders::Shared => 0,
                    Folders::Separate => held * (ranks - 1),
                };
                let per_step = (sent - for_checkpoint) as f64 / STEPS as f64;
                let ratio = per_step / cost.exchanged as f64;
                assert!((0.95..1.05).contains(&ratio), "{kind:?}: {ratio}");
            }
            if kind == OptimizerKind::AdamW {
                let cost = optimizer.clone().sharded(rank).rank_cost().unwrap();
                // Of equal shards, 2 (N - 1) / N of the parameters are sent, and 2 / N are held as state. Boundaries are
                // multiples of 4096 elements.
                let rounding = 2 * 4 * 4096;
                let ideal = 2 * whole * (ranks - 1) / ranks;
                assert!((cost.exchanged as usize).abs_diff(ideal) < rounding * (ranks - 1));
                let ideal = 2 * whole / ranks;
                assert!((cost.state as usize).abs_diff(ideal) < rounding);
            }
        }
    }
}

#[test]
fn ranks_with_several_micro_batches_match_one_process_within_rounding() {
    let place = TestFolder::new(0);
    let config = dropout_config(&place);
    let (one, _) = steps_of_one(&place, &config);
    let two_ranks = || steps_of_ranks(&place, &config, ReadPolicy::EveryStep, 2, Folders::Shared);
    let two = two_ranks();
    for (one, two) in one.losses.iter().zip(&two.0.losses) {
        assert!((one - two).abs() < 1e-4, "{one} {two}");
    }
    assert_eq!(two_ranks(), two, "each time the same");
}

#[test]
fn ranks_interleave_micro_batches() {
    let of = |index| Rank::new(index, 3).unwrap();
    let numbers: Vec<u64> = (0..2)
        .flat_map(|own| [0, 1, 2].map(|index| of(index).micro_batch(own)))
        .collect();
    assert_eq!(numbers, [0, 1, 2, 3, 4, 5]);
    assert_eq!([Rank::new(3, 3), Rank::new(0, 0)], [None; 2]);
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
        let evaluated = |rank: Threads| {
            let peers = OrderedPeers::new(rank);
            let mut batches = 0;
            let found = evaluate_among(&peers, &decoder, &windows, 2, None, |_| batches += 1);
            let by_position = evaluate_positions_among(&peers, &decoder, &windows, 2, |_| ());
            (found.unwrap(), by_position.unwrap(), batches)
        };
        let results: Vec<_> = std::thread::scope(|scope| {
            let evaluated = &evaluated;
            let threads = Threads::all(world_size).into_iter();
            let threads = threads.map(|rank| scope.spawn(move || evaluated(rank)));
            let threads: Vec<_> = threads.collect();
            threads.into_iter().map(|it| it.join().unwrap()).collect()
        });
        for (found, by_position, batches) in results {
            assert_eq!(found.loss.to_bits(), one.loss.to_bits());
            assert_eq!((found.tokens, batches), (one.tokens, seen));
            assert_eq!(by_position, positions);
        }
    }
}
