//! Values of the command line that are more than their type.

use std::path::PathBuf;

use bytesize::ByteSize;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use emberlm_data::Packing;
use emberlm_model::weights::Element;
use emberlm_tokenizer::{TokenizerChoice, TokenizerError};

/// A tokenizer by name or path.
pub fn tokenizer(text: &str) -> Result<TokenizerChoice, TokenizerError> {
    text.parse()
}

/// A type of numbers by name.
pub fn element_parser() -> impl TypedValueParser<Value = Element> {
    let named = |name: String| {
        Element::ALL
            .into_iter()
            .find(|element| element.name() == name)
    };
    PossibleValuesParser::new(Element::ALL.map(Element::name))
        .try_map(move |name| named(name).ok_or("unknown type"))
}

/// How documents come into sequences, by name.
pub fn packing_parser() -> impl TypedValueParser<Value = Packing> {
    PossibleValuesParser::new(Packing::ALL.map(Packing::name))
        .try_map(|name| name.parse::<Packing>())
}

/// A part that leaves something.
pub fn val_fraction(text: &str) -> Result<f64, String> {
    number(
        text,
        |part| (0.0..1.0).contains(&part),
        "it must be at least 0 and below 1",
    )
}

/// A temperature.
pub fn temperature(text: &str) -> Result<f64, String> {
    let allowed = |temperature: f64| temperature.is_finite() && temperature >= 0.0;
    number(text, allowed, "it must be at least 0 and finite")
}

/// A probability above 0.
pub fn top_p(text: &str) -> Result<f64, String> {
    number(
        text,
        |p| p > 0.0 && p <= 1.0,
        "it must be above 0 and at most 1",
    )
}

fn number(text: &str, allowed: impl Fn(f64) -> bool, rule: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(value) if allowed(value) => Ok(value),
        Ok(_) => Err(rule.to_owned()),
        Err(_) => Err("it is not a number".to_owned()),
    }
}

/// The name of a PNG file.
pub fn png_file(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    match path.extension() {
        Some(extension) if extension.eq_ignore_ascii_case("png") => Ok(path),
        _ => Err("it must end in .png".to_owned()),
    }
}

/// A token id.
pub fn token_id(text: &str) -> Result<u32, String> {
    text.trim()
        .parse()
        .map_err(|_| "it is not a token id".to_owned())
}

/// A count of which there must be one.
pub fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("it must be at least 1".to_owned()),
        Ok(value) => Ok(value),
        Err(_) => Err("it is not a whole number".to_owned()),
    }
}

/// A size such as `5GB`, `500 MB` or `1GiB`.
pub fn size(text: &str) -> Result<ByteSize, String> {
    match text.parse::<ByteSize>() {
        Ok(size) if size.as_u64() > 0 => Ok(size),
        Ok(_) => Err("it must be above 0".to_owned()),
        Err(_) => Err("it is not a size such as 5GB or 500MB".to_owned()),
    }
}
