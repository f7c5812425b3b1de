//! Limits the memory of the lexers of constrained sequences, which grow during generation.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The most bytes by which the lexer of one sequence may grow.
pub(crate) const MAX_GROWTH: usize = 32 << 20;
/// The most bytes of the lexers of all sequences that share a vocabulary.
const MAX_TOTAL: usize = 512 << 20;

/// The memory of the lexers of all sequences that share a vocabulary.
#[derive(Debug, Default)]
pub struct LexerMemory {
    held: AtomicUsize,
}

/// The memory of one sequence's lexer, released on drop.
#[derive(Debug)]
pub struct HeldMemory {
    of: Arc<LexerMemory>,
    start: usize,
    held: usize,
}

impl LexerMemory {
    /// Registers `bytes` for a new sequence.
    ///
    /// # Errors
    /// All sequences together would exceed the limit.
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
    /// Updates the size of this sequence's lexer.
    ///
    /// # Errors
    /// The sequence, or all sequences together, exceed a limit.
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
    fn lexer_memory_is_limited_per_sequence_and_in_total() {
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
