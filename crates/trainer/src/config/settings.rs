//! Tables of settings: a row has a setting's documentation, key, type, default and rules.

use documented::DocumentedFields;
use serde::Serialize;

use crate::error::TrainError;

/// A table of settings, which [`settings!`] declares.
pub(super) trait Settings: DocumentedFields + Default + Serialize {
    /// The table's path.
    const TABLE: &'static str;

    /// Checks the rules of every setting. Errors name `table`.
    ///
    /// # Errors
    /// Returns the first violated rule.
    fn check_rules_in(&self, table: &'static str) -> Result<(), TrainError>;

    /// Checks the rules of every setting.
    ///
    /// # Errors
    /// Returns the first violated rule.
    fn check_rules(&self) -> Result<(), TrainError> {
        self.check_rules_in(Self::TABLE)
    }
}

/// Declares tables with a row for each setting: documentation, key, type and default, then the rules
/// ([`Rule`](super::check::Rule)) that its values follow, in the order in which they are checked.
///
/// Each struct has its settings as fields. It is read from and written to TOML, and an unknown key is an error.
macro_rules! settings {
    ($(
        $(#[$($meta:tt)*])*
        pub struct $name:ident in $table:literal {
            $( $(#[$($of_field:tt)*])* pub $field:ident: $type:ty = $default:expr $(, $rule:expr)*; )*
        }
    )+) => { $(
        $(#[$($meta)*])*
        #[derive(
            Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize, documented::DocumentedFields,
        )]
        #[serde(default, deny_unknown_fields)]
        pub struct $name {
            $( $(#[$($of_field)*])* pub $field: $type, )*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $( $field: $default, )* }
            }
        }

        impl $crate::config::settings::Settings for $name {
            const TABLE: &'static str = $table;

            fn check_rules_in(&self, _table: &'static str) -> Result<(), $crate::error::TrainError> {
                $( $( $crate::config::check::apply(&$rule, _table, stringify!($field), &self.$field)?; )* )*
                Ok(())
            }
        }
    )+ };
}
pub(super) use settings;
