//! Parsers for command-line values with rules beyond their type.

use std::num::ParseIntError;
use std::sync::LazyLock;

use bytesize::ByteSize;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use emberlm_data::{ExportFormat, Format, OnError, Packing, SplitRule};
use emberlm_generate::EngineConfig;
use emberlm_generate::ranges::LOGIT_BIAS;
use emberlm_kernels::Precision;
use emberlm_model::gguf::FileType;
use emberlm_model::weights::Element;
use emberlm_model::{CacheFormat, WeightFormat};
use emberlm_tokenizer::{TokenizerChoice, TokenizerError};
use emberlm_trainer::config::ObjectiveKind;
use emberlm_trainer::events::NormKind;

/// Parses a tokenizer's name, in upper or lower case, or its path.
pub fn tokenizer(text: &str) -> Result<TokenizerChoice, TokenizerError> {
    let lower_case = text.to_lowercase();
    text.parse().or_else(|error| match lower_case.parse() {
        Ok(TokenizerChoice::Named(kind)) => Ok(TokenizerChoice::Named(kind)),
        _ => Err(error),
    })
}

/// Accepts the name of a floating-point type.
pub fn element_parser() -> impl TypedValueParser<Value = Element> {
    one_of(Element::ALL, Element::name)
}

/// Accepts the name of a file format.
pub fn format_parser() -> impl TypedValueParser<Value = Format> {
    one_of(Format::ALL, Format::name)
}

/// Accepts the name of a split rule.
pub fn split_parser() -> impl TypedValueParser<Value = SplitRule> {
    one_of(SplitRule::ALL, SplitRule::name)
}

/// Accepts the name of a policy for broken records.
pub fn on_error_parser() -> impl TypedValueParser<Value = OnError> {
    one_of([OnError::Stop, OnError::Skip], |on_error| match on_error {
        OnError::Stop => "stop",
        OnError::Skip => "skip",
    })
}

/// Accepts one name of a closed list, in upper or lower case ([`crate::arg_forms`]).
pub fn one_of<T: Copy + Send + Sync + 'static, const N: usize>(
    all: [T; N],
    name: fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T> {
    described(all.map(name), all, name)
}

/// [`one_of`] with the descriptions of `values`.
fn described<T: Copy + Send + Sync + 'static, const N: usize>(
    values: impl Into<PossibleValuesParser>,
    all: [T; N],
    name: fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T> {
    let named = move |given: String| {
        all.into_iter()
            .find(|&one| name(one).eq_ignore_ascii_case(&given))
    };
    let values: PossibleValuesParser = values.into();
    values.try_map(move |given| named(given).ok_or("unknown"))
}

/// The names of the objectives on the command line, in the order of [`ObjectiveKind::ALL`].
static OBJECTIVES: LazyLock<[String; ObjectiveKind::ALL.len()]> =
    LazyLock::new(|| ObjectiveKind::ALL.map(|kind| kind.name().replace('_', "-")));

/// The name of an objective on the command line.
pub fn objective_name(objective: ObjectiveKind) -> &'static str {
    &OBJECTIVES[objective as usize]
}

/// Accepts the name of an objective.
pub fn objective_parser() -> impl TypedValueParser<Value = ObjectiveKind> {
    let values = ObjectiveKind::ALL.map(|kind| {
        PossibleValue::new(objective_name(kind)).help(kind.about().trim_end_matches('.'))
    });
    described(values, ObjectiveKind::ALL, objective_name)
}

/// Accepts the name of a dataset export format.
pub fn export_format() -> impl TypedValueParser<Value = ExportFormat> {
    one_of(ExportFormat::ALL, ExportFormat::name)
}

/// Accepts the name of a type of GGUF files.
pub fn file_type() -> impl TypedValueParser<Value = FileType> {
    one_of(FileType::ALL, FileType::name)
}

/// Accepts the name of a matmul precision.
pub fn precision_parser() -> impl TypedValueParser<Value = Precision> {
    one_of(Precision::ALL, Precision::name)
}

/// Accepts the name of a packing of documents into sequences.
pub fn packing_parser() -> impl TypedValueParser<Value = Packing> {
    one_of(Packing::ALL, Packing::name)
}

/// Accepts the name of a norm of a layer.
pub fn norm_parser() -> impl TypedValueParser<Value = NormKind> {
    one_of(NormKind::ALL, NormKind::name)
}

/// Accepts the name of a weight format.
pub fn weights_parser() -> impl TypedValueParser<Value = WeightFormat> {
    one_of(WeightFormat::ALL, WeightFormat::name)
}

/// Accepts the name of a format of key-value caches.
pub fn cache_parser() -> impl TypedValueParser<Value = CacheFormat> {
    one_of(CacheFormat::ALL, CacheFormat::name)
}

/// Parses the fraction of data to hold out, at least 0 and below 1.
pub fn val_fraction(text: &str) -> Result<f64, String> {
    number(
        text,
        |part| (0.0..1.0).contains(&part),
        "must be at least 0 and below 1",
    )
}

/// Parses a token id and its logit bias, such as `50256=-100`.
pub fn logit_bias(text: &str) -> Result<(u32, f32), String> {
    let (least, most) = (LOGIT_BIAS.least, LOGIT_BIAS.most);
    let rule = || format!("must be a token id, = and a number from {least} to {most}");
    let (id, value) = text.split_once('=').ok_or_else(rule)?;
    match (id.trim().parse(), value.trim().parse()) {
        (Ok(id), Ok(value)) if LOGIT_BIAS.allows(f64::from(value)) => Ok((id, value)),
        _ => Err(rule()),
    }
}

/// Parses a non-empty stop string.
pub fn stop(text: &str) -> Result<String, String> {
    match text {
        "" => Err("must not be empty".to_owned()),
        text => Ok(text.to_owned()),
    }
}

fn number(text: &str, allowed: impl Fn(f64) -> bool, rule: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(value) if allowed(value) => Ok(value),
        Ok(_) => Err(rule.to_owned()),
        Err(_) => Err("not a number".to_owned()),
    }
}

/// Parses a token id.
pub fn token_id(text: &str) -> Result<u32, String> {
    text.trim().parse().map_err(|_| "not a token id".to_owned())
}

/// Parses a special token's name and id, such as `<s>=1`.
pub fn named_id(text: &str) -> Result<(String, u32), String> {
    let rule = || "must be a name, = and an id, such as <s>=1".to_owned();
    let (name, id) = text.rsplit_once('=').ok_or_else(rule)?;
    match (name, id.parse()) {
        ("", _) | (_, Err(_)) => Err(rule()),
        (name, Ok(id)) => Ok((name.to_owned(), id)),
    }
}

/// Parses a count, such as `2000`, `2_000` or `2e3`.
pub fn count(text: &str) -> Result<usize, ParseIntError> {
    /// Every integer up to this one has an exact f64 representation.
    const EXACT: f64 = (1u64 << 53) as f64;
    let digits = text.trim().replace('_', "");
    let whole = |number: &f64| number.fract() == 0.0 && (0.0..=EXACT).contains(number);
    digits.parse().or_else(|error| {
        let number = digits.parse().ok().filter(whole);
        number.map(|number| number as usize).ok_or(error)
    })
}

/// Parses a count of at least 1.
pub fn at_least_one(text: &str) -> Result<usize, String> {
    match count(text) {
        Ok(0) => Err("must be at least 1".to_owned()),
        Ok(count) => Ok(count),
        Err(_) => Err("must be a whole number, 1 or more".to_owned()),
    }
}

/// Parses a number of draft tokens per pass.
pub fn draft_tokens(text: &str) -> Result<usize, String> {
    let most = EngineConfig::MOST_DRAFT_TOKENS;
    let tokens = count(text).ok().filter(|&tokens| tokens <= most);
    tokens.ok_or_else(|| format!("must be a whole number, 0 to {most}"))
}

/// Parses a count of at least `LEAST`.
pub fn at_least<const LEAST: usize>(text: &str) -> Result<usize, String> {
    let found = count(text).ok().filter(|count| *count >= LEAST);
    found.ok_or_else(|| format!("must be a whole number, {LEAST} or more"))
}

/// Parses a number of resamples.
pub fn resamples(text: &str) -> Result<usize, String> {
    const MOST: usize = 100_000;
    let found = count(text).ok().filter(|count| *count <= MOST);
    found.ok_or_else(|| format!("must be a whole number, 0 to {MOST}"))
}

/// Parses a time in seconds, minutes or hours, such as `90s`, `10m` or `1.5h`, as seconds.
pub fn duration(text: &str) -> Result<f64, String> {
    let units = [("s", 1.0), ("m", 60.0), ("h", 3600.0)];
    let parsed = units.into_iter().find_map(|(unit, seconds)| {
        let number: f64 = text.trim().strip_suffix(unit)?.trim().parse().ok()?;
        Some(number * seconds)
    });
    let positive = parsed.filter(|seconds| seconds.is_finite() && *seconds > 0.0);
    positive.ok_or_else(|| "must be a time above 0, such as 90s, 10m or 2h".to_owned())
}

/// Parses a factor between neighbouring sizes or budgets.
pub fn spacing(text: &str) -> Result<f64, String> {
    number(
        text,
        |factor| (1.3..=100.0).contains(&factor),
        "must be 1.3 to 100",
    )
}

/// Parses a finite number of at least 0.
pub fn not_negative(text: &str) -> Result<f64, String> {
    let allowed = |number: f64| number.is_finite() && number >= 0.0;
    number(text, allowed, "must be at least 0 and finite")
}

/// Parses a finite number above 0.
pub fn positive(text: &str) -> Result<f64, String> {
    let allowed = |number: f64| number.is_finite() && number > 0.0;
    number(text, allowed, "must be above 0 and finite")
}

/// Parses a size above 0, such as `5GB`, `500 MB` or `1GiB`.
pub fn size(text: &str) -> Result<ByteSize, String> {
    match text.parse::<ByteSize>() {
        Ok(size) if size.as_u64() > 0 => Ok(size),
        Ok(_) => Err("must be above 0".to_owned()),
        Err(_) => Err("not a size such as 5GB or 500MB".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_accept_underscores_and_exponents() {
        for (text, expected) in [("0", 0), ("2000", 2000), ("2_000", 2000), ("1e4", 10_000)] {
            assert_eq!(count(text), Ok(expected));
        }
        for text in ["", "1.5", "-1", "-1e3", "many", "1e300", "nan", "inf"] {
            assert!(count(text).is_err(), "{text}");
        }
        assert!(at_least_one("0e0").is_err());
    }
}
