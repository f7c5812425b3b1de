//! The form in which encoders are exchanged in Hugging Face directories: the fields of a `config.json` and the names of
//! tensors, one declarative file per model type.

pub(crate) mod bert;
pub(crate) mod distilbert;
pub(crate) mod modernbert;
pub(crate) mod roberta;

use emberlm_kernels::Activation;
use serde_json::{Map, Value, json};

use crate::config::{Init, ModelConfig, Norm};
use crate::error::HuggingFaceError;
use crate::exchange::fields::Fields;
use crate::exchange::{FileFacts, ModelType, ReadFacts, quantization};
use crate::transformer::checked::TransformerConfig;
use crate::transformer::encoder::{
    EncoderHeadConfig, EncoderSettings, PooledActivation, Pooling, ProblemType, TokenLayer,
};
use crate::weights::TensorStore;
use crate::weights::map::Source;
use crate::weights::names::{self, TensorName};

/// The form of one model type.
pub(crate) struct EncoderExchange {
    /// The value of `model_type`.
    pub(crate) model_type: &'static str,
    /// Beginning of the names of `transformers`' classes, such as `Bert` of `BertModel`.
    pub(crate) class: &'static str,
    /// The prefix of all tensors except a head's; files of the bare model lack it.
    pub(crate) prefix: &'static str,
    /// The tensors of the embeddings and blocks.
    pub(crate) names: &'static [TensorName],
    /// The tensors of each kind of head.
    pub(crate) heads: HeadNames,
    /// Builds the settings, without a head, from a `config.json`.
    pub(crate) read: fn(&Fields<'_>) -> Result<EncoderSettings, HuggingFaceError>,
    /// The fields that describe an encoder.
    pub(crate) write: fn(&EncoderSettings) -> Map<String, Value>,
    /// The heads of a model that a `config.json` describes.
    pub(crate) style: fn(&Fields<'_>, &EncoderSettings) -> Result<HeadStyle, HuggingFaceError>,
}

/// The form of the heads of a model type's encoders, with any labels.
#[derive(Clone, Copy, Debug)]
pub struct HeadStyle {
    /// The activation of the masked language model's head.
    pub(crate) masked_lm: Activation,
    /// The activation of classifiers.
    pub(crate) classifier: PooledActivation,
    /// The pooling of a text's states for its classifier.
    pub(crate) pooling: Pooling,
    /// True if the dense layers of heads have a bias.
    pub(crate) dense_bias: bool,
    /// True if the logits of tokens have a bias.
    pub(crate) logit_bias: bool,
    /// True if classifiers, of tokens too, have a dense layer, an activation and a norm before their last layer.
    pub(crate) normed: bool,
}

impl HeadStyle {
    /// The heads of BERT.
    pub(crate) const fn bert(masked_lm: Activation, classifier: PooledActivation) -> Self {
        Self {
            masked_lm,
            classifier,
            pooling: Pooling::First,
            dense_bias: true,
            logit_bias: true,
            normed: false,
        }
    }

    /// The head that predicts masked tokens.
    pub fn masked_lm_head(&self) -> EncoderHeadConfig {
        EncoderHeadConfig::MaskedLm {
            activation: self.masked_lm,
            dense_bias: self.dense_bias,
            bias: self.logit_bias,
        }
    }

    /// The head that predicts the labels of texts.
    pub fn sequence_head(&self, labels: Vec<String>) -> EncoderHeadConfig {
        EncoderHeadConfig::Sequence {
            labels,
            activation: self.classifier,
            pooling: self.pooling,
            dense_bias: self.dense_bias,
            norm: self.normed,
            problem: ProblemType::SingleLabelClassification,
        }
    }

    /// The head that predicts the labels of tokens.
    fn token_head(&self, labels: Vec<String>) -> EncoderHeadConfig {
        EncoderHeadConfig::Token {
            labels,
            layer: self.normed.then_some(TokenLayer {
                activation: self.classifier,
                bias: self.dense_bias,
            }),
        }
    }
}

/// The tensors of heads.
pub(crate) struct HeadNames {
    /// The pooler of a bare model, if the type has one.
    pub(crate) pooler: Option<&'static [TensorName]>,
    /// The masked language model's head.
    pub(crate) masked_lm: &'static [TensorName],
    /// The copies of other tensors in the masked language model's head: the copy, the original.
    pub(crate) tied: &'static [(&'static str, &'static str)],
    /// The sequence classifier.
    pub(crate) sequence: &'static [TensorName],
    /// The token classifier.
    pub(crate) token: &'static [TensorName],
}

impl EncoderExchange {
    /// The head of the class in `architectures`; without a class, the bare model.
    fn head(
        &self,
        fields: &Fields<'_>,
        style: &HeadStyle,
        has_pooler: bool,
    ) -> Result<Option<EncoderHeadConfig>, HuggingFaceError> {
        let classes = fields.optional_texts("architectures")?.unwrap_or_default();
        let bare = has_pooler.then_some(EncoderHeadConfig::Pooler);
        let Some(class) = classes.first() else {
            return Ok(bare);
        };
        Ok(match class.strip_prefix(self.class) {
            Some("Model") => bare,
            Some("ForMaskedLM" | "ForPreTraining") => {
                let rule = "an untied output projection is not supported";
                fields.only("tie_word_embeddings", true, rule)?;
                Some(style.masked_lm_head())
            }
            Some("ForSequenceClassification") => {
                let mut head = style.sequence_head(labels(fields)?);
                if let EncoderHeadConfig::Sequence {
                    labels, problem, ..
                } = &mut head
                {
                    *problem = problem_type(fields, labels.len())?;
                }
                Some(head)
            }
            Some("ForTokenClassification") => Some(style.token_head(labels(fields)?)),
            _ => {
                let heads = ["Model", "ForMaskedLM", "ForSequenceClassification"];
                let known = heads.map(|head| format!("{}{head}", self.class)).join(", ");
                let rule = format!("must be {known} or {}ForTokenClassification", self.class);
                return Err(fields.error("architectures", rule));
            }
        })
    }

    /// The class of a head.
    fn architecture(&self, head: Option<&EncoderHeadConfig>) -> String {
        let head = match head {
            None | Some(EncoderHeadConfig::Pooler) => "Model",
            Some(EncoderHeadConfig::MaskedLm { .. }) => "ForMaskedLM",
            Some(EncoderHeadConfig::Sequence { .. }) => "ForSequenceClassification",
            Some(EncoderHeadConfig::Token { .. }) => "ForTokenClassification",
        };
        format!("{}{head}", self.class)
    }

    /// The tensors of a head.
    fn head_names(&self, head: Option<&EncoderHeadConfig>) -> &'static [TensorName] {
        match head {
            None => &[],
            Some(EncoderHeadConfig::Pooler) => self.heads.pooler.unwrap_or_default(),
            Some(EncoderHeadConfig::MaskedLm { .. }) => self.heads.masked_lm,
            Some(EncoderHeadConfig::Sequence { .. }) => self.heads.sequence,
            Some(EncoderHeadConfig::Token { .. }) => self.heads.token,
        }
    }
}

impl ModelType for &'static EncoderExchange {
    fn name(&self) -> &'static str {
        self.model_type
    }

    fn class(&self, config: &TransformerConfig) -> String {
        self.architecture(config.encoder_head())
    }

    fn prefix(&self) -> &'static str {
        self.prefix
    }

    fn is_bare(&self, config: &TransformerConfig) -> bool {
        matches!(
            config.encoder_head(),
            None | Some(EncoderHeadConfig::Pooler)
        )
    }

    fn source(&self, config: &TransformerConfig, path: &str) -> Option<Source> {
        let head = self.head_names(config.encoder_head());
        let attention = config.stack().block.attention;
        names::source(self.names, &attention, path)
            .or_else(|| names::source(head, &attention, path))
    }

    fn constant(&self, config: &TransformerConfig) -> Box<dyn Fn(&str) -> bool> {
        match config.encoder_head() {
            Some(EncoderHeadConfig::Pooler | EncoderHeadConfig::Sequence { .. }) => {
                Box::new(|name: &str| is_ignored(name, true))
            }
            _ => Box::new(|name: &str| is_ignored(name, false)),
        }
    }

    fn tied(&self, config: &TransformerConfig) -> Vec<(&'static str, &'static str)> {
        match config.encoder_head() {
            Some(EncoderHeadConfig::MaskedLm { .. }) => self.heads.tied.to_vec(),
            _ => Vec::new(),
        }
    }

    fn facts(&self) -> Option<ReadFacts> {
        Some(|store| {
            let mut names = store.names();
            Ok(FileFacts {
                pooler: names.any(|name| name.ends_with("pooler.dense.weight")),
                ..FileFacts::default()
            })
        })
    }

    fn read(&self, fields: &Fields<'_>, facts: FileFacts) -> Result<ModelConfig, HuggingFaceError> {
        fields.refuse(quantization::FIELD, "quantized encoders are not supported")?;
        let settings = (self.read)(fields)?;
        let style = (self.style)(fields, &settings)?;
        let head = self.head(fields, &style, facts.pooler)?;
        let settings = EncoderSettings { head, ..settings };
        Ok(TransformerConfig::try_from(settings)?.raw())
    }

    fn heads(&self, fields: &Fields<'_>) -> Result<Option<HeadStyle>, HuggingFaceError> {
        let settings = (self.read)(fields)?;
        Ok(Some((self.style)(fields, &settings)?))
    }

    fn write(&self, config: &TransformerConfig, fields: &mut Map<String, Value>) {
        if let Some(settings) = EncoderSettings::of(config) {
            fields.extend((self.write)(&settings));
        }
        write_labels(config.encoder_head(), fields);
    }
}

/// Returns true for a tensor that holds no weights of the encoder: a table that older versions kept, or the part of a
/// pre-training head that `transformers` ignores too.
fn is_ignored(name: &str, has_pooler: bool) -> bool {
    name.ends_with("embeddings.position_ids")
        || name.starts_with("cls.seq_relationship.")
        || (!has_pooler && name.contains("pooler.dense."))
}

/// The names of the labels by `id2label`; two unnamed labels by default.
fn labels(fields: &Fields<'_>) -> Result<Vec<String>, HuggingFaceError> {
    let default = |label: usize| format!("LABEL_{label}");
    let Some(names) = fields.object("id2label")? else {
        let count = fields.size("num_labels", 2)?;
        return Ok((0..count).map(default).collect());
    };
    let count = names.len();
    (0..count)
        .map(|label| Ok(names.text(&label.to_string())?.to_owned()))
        .collect()
}

/// The meaning of the logits of a text classifier with this number of labels.
fn problem_type(fields: &Fields<'_>, labels: usize) -> Result<ProblemType, HuggingFaceError> {
    let Some(name) = fields.optional_text("problem_type")? else {
        return Ok(ProblemType::default());
    };
    if name == ProblemType::SingleLabelClassification.name() && labels == 1 {
        let rule = "must be regression or multi_label_classification with a single label";
        return Err(fields.error("problem_type", rule));
    }
    let known = ProblemType::ALL.into_iter();
    known
        .clone()
        .find(|known| known.name() == name)
        .ok_or_else(|| {
            let names = known.map(ProblemType::name).collect::<Vec<_>>();
            fields.error(
                "problem_type",
                format!("must be one of {}", names.join(", ")),
            )
        })
}

/// The fields of a classifier's labels.
fn write_labels(head: Option<&EncoderHeadConfig>, fields: &mut Map<String, Value>) {
    let Some(labels) = head.and_then(EncoderHeadConfig::labels) else {
        return;
    };
    if let Some(EncoderHeadConfig::Sequence { problem, .. }) = head {
        let is_set = fields.get("problem_type").is_some_and(|set| !set.is_null());
        if is_set || *problem != ProblemType::default() {
            fields.insert("problem_type".to_owned(), json!(problem.name()));
        }
    }
    let numbered = || labels.iter().enumerate();
    let names: Map<String, Value> = numbered()
        .map(|(id, name)| (id.to_string(), json!(name)))
        .collect();
    let ids: Map<String, Value> = numbered()
        .map(|(id, name)| (name.clone(), json!(id)))
        .collect();
    fields.insert("id2label".to_owned(), Value::Object(names));
    fields.insert("label2id".to_owned(), Value::Object(ids));
}

/// LayerNorm with a bias and the ε of a field.
pub(crate) fn layer_norm(
    fields: &Fields<'_>,
    name: &str,
    default: f64,
) -> Result<Norm, HuggingFaceError> {
    Ok(Norm::Layer {
        bias: true,
        epsilon: fields.number(name, default)?,
    })
}

/// The initialization N(0, `initializer_range`²).
pub(crate) fn initialization(fields: &Fields<'_>) -> Result<Init, HuggingFaceError> {
    Ok(Init::Normal {
        std: fields.number("initializer_range", 0.02)?,
        scale_residual: false,
    })
}

/// The standard deviation of the initialization, as [`initialization`] reads it.
pub(crate) fn initializer_range(init: Init) -> Value {
    match init {
        Init::Normal { std, .. } => json!(std),
        _ => Value::Null,
    }
}
