//! Ranks with unlike devices take the same decisions.

use super::threads::Threads;
use super::*;
use crate::peers::OrderedPeers;

/// Trains as one of two ranks, on the backend of this rank.
fn train_as<I: Backend>(
    place: &TestFolder,
    config: &RunConfig,
    peers: OrderedPeers<Threads>,
    engine: EngineOptions,
) where
    Autodiff<I>: TrainingBackend<InnerBackend = I>,
{
    let weights = with_nan_embedding::<Autodiff<I>>(place, config);
    let trained = train_with::<Autodiff<I>>(
        config.clone(),
        RunStart::New(place.path("ranks")),
        Some(weights.into()),
        options(Interrupter::new()),
        Default::default(),
        engine,
        Arc::new(peers),
    );
    trained.unwrap();
}

/// Trains on two ranks, which have these options, in the directory `ranks`. The second has the backend `I`.
fn train_on_two<I: Backend>(place: &TestFolder, config: &RunConfig, options: [EngineOptions; 2])
where
    Autodiff<I>: TrainingBackend<InnerBackend = I>,
{
    let mut peers = Threads::all(2).into_iter().map(OrderedPeers::new);
    let [first, second] = [(); 2].map(|()| peers.next().unwrap());
    std::thread::scope(|scope| {
        scope.spawn(move || train_as::<Flex>(place, config, first, options[0]));
        scope.spawn(move || train_as::<I>(place, config, second, options[1]));
    });
}

/// Two micro-batches per step, an average, dropout, and actions that are due at different steps.
fn config(place: &TestFolder) -> RunConfig {
    let mut config = place.config();
    config.model.dropout = 0.1;
    let train = &mut config.train;
    train.accumulation = 2;
    train.micro_batch = 1;
    train.ema = 0.9;
    train.log_interval = 7;
    train.checkpoints.interval = 11;
    config
}

const EVERY: EngineOptions = EngineOptions {
    read_policy: ReadPolicy::EveryStep,
    loss_scale: None,
};
const DUE: EngineOptions = EngineOptions {
    read_policy: ReadPolicy::WhenDue,
    ..EVERY
};

#[test]
fn ranks_that_judge_steps_differently_skip_the_same_steps() {
    let place = TestFolder::new(60);
    let config = config(&place);
    run::<Flex>(&place, &config, "one", ReadPolicy::EveryStep).unwrap();
    assert!(!skipped(&place, "one").is_empty());
    for options in [[EVERY, DUE], [DUE, EVERY]] {
        train_on_two::<Flex>(&place, &config, options);
        assert_same(&place, "one", "ranks");
        fs::remove_dir_all(place.path("ranks")).unwrap();
    }
}

/// As on a CPU without f16 products and a GPU that has them: the gradients are summed, so both scale their loss.
#[test]
fn ranks_of_which_one_scales_its_loss_have_the_same_scale() {
    let place = TestFolder::new(1);
    let mut config = config(&place);
    config.train.seed = 3;
    // The sum of squares overflows until the scale has been halved a few times.
    let scaled = EngineOptions {
        loss_scale: Some(LossScale::at(70f64.exp2())),
        ..DUE
    };
    scaled_run::<Flex>(&place, &config, "one", scaled).unwrap();
    assert!(skipped(&place, "one").len() > 2);
    for options in [[EVERY, scaled], [scaled, EVERY]] {
        train_on_two::<Flex>(&place, &config, options);
        assert_same(&place, "one", "ranks");
        fs::remove_dir_all(place.path("ranks")).unwrap();
    }
}

#[test]
fn ranks_on_different_backends_match_one_process_within_rounding() {
    let place = TestFolder::new(60);
    let mut config = config(&place);
    // Backends draw different dropout masks.
    config.model.dropout = 0.0;
    config.train.log_interval = 1;
    run::<Flex>(&place, &config, "one", ReadPolicy::EveryStep).unwrap();
    train_on_two::<NdArray>(&place, &config, [EVERY, DUE]);
    let [one, ranks] = ["one", "ranks"].map(|run| {
        let events = events::read(&place.path(run)).unwrap().events;
        let losses = events.into_iter().filter_map(|event| match event {
            Event::Step { loss, .. } => Some(loss),
            _ => None,
        });
        losses.collect::<Vec<f64>>()
    });
    assert_eq!(one.len(), ranks.len());
    assert!(one.len() > 10);
    for (one, ranks) in one.iter().zip(&ranks) {
        assert!((one - ranks).abs() < 1e-4, "{one} {ranks}");
    }
    assert_eq!(skipped(&place, "one"), skipped(&place, "ranks"));
    let checkpoint = Checkpoint::newest_to_resume(&place.path("ranks"), |_| {}).unwrap();
    let state = checkpoint.and_then(|checkpoint| checkpoint.state).unwrap();
    assert_eq!(state.backend, "flex + ndarray");
}
