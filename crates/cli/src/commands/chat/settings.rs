//! Settings that `/set` changes between answers.

use std::str::FromStr;

use emberlm_generate::{ChooserConfig, SETTINGS};
use emberlm_system::nearest::nearest;

use crate::commands::generate::sampling::{Origin, Sampling};
use crate::commands::generate::sampling_args::NAMES;
use crate::values;

pub use crate::commands::generate::sampling::names;

/// The settings of the next answer.
#[derive(Debug)]
pub struct Settings {
    /// Logit bias and grammar constraint, which `/set` does not change.
    chooser: ChooserConfig,
    sampling: Sampling,
    /// The number of answers since the seed was set.
    answers: u64,
}

impl Settings {
    /// Creates the settings from the command line and the model.
    pub fn new(chooser: ChooserConfig, sampling: Sampling) -> Self {
        Self {
            chooser,
            sampling,
            answers: 0,
        }
    }

    /// The maximum number of tokens of an answer.
    pub fn max_new_tokens(&self) -> usize {
        self.sampling.max_new_tokens.value
    }

    /// Returns the sampler configuration of the next answer, whose constraint begins after the first of the texts
    /// `before_constraint`. Each answer has its own seed, so that `/retry` gives a different answer.
    pub fn next(&mut self, before_constraint: &[&str]) -> ChooserConfig {
        let mut chooser = self.sampling.apply(self.chooser.clone());
        let constraint = chooser.constraint.take();
        chooser.constraint = constraint.map(|constraint| constraint.after(before_constraint));
        chooser.sampler.seed = chooser.sampler.seed.wrapping_add(self.answers);
        self.answers += 1;
        chooser
    }

    /// Each setting's name, value and origin.
    pub fn all(&self) -> Vec<(&'static str, String, Origin)> {
        self.sampling.all()
    }

    /// Changes a setting. `text` is, for example, `temperature 0.5` or `temperature=0.5`.
    ///
    /// # Errors
    /// Returns an error if the setting does not exist or the value is invalid. The settings are then
    /// unchanged.
    pub fn set(&mut self, text: &str) -> Result<(), String> {
        let (name, value) = text
            .split_once(|c: char| c == '=' || c.is_whitespace())
            .unwrap_or((text, ""));
        let (name, value) = (name.trim().replace('_', "-"), value.trim());
        let name = canonical_name(name)?;
        let value = value.strip_prefix('=').unwrap_or(value).trim();
        let all = || names().collect::<Vec<_>>().join(", ");
        let set = match &name[..] {
            "" => return Err(format!("say what to set, and to what: {}", all())),
            "seed" => {
                let set = self.sampling.seed.set(integer(value));
                set.map(|()| self.answers = 0)
            }
            "max-new-tokens" => {
                let tokens = &mut self.sampling.max_new_tokens;
                tokens.set(values::at_least_one(value))
            }
            other => match self.sampling.setting(other) {
                Some((range, setting)) => setting.set(range.parse(value)),
                None => return Err(format!("there is no setting {name}, but: {}", all())),
            },
        };
        set.map_err(|rule| match value {
            "" => format!("{name} needs a value"),
            value => format!("{name} cannot be {value}: {rule}"),
        })
    }
}

/// Resolves aliases of setting names. Returns a name without a similar setting unchanged.
///
/// # Errors
/// Returns an error that suggests the setting with a similar name.
fn canonical_name(name: String) -> Result<String, String> {
    let mut settings = SETTINGS.iter().zip(NAMES.iter());
    if let Some((_, full)) = settings.find(|(setting, _)| setting.aliases.contains(&&name[..])) {
        return Ok(full.clone());
    }
    match &name[..] {
        "max-tokens" => Ok("max-new-tokens".to_owned()),
        known if names().any(|name| name == known) => Ok(name),
        unknown => match nearest(unknown, names()) {
            Some(near) => Err(format!(
                "there is no setting {unknown}: did you mean {near}?"
            )),
            None => Ok(name),
        },
    }
}

fn integer<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| "not a whole number".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use emberlm_generate::SamplingDefaults;

    use super::*;
    use crate::commands::generate::choice::ChoiceArgs;

    fn settings() -> Settings {
        let args = Line::parse_from(["", "--top-p", "0.7"]).args;
        let model = SamplingDefaults {
            temperature: Some(0.6),
            top_p: Some(0.9),
            ..SamplingDefaults::default()
        };
        let sampling = Sampling::resolve(&args, None, &model, 20);
        Settings::new(ChooserConfig::default(), sampling)
    }

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: ChoiceArgs,
    }

    fn value(settings: &Settings, name: &str) -> String {
        found(settings, name).0
    }

    fn found(settings: &Settings, name: &str) -> (String, Origin) {
        let mut all = settings.all().into_iter();
        let (_, value, origin) = all.find(|(other, ..)| *other == name).unwrap();
        (value, origin)
    }

    #[test]
    fn each_value_has_its_origin() {
        let mut settings = settings();
        settings.set("min-p 0.1").unwrap();
        for (name, value, origin) in [
            ("temperature", "0.6", Origin::Model),
            ("top-p", "0.7", Origin::CommandLine),
            ("top-k", "0", Origin::Default),
            ("min-p", "0.1", Origin::Set),
            ("max-new-tokens", "20", Origin::Default),
        ] {
            assert_eq!(found(&settings, name), (value.to_owned(), origin), "{name}");
        }
    }

    #[test]
    fn settings_validate_their_values() {
        for (name, good, bad) in [
            ("temperature", "0.5", "-1"),
            ("top-k", "40", "1.5"),
            ("top-p", "0.9", "0"),
            ("min-p", "0.05", "1.1"),
            ("repetition-penalty", "1.1", "0"),
            ("presence-penalty", "-0.5", "2.5"),
            ("frequency-penalty", "0.25", "x"),
            ("seed", "7", "-7"),
            ("max-new-tokens", "64", "0"),
        ] {
            let mut settings = settings();
            settings.set(&format!("{name} {good}")).unwrap();
            assert_eq!(value(&settings, name), good);
            let message = settings.set(&format!("{name}={bad}")).unwrap_err();
            assert!(
                message.starts_with(&format!("{name} cannot be {bad}: ")),
                "{message}"
            );
            assert_eq!(value(&settings, name), good, "as it was");
            assert_eq!(settings.set(name), Err(format!("{name} needs a value")));
        }
    }

    #[test]
    fn unknown_settings_are_rejected_with_suggestions() {
        let message = settings().set("heat 1").unwrap_err();
        assert!(
            message.starts_with("there is no setting heat, but: temperature, top-k, "),
            "{message}"
        );
        let message = settings().set("tempertaure 1").unwrap_err();
        assert_eq!(
            message,
            "there is no setting tempertaure: did you mean temperature?"
        );
        settings().set("max_new_tokens = 3").unwrap();
        settings().set("temp=0.5").unwrap();
        settings().set("max-tokens 3").unwrap();
    }

    #[test]
    fn each_answer_has_its_own_reproducible_seed() {
        let mut settings = settings();
        settings.set("seed 5").unwrap();
        let mut seeds = || [(); 2].map(|()| settings.next(&[]).sampler.seed);
        assert_eq!(seeds(), [5, 6]);
        settings.set("seed 5").unwrap();
        assert_eq!(settings.next(&[]).sampler.seed, 5);
    }
}
