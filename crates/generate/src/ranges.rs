//! Valid ranges of the sampling settings, defined once for the engine, the command line, the HTTP API and its
//! schema.

use crate::error::SettingError;

/// A real-valued sampling setting and its valid range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NumberSetting {
    /// The name used in requests.
    pub name: &'static str,
    /// The lower bound.
    pub least: f64,
    /// True if the lower bound itself is excluded.
    pub above_least: bool,
    /// The inclusive upper bound; infinite if every finite number is valid.
    pub most: f64,
    /// The rule in words: "must be …".
    pub rule: &'static str,
}

/// Divisor of the logits. 0 selects greedy decoding.
pub const TEMPERATURE: NumberSetting = NumberSetting {
    name: "temperature",
    least: 0.0,
    above_least: false,
    most: f64::INFINITY,
    rule: "must be at least 0 and finite",
};

/// The cumulative probability of the most probable tokens to sample from (nucleus sampling).
pub const TOP_P: NumberSetting = NumberSetting {
    name: "top_p",
    least: 0.0,
    above_least: true,
    most: 1.0,
    rule: "must be above 0 and at most 1",
};

/// The minimum probability of a candidate, relative to that of the most probable token.
pub const MIN_P: NumberSetting = NumberSetting {
    name: "min_p",
    least: 0.0,
    above_least: false,
    most: 1.0,
    rule: "must be from 0 to 1",
};

/// Divisor of the logits of repeated tokens.
pub const REPETITION_PENALTY: NumberSetting = NumberSetting {
    name: "repetition_penalty",
    least: 0.0,
    above_least: true,
    most: f64::INFINITY,
    rule: "must be above 0 and finite",
};

/// Subtracted from the logits of tokens that were generated before.
pub const PRESENCE_PENALTY: NumberSetting = NumberSetting {
    name: "presence_penalty",
    least: -2.0,
    above_least: false,
    most: 2.0,
    rule: "must be from -2 to 2",
};

/// Subtracted from the logits of generated tokens, once per occurrence.
pub const FREQUENCY_PENALTY: NumberSetting = NumberSetting {
    name: "frequency_penalty",
    ..PRESENCE_PENALTY
};

/// Added to the logit of a token.
pub const LOGIT_BIAS: NumberSetting = NumberSetting {
    name: "logit_bias",
    least: -100.0,
    above_least: false,
    most: 100.0,
    rule: "must be from -100 to 100",
};

/// All settings in this module.
pub const ALL: [NumberSetting; 7] = [
    TEMPERATURE,
    TOP_P,
    MIN_P,
    REPETITION_PENALTY,
    PRESENCE_PENALTY,
    FREQUENCY_PENALTY,
    LOGIT_BIAS,
];

impl NumberSetting {
    /// Returns true if `value` is valid. NaN and infinities never are.
    pub fn allows(&self, value: f64) -> bool {
        let above = value > self.least || (value == self.least && !self.above_least);
        above && value <= self.most && value.is_finite()
    }

    /// Checks that `value` is in the range.
    ///
    /// # Errors
    /// Returns the setting's name, the value and the rule.
    pub fn check(&self, value: f64) -> Result<(), SettingError> {
        match self.allows(value) {
            true => Ok(()),
            false => Err(SettingError::new(self.name, value, self.rule)),
        }
    }

    /// Parses a value typed by a user.
    ///
    /// # Errors
    /// The text is not a number or out of range: "must be …".
    pub fn parse(&self, text: &str) -> Result<f64, String> {
        match text.parse() {
            Ok(value) if self.allows(value) => Ok(value),
            Ok(_) => Err(self.rule.to_owned()),
            Err(_) => Err("not a number".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_match_the_rule() {
        for setting in ALL {
            let NumberSetting {
                least, most, rule, ..
            } = setting;
            assert_eq!(setting.allows(least), !setting.above_least, "{setting:?}");
            assert_eq!(setting.allows(most), most.is_finite(), "{setting:?}");
            assert!(setting.allows(least + 0.5));
            for wrong in [least - 0.5, most + 0.5, f64::NAN, f64::INFINITY] {
                assert!(!setting.allows(wrong), "{setting:?} allows {wrong}");
            }
            let words = match (setting.above_least, most.is_finite()) {
                (false, true) => format!("must be from {least} to {most}"),
                (true, true) => format!("must be above {least} and at most {most}"),
                (false, false) => format!("must be at least {least} and finite"),
                (true, false) => format!("must be above {least} and finite"),
            };
            assert_eq!(rule, words);
        }
    }

    #[test]
    fn parse_accepts_only_numbers_in_range() {
        assert_eq!(TOP_P.parse("0.5"), Ok(0.5));
        assert_eq!(
            TOP_P.parse("0"),
            Err("must be above 0 and at most 1".into())
        );
        assert_eq!(TOP_P.parse("half"), Err("not a number".into()));
        assert_eq!(
            TEMPERATURE.parse("NaN"),
            Err("must be at least 0 and finite".into())
        );
    }
}
