//! Complete runs of a tiny model on a generated dataset.

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use emberlm_checkpoint::SourceFiles;
use emberlm_data::{Dataset, PrepareOptions, prepare};
use emberlm_kernels::TrainingBackend;
use emberlm_model::families;
use emberlm_trainer::config::{
    DecayConfig, EvaluationConfig, NonFiniteConfig, ScheduleConfig, SkipConfig,
};
use emberlm_trainer::{
    DataConfig, Interrupter, Renderer, RunConfig, RunOptions, RunResult, RunStart, TrainConfig,
    TrainError, Training,
};

/// A directory with a character-level dataset `data` of learnable text.
pub struct TestFolder {
    folder: tempfile::TempDir,
    _alone: MutexGuard<'static, ()>,
}

/// Serializes tests in a process. A thread that waits within a step may execute another run's step, which
/// would wait for a lock of Burn that the first one holds. Counters are also global to the process.
static ALONE: Mutex<()> = Mutex::new(());

/// Waits until no other test of the process trains.
#[allow(dead_code)] // Not every test has need of it.
pub fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl TestFolder {
    /// Creates the dataset with `rare` occurrences of `Z`, spread over the training split.
    pub fn new(rare: usize) -> Self {
        let alone = alone();
        let folder = tempfile::tempdir().unwrap();
        let lines = (0..400).map(|i| format!("{i} and {} make {}\n", i + 1, 2 * i + 1));
        let mut text = lines.collect::<String>().into_bytes();
        for i in 0..rare {
            let at = i * (text.len() * 8 / 10) / rare + i % 7;
            text[at] = b'Z';
        }
        let input = folder.path().join("text.txt");
        fs::write(&input, &text).unwrap();
        let options = PrepareOptions {
            tokenizer: "char".parse().unwrap(),
            ..PrepareOptions::default()
        };
        let out = folder.path().join("data");
        prepare(&[input], &out, &options, &|_| {}).unwrap();
        Self {
            folder,
            _alone: alone,
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    #[allow(dead_code)] // Not every test has need of it.
    pub fn dataset(&self) -> Dataset {
        Dataset::open(self.path("data")).unwrap()
    }

    /// A run's configuration: 24 steps of a model with one layer and an untied head.
    pub fn config(&self) -> RunConfig {
        let mut model = families::preset("llama").unwrap().config;
        model.vocab_size = None;
        model.seq_len = 16;
        model.d_model = 16;
        model.n_layers = 1;
        model.heads = 2;
        model.kv_heads = None;
        model.head_dim = Some(8);
        model.head.tied = false;
        model.feed_forward.width = Some(24);
        RunConfig {
            model,
            data: DataConfig::of(self.path("data")),
            train: TrainConfig {
                steps: 24,
                micro_batch: 2,
                schedule: ScheduleConfig::Cosine(DecayConfig {
                    learning_rate: 1e-2,
                    warmup_steps: 4,
                    ..DecayConfig::default()
                }),
                evaluation: EvaluationConfig {
                    tokens: 200,
                    sample_tokens: 0,
                    ..EvaluationConfig::default()
                },
                skip: SkipConfig::NonFinite(NonFiniteConfig { limit: 100 }),
                ..TrainConfig::default()
            },
        }
    }
}

pub fn options(interrupter: Interrupter) -> RunOptions {
    RunOptions {
        base: None,
        renderer: Renderer::Plain,
        tensorboard: false,
        source: SourceFiles::default(),
        tokenizer: None,
        chat_template: None,
        say: Arc::new(|_| {}),
        interrupter,
        hooks: Vec::new(),
    }
}

/// Runs training as the command line does.
#[allow(dead_code)] // Not every test has need of it.
pub fn train<B: TrainingBackend>(
    place: &TestFolder,
    config: RunConfig,
    out: &str,
) -> Result<RunResult, TrainError> {
    let start = RunStart::New(place.path(out));
    let options = options(Interrupter::new());
    Training::<B>::new(config, start).options(options).run()
}
