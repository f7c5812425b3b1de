//! Small models with initial weights in the trainer's checkpoint format.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use emberlm_checkpoint::SourceFiles;
use emberlm_data::{Manifest, Packing};
use emberlm_model::{ModelConfig, Parameters, TransformerConfig, families};
use emberlm_tokenizer::TokenizerSpec;
use emberlm_trainer::TrainConfig;
use emberlm_trainer::checkpoint::{self, About, Contents, Description, OptimizerState, State};
use emberlm_trainer::optimizer::Optimizer;

use serde_json::{Map, Value, json};

use super::{Sandbox, fixtures};

#[cfg(feature = "flex")]
pub type Cpu = burn::backend::Flex;
#[cfg(all(feature = "ndarray", not(feature = "flex")))]
pub type Cpu = burn::backend::NdArray;

/// Two layers of width 16 with a context of 8 tokens.
pub fn tiny(vocab_size: usize) -> ModelConfig {
    ModelConfig {
        vocab_size: Some(vocab_size),
        seq_len: 8,
        d_model: 16,
        n_layers: 2,
        heads: 2,
        ..families::preset("char-nano").unwrap().config
    }
}

/// Writes `run` with a checkpoint of `model` at each of `steps`. The step is the seed of the weights.
pub fn write_run(
    run: &Path,
    model: &ModelConfig,
    tokenizer: Option<&TokenizerSpec>,
    steps: &[usize],
) {
    let description = Description {
        model: model.clone(),
        tokenizer: tokenizer.cloned(),
        chat_template: None,
        documents: Packing::Stream,
        seq_len: None,
        adapter: None,
    };
    let config = TransformerConfig::try_from(model.clone()).unwrap();
    // Only the specification, since none of these tokenizers has a file.
    let about = Arc::new(About {
        description,
        tokenizer: None,
        source: SourceFiles::default(),
    });
    for &step in steps {
        let contents = Contents {
            model: config.init::<Cpu>(step as u64, &Default::default()).into(),
            training: None,
            about: Arc::clone(&about),
            state: State {
                step,
                ..State::default()
            },
        };
        let optimizer = Optimizer::new(&TrainConfig::default(), Parameters::default());
        let state = OptimizerState::Held(optimizer.snapshot());
        checkpoint::write(run, state, &contents).unwrap();
    }
}

impl Sandbox {
    /// The tokenizer of a dataset.
    pub fn spec(&self, dataset: &str) -> TokenizerSpec {
        Manifest::read(&self.path(dataset)).unwrap().tokenizer
    }

    /// A char dataset `data` of a short text, and a run `run` with a model of its vocabulary.
    pub fn with_char_model() -> Self {
        Self::with_char_model_of("hello small world\n".repeat(20))
    }

    /// Like [`Self::with_char_model`], with another text.
    pub fn with_char_model_of(text: String) -> Self {
        let sandbox = Self::with_text(text, "char");
        let spec = sandbox.spec("data");
        write_run(
            &sandbox.path("run"),
            &tiny(spec.vocab_size),
            Some(&spec),
            &[1],
        );
        sandbox
    }
}

/// A DistilBERT of `transformers` with a classifier of texts, its inputs and their expected results.
pub fn encoder_fixture() -> PathBuf {
    fixtures().join("encoders/distilbert-sequence")
}

/// Writes the model of [`encoder_fixture`] with a tokenizer whose words are `w0`, `w1`, ….
pub fn write_encoder(folder: &Path) {
    fs::create_dir_all(folder).unwrap();
    for file in ["config.json", "model.safetensors"] {
        fs::copy(encoder_fixture().join(file), folder.join(file)).unwrap();
    }
    let vocab: Map<String, Value> = (0..59).map(|id| (format!("w{id}"), json!(id))).collect();
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "w0"},
    });
    fs::write(folder.join("tokenizer.json"), tokenizer.to_string()).unwrap();
}
