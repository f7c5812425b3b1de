//! Sampling settings: the fields common to all requests for text.

use std::collections::BTreeMap;

use emberlm_generate::ranges::{
    FREQUENCY_PENALTY, MIN_P, PRESENCE_PENALTY, REPETITION_PENALTY, TEMPERATURE, TOP_P,
};
use emberlm_generate::{ChooserConfig, Grammar, SamplingDefaults};
use emberlm_tokenizer::StopStrings;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::error::ApiError;
use crate::limits::{MOST_BIASES, MOST_STOPS};

/// The fields. Null is as if a field were not there: then the model's own settings decide, and where it has none, the defaults of
/// OpenAI's API.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Settings {
    /// Maximum number of tokens of the answer. Default: the model's `max_new_tokens`, otherwise 16 for completions and the
    /// rest of the context for conversations.
    #[schemars(range(min = 0, max = u32::MAX))]
    max_tokens: Option<u32>,
    /// Divides the logits; 0 always takes the most probable token.
    #[schemars(range(min = TEMPERATURE.least), extend("default" = 1))]
    temperature: Option<f64>,
    /// Draws only from the most probable tokens that together have this probability.
    #[schemars(range(max = TOP_P.most), extend("exclusiveMinimum" = TOP_P.least, "default" = 1))]
    top_p: Option<f64>,
    /// Draws only from this many of the most probable tokens; 0 for all.
    #[schemars(range(min = 0, max = u32::MAX), extend("default" = 0))]
    top_k: Option<u32>,
    /// Draws only from tokens with at least this fraction of the most probable token's probability.
    #[schemars(range(min = MIN_P.least, max = MIN_P.most), extend("default" = 0))]
    min_p: Option<f64>,
    /// Divides the positive logits of tokens in the prompt and the answer, and multiplies the negative ones.
    #[schemars(extend("exclusiveMinimum" = REPETITION_PENALTY.least, "default" = 1))]
    repetition_penalty: Option<f64>,
    /// Subtracted from the logits of tokens that were generated.
    #[schemars(range(min = PRESENCE_PENALTY.least, max = PRESENCE_PENALTY.most), extend("default" = 0))]
    presence_penalty: Option<f64>,
    /// Subtracted from the logits of tokens, once for each time that they were generated.
    #[schemars(range(min = FREQUENCY_PENALTY.least, max = FREQUENCY_PENALTY.most), extend("default" = 0))]
    frequency_penalty: Option<f64>,
    /// Added to the logits of tokens, by token id.
    logit_bias: Option<BTreeMap<String, f32>>,
    /// The same seed gives the same text. Answer `i` of `n` draws from stream `i` of the seed. Default: random.
    #[schemars(range(min = i64::MIN, max = i64::MAX))]
    seed: Option<i64>,
    /// Texts that end the answer and are not part of it.
    stop: Option<Stop>,
    /// The form of the text, as in vLLM.
    structured_outputs: Option<StructuredOutputs>,
}

/// One text, or several.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "a text, or a list of texts")]
enum Stop {
    One(String),
    Many(#[schemars(length(max = MOST_STOPS))] Vec<String>),
}

/// The form of a text, given by one of these fields.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum StructuredOutputs {
    /// JSON that follows this schema.
    Json(BTreeMap<String, Value>),
    /// A text that a regular expression matches as a whole.
    Regex(String),
    /// One of these texts.
    Choice(#[schemars(length(min = 1))] Vec<String>),
}

impl Settings {
    /// The requested maximum of new tokens.
    pub fn max_tokens(&self) -> Option<usize> {
        self.max_tokens.map(|tokens| tokens as usize)
    }

    /// The sampler's configuration: the request's settings, with unset ones taken from `defaults`. `seed`
    /// applies if the request has none.
    ///
    /// # Errors
    /// A logit bias is invalid.
    pub fn chooser(
        &self,
        defaults: SamplingDefaults,
        seed: u64,
    ) -> Result<ChooserConfig, ApiError> {
        let requested = SamplingDefaults {
            temperature: self.temperature,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            repetition_penalty: self.repetition_penalty,
            presence_penalty: self.presence_penalty,
            frequency_penalty: self.frequency_penalty,
            max_new_tokens: None,
        };
        // Negative seeds are valid too; each number selects its own random stream.
        let seed = self.seed.map_or(seed, i64::cast_unsigned);
        Ok(ChooserConfig {
            logit_bias: self.logit_bias()?,
            ..requested.or(defaults).chooser(seed)
        })
    }

    fn logit_bias(&self) -> Result<Vec<(u32, f32)>, ApiError> {
        let biases = self.logit_bias.iter().flatten();
        let refuse = |rule: &str| Err(ApiError::field("logit_bias", rule));
        if biases.clone().count() > MOST_BIASES {
            return refuse(&format!("must have at most {MOST_BIASES} tokens"));
        }
        let mut found = Vec::new();
        for (id, &value) in biases {
            match id.parse() {
                Ok(id) => found.push((id, value)),
                Err(_) => return refuse("its keys must be token ids, such as \"50256\""),
            }
        }
        Ok(found)
    }

    /// The stop strings of the request and those in `more`.
    ///
    /// # Errors
    /// There are too many, or one is empty or too long.
    pub fn stops(&self, more: &[String]) -> Result<StopStrings, ApiError> {
        let requested = match &self.stop {
            None => &[],
            Some(Stop::One(text)) => std::slice::from_ref(text),
            Some(Stop::Many(texts)) => &texts[..],
        };
        if requested.len() > MOST_STOPS {
            let rule = format!("must be at most {MOST_STOPS} texts");
            return Err(ApiError::field("stop", rule));
        }
        let all: Vec<&String> = requested.iter().chain(more).collect();
        Ok(StopStrings::new(&all)?)
    }

    /// The grammar of `structured_outputs`.
    ///
    /// # Errors
    /// The list of choices is empty.
    pub fn grammar(&self) -> Result<Option<Grammar>, ApiError> {
        Ok(match &self.structured_outputs {
            None => None,
            Some(StructuredOutputs::Json(schema)) => Some(json_grammar(Some(schema))?),
            Some(StructuredOutputs::Regex(pattern)) => Some(Grammar::Regex(pattern.clone())),
            Some(StructuredOutputs::Choice(texts)) if texts.is_empty() => {
                let rule = "must be at least one text";
                return Err(ApiError::field("structured_outputs.choice", rule));
            }
            Some(StructuredOutputs::Choice(texts)) => Some(Grammar::choice(texts)),
        })
    }
}

/// The grammar of JSON that matches `schema`, or of any object if there is none.
///
/// # Errors
/// The schema cannot be serialized.
pub(crate) fn json_grammar(schema: Option<&BTreeMap<String, Value>>) -> Result<Grammar, ApiError> {
    let text = match schema {
        Some(schema) => serde_json::to_string(schema),
        None => Ok(r#"{"type":"object"}"#.to_owned()),
    };
    let text = text.map_err(|error| ApiError::invalid(error.to_string()))?;
    Ok(Grammar::JsonSchema(text))
}

#[cfg(test)]
mod tests {
    use schemars::schema_for;

    use super::*;

    #[test]
    fn documented_defaults_are_those_of_the_sampler() {
        let chooser = SamplingDefaults::default().chooser(0);
        let (sampler, penalties) = (chooser.sampler, chooser.penalties);
        let schema = schema_for!(Settings).to_value();
        for (name, default) in [
            ("temperature", sampler.temperature),
            ("top_p", sampler.top_p),
            ("top_k", sampler.top_k as f64),
            ("min_p", sampler.min_p),
            ("repetition_penalty", penalties.repetition),
            ("presence_penalty", penalties.presence),
            ("frequency_penalty", penalties.frequency),
        ] {
            let documented = schema["properties"][name]["default"].as_f64();
            assert_eq!(documented, Some(default), "{name}");
        }
    }
}
