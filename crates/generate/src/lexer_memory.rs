//! Bounds the memory of the lexers of constrained sequences, which grow as texts are generated.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes one sequence may add to its lexer.
pub(crate) const MAX_GROWTH: usize = 32 << 20;
/// Bytes of the lexers of all sequences of a vocabulary.
const MAX_TOTAL: usize = 512 << 20;

/// Memory of the lexers of all sequences of a vocabulary.
#[derive(Debug, Default)]
pub struct LexerMemory {
    held: AtomicUsize,
}

/// Memory of one sequence's lexer; given back when it is dropped.
#[derive(Debug)]
pub struct HeldMemory {
    of: Arc<LexerMemory>,
    start: usize,
    held: usize,
}

impl LexerMemory {
    /// Counts `bytes` for a new sequence.
    ///
    /// # Errors
    /// All sequences together would hold too much.
    pub fn hold(this: &Arc<Self>, bytes: usize) -> Result<HeldMemory, String> {
        let mut held = HeldMemory {
            of: Arc::clone(this),
            start: bytes,
            held: 0,
        };
        held.resize(bytes)?;
        Ok(held)
    }
}

impl HeldMemory {
    /// Counts `bytes` for the sequence in place of those before.
    ///
    /// # Errors
    /// The sequence, or all together, would hold too much.
    pub fn resize(&mut self, bytes: usize) -> Result<(), String> {
        if bytes.saturating_sub(self.start) > MAX_GROWTH {
            return Err(format!(
                "the grammar needs more than {MAX_GROWTH} bytes for this text"
            ));
        }
        let before = self.of.held.fetch_add(bytes, Ordering::Relaxed);
        self.of.held.fetch_sub(self.held, Ordering::Relaxed);
        let all = before - self.held + bytes;
        self.held = bytes;
        match all > MAX_TOTAL {
            true => Err(format!(
                "the grammars of all texts that are being generated need more than {MAX_TOTAL} bytes"
            )),
            false => Ok(()),
        }
    }
}

impl Drop for HeldMemory {
    fn drop(&mut self) {
        self.of.held.fetch_sub(self.held, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_are_bounded_by_themselves_and_together_and_give_back_what_they_held() {
        let memory = Arc::default();
        let mut one = LexerMemory::hold(&memory, 1000).unwrap();
        one.resize(1000 + MAX_GROWTH).unwrap();
        assert!(one.resize(1001 + MAX_GROWTH).is_err());
        let mut others = Vec::new();
        while let Ok(other) = LexerMemory::hold(&memory, MAX_GROWTH) {
            others.push(other);
            assert!(others.len() < 100);
        }
        assert_eq!(others.len(), MAX_TOTAL / MAX_GROWTH - 2);
        drop(others);
        assert_eq!(memory.held.load(Ordering::Relaxed), 1000 + MAX_GROWTH);
        drop(one);
        assert_eq!(memory.held.load(Ordering::Relaxed), 0);
    }
}
