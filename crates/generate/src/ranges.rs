//! Ranges of numbers, defined once for the engine, the command line, the HTTP API and its schema.

use crate::error::SettingError;

/// A range of finite numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NumberRange {
    /// The lower bound.
    pub least: f64,
    /// True if the lower bound itself is excluded.
    pub above_least: bool,
    /// The inclusive upper bound; infinite if there is none.
    pub most: f64,
    /// True if only whole numbers are valid.
    pub is_whole: bool,
}

/// The range of numbers that are added to the logit of a token.
pub const LOGIT_BIAS: NumberRange = NumberRange::at_least(-100.0).to(100.0);

impl NumberRange {
    /// The whole numbers of 32 bits from 0.
    pub const COUNT: Self = Self {
        is_whole: true,
        ..Self::at_least(0.0).to(u32::MAX as f64)
    };

    /// The numbers from `least`.
    pub const fn at_least(least: f64) -> Self {
        Self {
            least,
            above_least: false,
            most: f64::INFINITY,
            is_whole: false,
        }
    }

    /// The numbers above `bound`.
    pub const fn above(bound: f64) -> Self {
        Self {
            above_least: true,
            ..Self::at_least(bound)
        }
    }

    /// This range up to `most`, inclusive.
    pub const fn to(self, most: f64) -> Self {
        Self { most, ..self }
    }

    /// Returns true if `value` is valid. NaN and infinities never are.
    pub fn allows(&self, value: f64) -> bool {
        let above = value > self.least || (value == self.least && !self.above_least);
        let whole = !self.is_whole || value.fract() == 0.0;
        above && whole && value <= self.most && value.is_finite()
    }

    /// The rule in words: "must be …".
    pub fn rule(&self) -> String {
        let Self { least, most, .. } = self;
        match (self.above_least, most.is_finite()) {
            _ if self.is_whole => format!("must be a whole number, {least} or more"),
            (false, true) => format!("must be from {least} to {most}"),
            (true, true) => format!("must be above {least} and at most {most}"),
            (false, false) => format!("must be at least {least} and finite"),
            (true, false) => format!("must be above {least} and finite"),
        }
    }

    /// Checks that the `value` of the setting `name` is in the range.
    ///
    /// # Errors
    /// Returns the setting's name, the value and the rule.
    pub fn check(&self, name: &'static str, value: f64) -> Result<(), SettingError> {
        match self.allows(value) {
            true => Ok(()),
            false => Err(SettingError::new(name, value, self.rule())),
        }
    }

    /// Parses a value typed by a user.
    ///
    /// # Errors
    /// The text is not a number or out of range: "must be …".
    pub fn parse(&self, text: &str) -> Result<f64, String> {
        match text.parse() {
            _ if self.is_whole => {
                let number = text.parse::<u32>().map(f64::from);
                number.map_err(|_| "not a whole number".to_owned())
            }
            Ok(value) if self.allows(value) => Ok(value),
            Ok(_) => Err(self.rule()),
            Err(_) => Err("not a number".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROBABILITY: NumberRange = NumberRange::above(0.0).to(1.0);

    #[test]
    fn bounds_match_the_rule() {
        for (range, words) in [
            (LOGIT_BIAS, "must be from -100 to 100"),
            (PROBABILITY, "must be above 0 and at most 1"),
            (NumberRange::at_least(0.0), "must be at least 0 and finite"),
            (NumberRange::above(0.0), "must be above 0 and finite"),
        ] {
            let NumberRange { least, most, .. } = range;
            assert_eq!(range.allows(least), !range.above_least, "{range:?}");
            assert_eq!(range.allows(most), most.is_finite(), "{range:?}");
            assert!(range.allows(least + 0.5));
            for wrong in [least - 0.5, most + 0.5, f64::NAN, f64::INFINITY] {
                assert!(!range.allows(wrong), "{range:?} allows {wrong}");
            }
            assert_eq!(range.rule(), words);
        }
        let count = NumberRange::COUNT;
        assert!(count.allows(0.0) && !count.allows(-1.0) && !count.allows(0.5));
        assert_eq!(count.rule(), "must be a whole number, 0 or more");
    }

    #[test]
    fn parse_accepts_only_numbers_in_range() {
        assert_eq!(PROBABILITY.parse("0.5"), Ok(0.5));
        assert_eq!(
            PROBABILITY.parse("0"),
            Err("must be above 0 and at most 1".into())
        );
        assert_eq!(PROBABILITY.parse("half"), Err("not a number".into()));
        assert_eq!(
            NumberRange::at_least(0.0).parse("NaN"),
            Err("must be at least 0 and finite".into())
        );
        assert_eq!(NumberRange::COUNT.parse("7"), Ok(7.0));
        assert_eq!(
            NumberRange::COUNT.parse("7.5"),
            Err("not a whole number".into())
        );
    }
}
