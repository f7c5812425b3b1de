//! Types with names: their display and their parsing.

use std::{fmt, str::FromStr};

use crate::{DataError, Format, Packing, Split, SplitRule};

macro_rules! named {
    ($($type:ident: $unknown:ident,)*) => {$(
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }

        impl FromStr for $type {
            type Err = DataError;

            fn from_str(name: &str) -> Result<Self, DataError> {
                let named = Self::ALL.into_iter().find(|one| one.name() == name);
                named.ok_or_else(|| DataError::$unknown {
                    name: name.to_owned(),
                })
            }
        }
    )*};
}

named! {
    Format: UnknownFormat,
    Packing: UnknownPacking,
    Split: UnknownSplit,
    SplitRule: UnknownSplitRule,
}
