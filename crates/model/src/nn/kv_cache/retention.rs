//! Selection of the tokens whose keys and values a layer retains.
//!
//! ```text
//! token    0 … head │ head … head + dropped │ … len - rollback - window … len
//! held     always   │ no                    │ yes
//! row      0 … head │                       │ head … rows
//! ```
//!
//! No later query attends to a dropped token, and the mask depends only on the distance between query and key, so
//! attention over the remaining rows gives the same result as over all tokens. The gap and the head are multiples of
//! [`KEY_BLOCK`]: flex then sums the same keys in the same groups, and the output is bit-identical.

use emberlm_kernels::{KEY_BLOCK, Reach};

use crate::nn::attention::{AttentionConfig, Mechanism};

/// Number of newest tokens that [`super::KvCache::truncate`] can always remove from a cache of keys and values.
pub const ROLLBACK_TOKENS: usize = 64;

/// Tokens that a layer must retain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Retention {
    /// All tokens.
    All,
    /// The tokens of a window.
    Window {
        /// Number of leading tokens that are never dropped: the global tokens, rounded up to [`KEY_BLOCK`].
        head: usize,
        /// Number of newest tokens that a query attends to, including its own.
        tokens: usize,
    },
}

impl Retention {
    pub fn of(reach: Reach) -> Self {
        match reach {
            Reach::Causal | Reach::Local { .. } | Reach::Full => Self::All,
            Reach::Window {
                tokens,
                global_tokens,
            } => match global_tokens.checked_next_multiple_of(KEY_BLOCK) {
                Some(head) => Self::Window {
                    head,
                    tokens: tokens.max(1),
                },
                None => Self::All,
            },
        }
    }

    /// Rows needed for a sequence of at most `capacity` tokens.
    pub fn rows(self, capacity: usize) -> usize {
        match self {
            Self::All => capacity,
            Self::Window { head, tokens } => [tokens, ROLLBACK_TOKENS, KEY_BLOCK]
                .into_iter()
                .fold(head, usize::saturating_add)
                .min(capacity),
        }
    }

    /// Number of tokens after the head that no later query attends to, even if the newest [`ROLLBACK_TOKENS`] of `len`
    /// tokens are removed.
    pub fn droppable(self, len: usize) -> usize {
        match self {
            Self::All => 0,
            Self::Window { head, tokens } => {
                // The query after `len - rollback` tokens attends to its own token and the `tokens - 1` before it.
                let unreachable = len
                    .saturating_sub(ROLLBACK_TOKENS)
                    .saturating_sub(tokens - 1);
                let unreachable = unreachable.saturating_sub(head);
                unreachable - unreachable % KEY_BLOCK
            }
        }
    }

    /// Returns true if a sequence can be continued from its first `len` tokens although `dropped` tokens after the head
    /// are no longer held.
    pub fn continues(self, len: usize, dropped: usize) -> bool {
        match self {
            Self::All => true,
            Self::Window { head, tokens } => {
                dropped == 0 || len <= head || head + dropped < len.saturating_sub(tokens - 1) + 1
            }
        }
    }

    /// Number of leading tokens that are never dropped.
    pub fn head(self) -> usize {
        match self {
            Self::All => 0,
            Self::Window { head, .. } => head,
        }
    }
}

/// Number of tokens whose keys and values a block retains for a sequence of `capacity` tokens; 0 without keys and values.
pub(crate) fn held_tokens(attention: &AttentionConfig, capacity: usize) -> usize {
    match attention.mechanism {
        Mechanism::Softmax { reach, .. } => Retention::of(reach).rows(capacity),
        Mechanism::Linear { .. } | Mechanism::Delta(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: usize = 100;

    fn window(global_tokens: usize) -> Retention {
        Retention::of(Reach::Window {
            tokens: WINDOW,
            global_tokens,
        })
    }

    #[test]
    fn dropped_tokens_are_visible_to_no_later_query() {
        for global_tokens in [0, 3] {
            let retention = window(global_tokens);
            for len in 0..5000 {
                let dropped = retention.droppable(len);
                let first_held = retention.head() + dropped;
                let query = len.saturating_sub(ROLLBACK_TOKENS);
                let first_visible = (query + 1).saturating_sub(WINDOW);
                assert!(dropped == 0 || first_held <= first_visible, "{len}");
                // The remaining tokens fit.
                assert!(len - dropped <= retention.rows(usize::MAX), "{len}");
                assert!(retention.continues(query, dropped), "{len}");
            }
        }
    }

    #[test]
    fn sequence_is_not_continued_without_its_last_window() {
        let retention = window(0);
        let dropped = retention.droppable(2000);
        let shortest = dropped + WINDOW - 1;
        assert!(retention.continues(shortest, dropped));
        assert!(!retention.continues(shortest - 1, dropped));
        assert!(retention.continues(0, dropped));
        let with_head = window(3);
        assert!(with_head.continues(3, with_head.droppable(2000)));
        assert!(with_head.continues(512, 512) && !with_head.continues(513, 512));
    }

    #[test]
    fn short_sequence_is_retained_entirely() {
        assert_eq!(window(0).rows(50), 50);
        assert_eq!(
            window(0).rows(100_000),
            WINDOW + ROLLBACK_TOKENS + KEY_BLOCK
        );
        assert_eq!(Retention::of(Reach::Causal).rows(100_000), 100_000);
    }
}
