//! Tables whose settings depend on their `kind`: a row has a kind's description, name and settings.

/// Declares a table with kinds: its configuration, the enum of its kinds and the documentation of `kind`, then a row for
/// each kind: description, name in configurations, and the variant with its settings
/// ([`Settings`](super::settings::Settings)).
macro_rules! kinds {
    (
        $(#[$($meta:tt)*])*
        pub enum $config:ident, $kinds:ident: $docs:literal {
            $( #[doc = $about:literal] $name:literal => $variant:ident($settings:ty), )+
        }
    ) => {
        $(#[$($meta)*])*
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(tag = "kind")]
        pub enum $config {
            $( #[doc = $about] #[serde(rename = $name)] $variant($settings), )+
        }

        #[doc = concat!("The kinds of [`", stringify!($config), "`].")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $kinds {
            $( #[doc = $about] $variant, )+
        }

        impl $kinds {
            /// Every kind.
            pub const ALL: [Self; [$($name),+].len()] = [$( Self::$variant ),+];

            /// The name in configurations.
            pub fn name(self) -> &'static str {
                match self { $( Self::$variant => $name, )+ }
            }

            /// The description, a sentence.
            pub fn about(self) -> &'static str {
                match self { $( Self::$variant => $about.trim_ascii(), )+ }
            }
        }

        /// The kind with default settings.
        impl From<$kinds> for $config {
            fn from(kind: $kinds) -> Self {
                match kind { $( $kinds::$variant => Self::$variant(<$settings>::default()), )+ }
            }
        }

        impl $config {
            /// The tables of the kinds.
            pub(super) const TABLES: &'static [$crate::config::docs::SettingsTable] =
                &[$( $crate::config::docs::SettingsTable::kind::<$settings>($name, $docs) ),+];

            /// The kind without its settings.
            pub fn kind(&self) -> $kinds {
                match self { $( Self::$variant(_) => $kinds::$variant, )+ }
            }

            /// Checks the rules of every setting.
            pub(super) fn check_rules(&self) -> Result<(), $crate::error::TrainError> {
                match self { $( Self::$variant(config) => $crate::config::settings::Settings::check_rules(config), )+ }
            }
        }
    };
}
pub(super) use kinds;
