//! What can be set between answers.

use std::str::FromStr;

use emberlm_generate::ChooserConfig;

use crate::values;

/// How answers are made.
#[derive(Debug)]
pub struct Settings {
    chooser: ChooserConfig,
    /// How many tokens an answer has at most.
    pub max_new_tokens: usize,
    /// How many answers were made since the seed was set.
    answers: u64,
}

/// What can be set, in the order in which it is shown.
pub const NAMES: [&str; 9] = [
    "temperature",
    "top-k",
    "top-p",
    "min-p",
    "repetition-penalty",
    "presence-penalty",
    "frequency-penalty",
    "seed",
    "max-new-tokens",
];

impl Settings {
    /// What the command line says.
    pub fn new(chooser: ChooserConfig, max_new_tokens: usize) -> Self {
        Self {
            chooser,
            max_new_tokens,
            answers: 0,
        }
    }

    /// How the next answer is chosen: each has a seed of its own, so that one that is asked for again is another.
    pub fn next(&mut self) -> ChooserConfig {
        let mut chooser = self.chooser.clone();
        chooser.sampler.seed = chooser.sampler.seed.wrapping_add(self.answers);
        self.answers += 1;
        chooser
    }

    /// Each name with its value.
    pub fn all(&self) -> [(&'static str, String); NAMES.len()] {
        let (sampler, penalties) = (&self.chooser.sampler, &self.chooser.penalties);
        let values = [
            sampler.temperature.to_string(),
            sampler.top_k.to_string(),
            sampler.top_p.to_string(),
            sampler.min_p.to_string(),
            penalties.repetition.to_string(),
            penalties.presence.to_string(),
            penalties.frequency.to_string(),
            sampler.seed.to_string(),
            self.max_new_tokens.to_string(),
        ];
        let mut values = values.into_iter();
        NAMES.map(|name| (name, values.next().unwrap_or_default()))
    }

    /// Sets what `text` says, such as `temperature 0.5` or `temperature=0.5`.
    ///
    /// # Errors
    /// There is no such setting, or its value breaks its rule: which, and what there is. All is as before then.
    pub fn set(&mut self, text: &str) -> Result<(), String> {
        let (name, value) = text
            .split_once(|c: char| c == '=' || c.is_whitespace())
            .unwrap_or((text, ""));
        let (name, value) = (name.trim().replace('_', "-"), value.trim());
        let value = value.strip_prefix('=').unwrap_or(value).trim();
        let all = NAMES.join(", ");
        let (sampler, penalties) = (&mut self.chooser.sampler, &mut self.chooser.penalties);
        let set = match &name[..] {
            "" => return Err(format!("say what to set, and to what: {all}")),
            "temperature" => put(&mut sampler.temperature, values::temperature(value)),
            "top-k" => put(&mut sampler.top_k, whole(value)),
            "top-p" => put(&mut sampler.top_p, values::top_p(value)),
            "min-p" => put(&mut sampler.min_p, values::min_p(value)),
            "repetition-penalty" => {
                put(&mut penalties.repetition, values::repetition_penalty(value))
            }
            "presence-penalty" => put(&mut penalties.presence, values::penalty(value)),
            "frequency-penalty" => put(&mut penalties.frequency, values::penalty(value)),
            "seed" => put(&mut sampler.seed, whole(value)).map(|()| self.answers = 0),
            "max-new-tokens" => put(&mut self.max_new_tokens, values::at_least_one(value)),
            _ => return Err(format!("there is no setting {name}, but: {all}")),
        };
        set.map_err(|rule| match value {
            "" => format!("{name} needs a value"),
            value => format!("{name} cannot be {value}: {rule}"),
        })
    }
}

fn put<T>(place: &mut T, value: Result<T, String>) -> Result<(), String> {
    *place = value?;
    Ok(())
}

fn whole<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse()
        .map_err(|_| "it is not a whole number".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        Settings::new(ChooserConfig::default(), 20)
    }

    fn value(settings: &Settings, name: &str) -> String {
        let found = settings.all().into_iter().find(|(other, _)| *other == name);
        found.unwrap().1
    }

    #[test]
    fn each_setting_takes_its_value_and_no_other() {
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
                message.starts_with(&format!("{name} cannot be {bad}: it ")),
                "{message}"
            );
            assert_eq!(value(&settings, name), good, "as it was");
            assert_eq!(settings.set(name), Err(format!("{name} needs a value")));
        }
    }

    #[test]
    fn what_is_not_there_is_told_with_what_is() {
        let message = settings().set("heat 1").unwrap_err();
        assert!(
            message.starts_with("there is no setting heat, but: temperature, top-k, "),
            "{message}"
        );
        settings().set("max_new_tokens = 3").unwrap();
    }

    #[test]
    fn each_answer_has_a_seed_of_its_own_and_the_same_again_from_the_same_one() {
        let mut settings = settings();
        settings.set("seed 5").unwrap();
        let mut seeds = || [(); 2].map(|()| settings.next().sampler.seed);
        assert_eq!(seeds(), [5, 6]);
        settings.set("seed 5").unwrap();
        assert_eq!(settings.next().sampler.seed, 5);
    }
}
