//! The metrics of task files: `metric_list`, and their values.

use regex_automata::meta::Regex;
use serde_json::{Map, Value};

use super::filters::regex;
use super::output_type::OutputType;
use crate::evaluate::tasks::statistics::Estimate;

/// Python's `string.punctuation`.
const PUNCTUATION: &str = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";

/// A metric of a task.
#[derive(Debug)]
pub(super) struct Metric {
    pub(super) kind: MetricKind,
    rules: MatchRules,
}

emberlm_system::named! {
    /// The metrics of task files.
    pub enum MetricKind {
        /// The share of items whose most probable choice is correct, or whose target greedy decoding produces.
        Acc = "acc",
        /// `acc` by the log-likelihood per character of the choice.
        AccNorm = "acc_norm",
        /// `acc` by the log-likelihood per byte of the choice.
        AccBytes = "acc_bytes",
        /// `acc` by the log-likelihood minus that of the choice without the context.
        AccMutualInfo = "acc_mutual_info",
        /// The share of answers that equal the target.
        ExactMatch = "exact_match",
        /// `exp` of the mean negative log-likelihood of the targets.
        Perplexity = "perplexity",
        /// Perplexity per word.
        WordPerplexity = "word_perplexity",
        /// Perplexity per byte.
        BytePerplexity = "byte_perplexity",
        /// Bits per byte.
        BitsPerByte = "bits_per_byte",
        /// F1 of the second of two choices.
        F1 = "f1",
        /// Matthews' correlation coefficient of correct and most probable choices.
        Mcc = "mcc",
        /// BLEU of all answers.
        Bleu = "bleu",
        /// chrF of all answers.
        Chrf = "chrf",
        /// chrF++ of all answers.
        ChrfPlusPlus = "chrf++",
        /// The translation edit rate of all answers.
        Ter = "ter",
    }
}

/// The differences that `exact_match` ignores.
#[derive(Debug, Default)]
struct MatchRules {
    regexes: Vec<Regex>,
    case: bool,
    punctuation: bool,
    numbers: bool,
}

impl MetricKind {
    /// The name of the aggregation over items.
    const fn aggregation(self) -> &'static str {
        match self {
            Self::Perplexity => "perplexity",
            Self::WordPerplexity | Self::BytePerplexity => "weighted_perplexity",
            Self::BitsPerByte => "bits_per_byte",
            Self::Mcc => "matthews_corrcoef",
            _ if self.is_of_corpus() => self.name(),
            _ => "mean",
        }
    }

    /// The name with that of a filter: `exact_match,strict-match`; the plain name for the filter `none`.
    pub fn filtered(self, filter: &str) -> String {
        match filter {
            "none" => self.name().to_owned(),
            _ => format!("{},{filter}", self.name()),
        }
    }

    /// Returns true if lower values are better.
    pub const fn lower_is_better(self) -> bool {
        matches!(
            self,
            Self::Perplexity
                | Self::WordPerplexity
                | Self::BytePerplexity
                | Self::BitsPerByte
                | Self::Ter
        )
    }

    /// Returns true if the metric is a function of all answers, and not a mean over them.
    pub(super) const fn is_of_corpus(self) -> bool {
        matches!(
            self,
            Self::F1 | Self::Mcc | Self::Bleu | Self::Chrf | Self::ChrfPlusPlus | Self::Ter
        )
    }

    fn is_of(self, output: OutputType) -> bool {
        match output {
            OutputType::MultipleChoice => matches!(
                self,
                Self::Acc
                    | Self::AccNorm
                    | Self::AccBytes
                    | Self::AccMutualInfo
                    | Self::ExactMatch
                    | Self::F1
                    | Self::Mcc
            ),
            OutputType::GenerateUntil => matches!(
                self,
                Self::ExactMatch | Self::Bleu | Self::Chrf | Self::ChrfPlusPlus | Self::Ter
            ),
            OutputType::Loglikelihood => matches!(self, Self::Acc | Self::Perplexity),
            OutputType::LoglikelihoodRolling => matches!(
                self,
                Self::WordPerplexity | Self::BytePerplexity | Self::BitsPerByte
            ),
        }
    }
}

/// Reads an entry of `metric_list`.
pub(super) fn metric(output: OutputType, fields: &Map<String, Value>) -> Result<Metric, String> {
    let name = fields.get("metric").unwrap_or(&Value::Null);
    let mut known = MetricKind::ALL
        .into_iter()
        .filter(|kind| kind.is_of(output));
    let kind = known
        .clone()
        .find(|kind| name.as_str() == Some(kind.name()));
    let kind = kind.ok_or_else(|| {
        let known: Vec<&str> = known.by_ref().map(MetricKind::name).collect();
        format!(
            "`metric` of {} must be one of {} (got {name})",
            output.name(),
            known.join(", ")
        )
    })?;
    let mut rules = MatchRules::default();
    for (key, value) in fields {
        let unsupported = || format!("`{key}` of the metric {} is not supported", kind.name());
        let flag = || {
            value
                .as_bool()
                .ok_or_else(|| format!("`{key}` must be true or false (got {value})"))
        };
        match key.as_str() {
            "metric" | "higher_is_better" | "weight_by_size" => {}
            "aggregation" if value.as_str() == Some(kind.aggregation()) => {}
            "aggregation" => {
                return Err(format!(
                    "`aggregation` of {} must be {} (got {value})",
                    kind.name(),
                    kind.aggregation()
                ));
            }
            "hf_evaluate" if *value == Value::Bool(false) => {}
            _ if kind.is_of_corpus() => return Err(unsupported()),
            "ignore_case" => rules.case = flag()?,
            "ignore_punctuation" => rules.punctuation = flag()?,
            "ignore_numbers" => rules.numbers = flag()?,
            "regexes_to_ignore" => {
                let list = value
                    .as_array()
                    .ok_or_else(|| format!("`{key}` must be a list (got {value})"))?;
                let compiled = list.iter().map(|pattern| match pattern.as_str() {
                    Some(pattern) => regex(pattern),
                    None => Err(format!("`{key}` must be a list of texts")),
                });
                rules.regexes = compiled.collect::<Result<_, _>>()?;
            }
            _ => return Err(unsupported()),
        }
    }
    Ok(Metric { kind, rules })
}

impl Metric {
    /// Returns true if an answer equals a target, apart from the ignored differences.
    pub(super) fn matches(&self, answer: &str, target: &str) -> bool {
        self.rules.reduced(answer) == self.rules.reduced(target)
    }
}

impl MatchRules {
    fn reduced(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for regex in &self.regexes {
            let mut kept = String::with_capacity(text.len());
            let mut end = 0;
            for found in regex.find_iter(&text) {
                kept.push_str(&text[end..found.start()]);
                end = found.end();
            }
            kept.push_str(&text[end..]);
            text = kept;
        }
        if self.case {
            text = text.to_lowercase();
        }
        if self.punctuation {
            text.retain(|c| !PUNCTUATION.contains(c));
        }
        if self.numbers {
            text.retain(|c| !c.is_ascii_digit());
        }
        text
    }
}

/// `exp` of the negative log-likelihood per unit, or bits per unit: the log-likelihoods of the texts with their units.
pub(super) fn weighted(
    kind: MetricKind,
    texts: impl IntoIterator<Item = (f64, usize)>,
) -> Estimate {
    let add = |(sum, units): (f64, usize), (s, n): (f64, usize)| (sum + s, units + n);
    let (sum, units) = texts.into_iter().fold((0.0, 0), add);
    let loss = -sum / units as f64;
    Estimate {
        value: match kind {
            MetricKind::BitsPerByte => loss / std::f64::consts::LN_2,
            _ => loss.exp(),
        },
        stderr: None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(fields: Value) -> Result<Metric, String> {
        metric(OutputType::GenerateUntil, fields.as_object().unwrap())
    }

    /// The values of lm-evaluation-harness's `exact_match_hf_evaluate`.
    #[test]
    fn exact_match_ignores_what_it_is_told_to() {
        let plain = of(json!({"metric": "exact_match"})).unwrap();
        assert!(plain.matches("a", "a") && !plain.matches("a", "A") && !plain.matches("a", "a."));
        let gsm8k = of(json!({
            "metric": "exact_match", "aggregation": "mean", "higher_is_better": true, "ignore_case": true,
            "ignore_punctuation": false, "regexes_to_ignore": [",", "\\$", "(?s).*#### ", "\\.$"],
        }));
        let gsm8k = gsm8k.unwrap();
        assert!(gsm8k.matches("$1,234.", "they have\n#### 1234"));
        assert!(!gsm8k.matches("1.5", "15"));
        let loose = of(
            json!({"metric": "exact_match", "ignore_punctuation": true, "ignore_numbers": true}),
        );
        assert!(loose.unwrap().matches("a-1b!", "ab"));
    }

    #[test]
    fn unsupported_metrics_are_refused_by_name() {
        for (fields, reason) in [
            (
                json!({}),
                "must be one of exact_match, bleu, chrf, chrf++, ter (got null)",
            ),
            (json!({"metric": "rouge1"}), "(got \"rouge1\")"),
            (
                json!({"metric": "bleu", "aggregation": "mean"}),
                "`aggregation` of bleu must be bleu (got \"mean\")",
            ),
            (
                json!({"metric": "chrf++", "ignore_case": true}),
                "`ignore_case` of the metric chrf++ is not supported",
            ),
            (json!({"metric": "acc"}), "must be one of exact_match"),
            (
                json!({"metric": "exact_match", "aggregation": "median"}),
                "must be mean",
            ),
            (
                json!({"metric": "exact_match", "hf_evaluate": true}),
                "`hf_evaluate` of the metric exact_match is not supported",
            ),
            (
                json!({"metric": "exact_match", "ignore_case": 1}),
                "`ignore_case` must be true or false",
            ),
            (
                json!({"metric": "exact_match", "regexes_to_ignore": ["("]}),
                "is not supported",
            ),
        ] {
            let error = of(fields.clone()).unwrap_err();
            assert!(error.contains(reason), "{fields}: {error}");
        }
    }
}
