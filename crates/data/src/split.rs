//! The two splits of a dataset.

emberlm_system::named! {
    /// A split of a dataset. Names are lower case: `train`, `val`.
    #[derive(PartialOrd, Ord, Hash)]
    pub enum Split {
        /// The training split.
        Train = "train",
        /// The validation split.
        Val = "val",
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
