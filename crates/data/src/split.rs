//! The two splits of a dataset.

use std::fmt;
use std::str::FromStr;

use crate::DataError;

/// A split of a dataset. Names are lower case: `train`, `val`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Split {
    /// The training split.
    Train,
    /// The validation split.
    Val,
}

impl Split {
    /// Both splits.
    pub const ALL: [Self; 2] = [Self::Train, Self::Val];

    /// The name that [`FromStr`] parses.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Val => "val",
        }
    }
}

impl fmt::Display for Split {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Split {
    type Err = DataError;

    fn from_str(name: &str) -> Result<Self, DataError> {
        Self::ALL
            .into_iter()
            .find(|split| split.name() == name)
            .ok_or_else(|| DataError::UnknownSplit {
                name: name.to_owned(),
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_and_unknown_names_are_rejected() {
        for split in Split::ALL {
            assert_eq!(split.to_string().parse::<Split>().unwrap(), split);
        }
        let message = "test".parse::<Split>().unwrap_err().to_string();
        assert_eq!(message, "unknown split `test`: choose train or val");
    }
}
