//! The keys that a query sees.

/// The reach of an attention.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// The query's own key and every earlier one.
    #[default]
    Causal,
    /// The newest keys and the first ones.
    Window {
        /// The newest keys that a query sees, its own among them.
        tokens: usize,
        /// The first keys of a sequence or document, which every later query sees (Beltagy et al. 2020, "Longformer").
        global_tokens: usize,
    },
    /// Every key, before and after the query's own.
    Full,
}
