//! Runs that end before their last step.

use std::sync::atomic::{AtomicUsize, Ordering};

use burn::tensor::Device;
use burn::tensor::ops::FloatTensor;

use emberlm_model::config::{AttentionKind, Window};

use super::*;
use crate::config::{MixedDataset, TrainConfig};
use crate::peers::{Divided, Peers, PeersError, Rank};

#[test]
fn a_diverging_run_ends_with_an_error() {
    let place = TestFolder::new(60);
    let mut config = place.config();
    config.train.steps = 60;
    config.train.log_interval = 50;
    config.train.checkpoints.interval = 4;
    config.train.skip.set_limit(2);
    let ended = |out: &str, read_policy| match run::<Flex>(&place, &config, out, read_policy) {
        Err(TrainError::Diverged {
            step,
            skipped,
            last,
            ..
        }) => {
            let last = last.map(|path| path.file_name().unwrap().to_owned());
            (step, skipped, last)
        }
        other => panic!("it did not diverge: {other:?}"),
    };
    let (every, due) = (
        ended("every", ReadPolicy::EveryStep),
        ended("due", ReadPolicy::WhenDue),
    );
    assert_eq!(every, due);
    assert_same(&place, "every", "due");
    let (step, skipped, last) = due;
    assert!(step % 4 > 0 && skipped == 2 && last.is_some(), "at {step}");
}

/// A single process that is interrupted during a certain step. Stopping from a thread with a timer would be
/// too late when other tests occupy the CPU, since all steps take less than a second.
struct StopAtStep {
    left: AtomicUsize,
    interrupter: Interrupter,
}

impl<B: Backend> Peers<B> for StopAtStep {
    fn rank(&self) -> Rank {
        Rank::SINGLE
    }

    fn sum_counts(&self, counts: &[u64]) -> Result<Vec<u64>, PeersError> {
        if self.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.interrupter.stop(None);
        }
        Ok(counts.to_vec())
    }

    fn gather_texts(&self, own: &str) -> Result<Vec<String>, PeersError> {
        Ok(vec![own.to_owned()])
    }

    fn gather_numbers(&self, own: &[f64]) -> Result<Vec<Vec<f64>>, PeersError> {
        Ok(vec![own.to_vec()])
    }

    fn gather_bytes(&self, own: &[u8]) -> Result<Vec<Vec<u8>>, PeersError> {
        Ok(vec![own.to_vec()])
    }

    fn reduce_scatter(
        &self,
        vectors: Vec<Divided<FloatTensor<B>>>,
    ) -> Result<Vec<FloatTensor<B>>, PeersError> {
        Peers::<B>::reduce_scatter(&SingleProcess, vectors)
    }

    fn all_gather(
        &self,
        vectors: Vec<Divided<Option<FloatTensor<B>>>>,
        device: &Device<B>,
    ) -> Result<Vec<FloatTensor<B>>, PeersError> {
        Peers::<B>::all_gather(&SingleProcess, vectors, device)
    }
}

#[test]
fn a_stopped_run_resumes_identically() {
    assert_resumes_identically(|_| {});
}

/// The run stops between two changes of the weights, which stages without weights do not end.
#[test]
fn a_stopped_run_whose_mix_changes_resumes_identically() {
    assert_resumes_identically(|config| {
        let settings = "[[stages]]\nstep = 0\nweights = [1, 0]\n\
            [[stages]]\nstep = 100\nweights = [0.3, 0.7]\naccumulation = 2\n\
            [[stages]]\nstep = 155\n";
        let staged: TrainConfig = toml::from_str(settings).unwrap();
        config.train.stages = staged.stages;
        config.train.loader_workers = 3;
        let dataset = std::mem::take(&mut config.data.dataset);
        config.data.mix = [2.0, 1.0]
            .map(|weight| MixedDataset {
                dataset: dataset.clone(),
                weight,
            })
            .into();
    });
}

/// The run stops within a stage, so it resumes before another one.
#[test]
fn a_stopped_run_with_stages_resumes_identically() {
    assert_resumes_identically(|config| {
        let settings = "[[stages]]\nstep = 0\naccumulation = 2\nseq_len = 4\nwindow = 3\n\
            [[stages]]\nstep = 147\naccumulation = 1\nseq_len = 8\n\
            [[stages]]\nstep = 155\naccumulation = 3\nwindow = 5\n\
            [parametrization]\nkind = \"complete_p\"\nbase_width = 8\nbase_layers = 2\n";
        let staged: TrainConfig = toml::from_str(settings).unwrap();
        config.train.stages = staged.stages;
        config.train.parametrization = staged.parametrization;
        config.model.attention = AttentionKind::windowed(Window::new(12));
    });
}

/// The run is stopped in the middle of an interval and then resumed to its end.
fn assert_resumes_identically(change: impl FnOnce(&mut RunConfig)) {
    let place = TestFolder::new(60);
    let mut config = place.config();
    change(&mut config);
    config.train.steps = 400;
    config.train.ema = 0.9;
    config.train.log_interval = 1000;
    config.train.evaluation.interval = 1000;
    run::<Flex>(&place, &config, "every", ReadPolicy::EveryStep).unwrap();
    let engine = EngineOptions {
        read_policy: ReadPolicy::WhenDue,
        loss_scale: None,
    };
    let interrupter = Interrupter::new();
    let peers = StopAtStep {
        left: AtomicUsize::new(150),
        interrupter: interrupter.clone(),
    };
    let stopped = train_with::<Autodiff<Flex>>(
        config.clone(),
        RunStart::New(place.path("due")),
        Some(with_nan_embedding(&place, &config).into()),
        options(interrupter),
        Default::default(),
        engine,
        Arc::new(peers),
    );
    let stopped = stopped.unwrap();
    let step = stopped.state.step;
    assert!(stopped.interrupted && step > 1 && step < 400, "{step}");
    resume::<Flex>(&place, &config, "due", engine);
    // The resumed run has one more checkpoint.
    fs::remove_dir_all(place.path(&format!("due/checkpoints/step-{step:08}"))).unwrap();
    assert_same(&place, "every", "due");
    assert!(skipped(&place, "due").len() > 20);
}
