//! The tests of a model: a prompt, and tokens that are decoded one after the other.

use emberlm_generate::PROMPT_CHUNK;

use super::BenchArgs;
use crate::error::CliError;

/// Default tokens of a prompt, as in `llama-bench`.
const PROMPT: usize = 512;
/// Default tokens to decode, as in `llama-bench`.
const DECODE: usize = 128;

/// The sizes of a model's tests, which fit its context. Each test begins with an empty cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tests {
    /// Tokens of the prompt; 0 without this test.
    pub prompt: usize,
    /// Tokens to decode; 0 without this test.
    pub decode: usize,
    /// Tokens in the cache before decoding; a decoder cannot begin without any, so 0 means one.
    pub depth: usize,
    /// Concurrent sequences.
    pub batch: usize,
    /// Measured repetitions.
    pub repeat: usize,
}

impl Tests {
    /// The tests for a model with a context of `context` tokens.
    ///
    /// # Errors
    /// A size that was asked for exceeds the context.
    pub fn of(args: &BenchArgs, context: usize) -> Result<Self, CliError> {
        let before = args.depth.max(1);
        let left = context.saturating_sub(before);
        let prompt = args.prompt.unwrap_or(PROMPT.min(context));
        // At least one, so that a depth that fills the context is an error and does not leave the test out.
        let decode = args.decode.unwrap_or(DECODE.min(left).max(1));
        if prompt > context {
            return Err(CliError::usage(format!(
                "a prompt of {prompt} tokens exceeds the context of {context}"
            ))
            .hint(format!("take at most --prompt-tokens {context}")));
        }
        if decode > left && decode > 0 {
            let error = CliError::usage(format!(
                "{before} + {decode} tokens exceed the context of {context}"
            ));
            return Err(match left {
                0 => error.hint("take a smaller --depth, or leave the test out: --decode 0"),
                _ => error.hint(format!("take at most --decode {left}")),
            });
        }
        Ok(Self {
            prompt,
            decode,
            depth: args.depth,
            batch: args.batch,
            repeat: args.repeat,
        })
    }

    /// Tokens in the cache before the first decoded token.
    pub fn before(&self) -> usize {
        self.depth.max(1)
    }

    /// The largest number of tokens of a sequence.
    pub fn capacity(&self) -> usize {
        let decoding = match self.decode {
            0 => 0,
            decode => self.before() + decode,
        };
        self.prompt.max(decoding)
    }

    /// Tokens of the largest forward pass.
    pub fn longest_pass(&self) -> usize {
        let depth = if self.decode > 0 { self.before() } else { 0 };
        let pass = self.prompt.max(depth);
        match self.batch {
            1 => pass.min(PROMPT_CHUNK),
            // Sequences are read together.
            batch => pass.saturating_mul(batch),
        }
    }

    /// The prompt's name: `pp512`, or `pp512 × 4` of four sequences.
    pub fn prompt_name(&self) -> String {
        self.with_batch(format!("pp{}", self.prompt))
    }

    /// The name of decoding: `tg128`, or `tg128 @ d1024` behind 1,024 tokens.
    pub fn decode_name(&self) -> String {
        self.with_batch(match self.depth {
            0 => format!("tg{}", self.decode),
            depth => format!("tg{} @ d{depth}", self.decode),
        })
    }

    fn with_batch(&self, name: String) -> String {
        match self.batch {
            1 => name,
            batch => format!("{name} × {batch}"),
        }
    }
}
