//! Enums whose variants have names.

/// Declares an enum whose variants have names, a row each.
///
/// ```
/// emberlm_system::named! {
///     /// A color.
///     #[derive(Default)]
///     pub enum Color {
///         /// The color of embers.
///         #[default]
///         Red = "red",
///         /// The color of leaves.
///         Green = "green",
///     }
/// }
/// assert_eq!(Color::ALL, [Color::Red, Color::Green]);
/// assert_eq!(Color::Green.name(), "green");
/// ```
#[macro_export]
macro_rules! named {
    (
        $(#[$($meta:tt)*])*
        $vis:vis enum $enum:ident { $( $(#[$($variant_meta:tt)*])* $variant:ident = $name:expr, )+ }
    ) => {
        $(#[$($meta)*])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $vis enum $enum {
            $( $(#[$($variant_meta)*])* $variant, )+
        }

        #[allow(dead_code, reason = "not every program lists the variants")]
        impl $enum {
            /// Every variant, in the order of their declaration.
            pub const ALL: [Self; [$(Self::$variant),+].len()] = [$(Self::$variant),+];

            /// The name of the variant.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }
        }
    };
}
