//! The two splits of a dataset.

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

    /// The name that [`FromStr`](std::str::FromStr) parses.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Val => "val",
        }
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
