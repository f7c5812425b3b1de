//! The options of the sampling settings, one for each of [`SETTINGS`].

use std::sync::LazyLock;

use clap::{Arg, ArgMatches, Args, Command, Error, FromArgMatches};
use emberlm_generate::{SETTINGS, SamplingDefaults, SamplingSetting};

/// The options' names, in the order of [`SETTINGS`].
pub static NAMES: LazyLock<Vec<String>> = LazyLock::new(|| {
    let names = SETTINGS.iter().map(|setting| setting.name);
    names.map(|name| name.replace('_', "-")).collect()
});

/// The values of the options that are given.
#[derive(Clone, Copy, Debug)]
pub struct SamplingArgs(pub SamplingDefaults);

impl Args for SamplingArgs {
    fn augment_args(command: Command) -> Command {
        let named = SETTINGS.iter().zip(NAMES.iter());
        command.args(named.map(|(setting, name)| option(setting, name)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

/// The option of a setting. Its help is the effect, range and default.
fn option(setting: &'static SamplingSetting, name: &'static str) -> Arg {
    let SamplingSetting {
        range,
        default,
        help,
        ..
    } = setting;
    let rule = match range.is_whole {
        true => String::new(),
        false => format!("; {}", range.rule()),
    };
    let default = match setting.is_of_models {
        true => format!("the model's, or {default}"),
        false => default.to_string(),
    };
    let option = Arg::new(setting.name)
        .long(name)
        .aliases(setting.aliases.iter().copied())
        .value_name(setting.value_name)
        .allow_negative_numbers(true)
        .help_heading("Sampling")
        .help(format!("{help}{rule} [default: {default}]"));
    match range.is_whole {
        true => option.value_parser(|text: &str| text.parse::<u32>().map(f64::from)),
        false => option.value_parser(|text: &str| range.parse(text)),
    }
}

impl FromArgMatches for SamplingArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut given = Self(SamplingDefaults::default());
        given.update_from_arg_matches(matches)?;
        Ok(given)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        for setting in &SETTINGS {
            if let Some(value) = matches.get_one(setting.name) {
                (setting.set)(&mut self.0, Some(*value));
            }
        }
        Ok(())
    }
}
