//! Tokenizes a context and its continuation.

use emberlm_data::{Tokenizer, TokenizerError};

use super::likelihood::Row;

/// The limits of a model's input.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The context length in tokens.
    pub seq_len: usize,
    /// The vocabulary size.
    pub vocab_size: usize,
}

/// Tokenizes a context and its continuation together, as lm-evaluation-harness does. Trailing whitespace of
/// the context belongs to the continuation. The tokens after the first `n` of the joint text are the
/// continuation, where `n` is the number of tokens of the context by itself. Adds no special tokens.
pub fn joint(
    tokenizer: &Tokenizer,
    context: &str,
    continuation: &str,
    limits: Limits,
) -> Result<Row, String> {
    let (context, continuation) = joint_ids(tokenizer, context, continuation)?;
    row(context, continuation, limits)
}

fn joint_ids(
    tokenizer: &Tokenizer,
    context: &str,
    continuation: &str,
) -> Result<(Vec<u32>, Vec<u32>), String> {
    let text = format!("{context}{continuation}");
    let context = tokenizer.encode(trim_end(context)).map_err(refused)?;
    let mut whole = tokenizer.encode(&text).map_err(refused)?;
    let continuation = whole.split_off(context.len().min(whole.len()));
    Ok((context, continuation))
}

/// The special tokens of a tokenizer that begin texts, as lm-evaluation-harness adds them by default.
#[derive(Debug)]
pub struct Beginning {
    /// The tokens before every text, such as LLaMA's `<s>`.
    before: Vec<u32>,
    /// The context of a text without one: the first of `before`, otherwise end-of-text.
    prefix: Option<u32>,
}

impl Beginning {
    /// The tokens of a tokenizer.
    pub fn of(tokenizer: &Tokenizer) -> Self {
        let before = tokenizer.beginning();
        let prefix = before.first().copied().or(tokenizer.end_of_text());
        Self { before, prefix }
    }

    /// The context of a text without one.
    pub fn prefix(&self) -> Result<u32, String> {
        self.prefix.ok_or_else(|| {
            "the tokenizer has no special token that could be the context of a text without one"
                .to_owned()
        })
    }
}

/// As [`joint`], with the tokens that begin a text. An empty context is the prefix token.
pub fn conditional(
    tokenizer: &Tokenizer,
    beginning: &Beginning,
    context: &str,
    continuation: &str,
    limits: Limits,
) -> Result<Row, String> {
    if context.is_empty() {
        let prefix = beginning.prefix()?;
        let mut ids = tokenizer.encode(continuation).map_err(refused)?;
        if ids.first() == Some(&prefix) {
            ids.remove(0);
        }
        return row(vec![prefix], ids, limits);
    }
    let (ids, continuation) = joint_ids(tokenizer, context, continuation)?;
    row([&beginning.before[..], &ids].concat(), continuation, limits)
}

/// Tokenizes a text whose tokens are all predicted, in windows that do not overlap. The first one begins with the prefix token,
/// the others with the token before them; the last one is filled up with context on the left.
pub fn rolling(
    tokenizer: &Tokenizer,
    beginning: &Beginning,
    text: &str,
    limits: Limits,
) -> Result<Vec<Row>, String> {
    let prefix = beginning.prefix()?;
    let ids = tokenizer.encode(text).map_err(refused)?;
    let ids = [&[prefix], &beginning.before[..], &ids].concat();
    let mut rows = Vec::new();
    let mut end = 1;
    while end < ids.len() {
        let predicted = limits.seq_len.min(ids.len() - end);
        end += predicted;
        let start = end.saturating_sub(limits.seq_len + 1);
        let (context, continuation) = ids[start..end].split_at(end - start - predicted);
        rows.push(row(context.to_vec(), continuation.to_vec(), limits)?);
    }
    match rows.is_empty() {
        true => Err("the tokenizer has no token for the text".to_owned()),
        false => Ok(rows),
    }
}

/// Tokenizes a prompt and keeps its last `most` tokens.
pub fn prompt(
    tokenizer: &Tokenizer,
    beginning: &Beginning,
    text: &str,
    most: usize,
    limits: Limits,
) -> Result<Vec<u32>, String> {
    let mut ids = beginning.before.clone();
    ids.extend(tokenizer.encode(text).map_err(refused)?);
    if ids.is_empty() {
        ids.push(beginning.prefix()?);
    }
    check_ids(&ids, limits.vocab_size)?;
    let from = ids.len().saturating_sub(most);
    Ok(ids.split_off(from))
}

/// Rejects an id that the model does not have.
pub fn check_ids(ids: &[u32], vocab_size: usize) -> Result<(), String> {
    match ids.iter().find(|&&id| id as usize >= vocab_size) {
        Some(id) => Err(format!(
            "its text has the token id {id}, but the model knows {vocab_size}"
        )),
        None => Ok(()),
    }
}

/// Tokenizes a context and its continuation separately, as llm.c does.
pub fn separate(
    tokenizer: &Tokenizer,
    context: &str,
    continuation: &str,
    limits: Limits,
) -> Result<Row, String> {
    let context = tokenizer.encode(context).map_err(refused)?;
    let continuation = tokenizer.encode(continuation).map_err(refused)?;
    row(context, continuation, limits)
}

/// Keeps the last `seq_len + 1` tokens. All but the last are input, and those of the continuation are
/// targets.
fn row(context: Vec<u32>, continuation: Vec<u32>, limits: Limits) -> Result<Row, String> {
    let Limits {
        seq_len,
        vocab_size,
    } = limits;
    let predicted = continuation.len();
    if context.is_empty() || predicted == 0 {
        let part = if predicted == 0 {
            "what follows"
        } else {
            "the context"
        };
        return Err(format!("the tokenizer has no token for {part}"));
    }
    if predicted > seq_len {
        return Err(format!(
            "a continuation of {predicted} tokens is longer than the context of {seq_len}"
        ));
    }
    let mut tokens = context;
    tokens.extend(continuation);
    check_ids(&tokens, vocab_size)?;
    let from = tokens.len().saturating_sub(seq_len + 1);
    tokens.drain(..from);
    Ok(Row {
        tokens,
        predicted,
        is_cut: from > 0,
    })
}

fn refused(error: TokenizerError) -> String {
    error.to_string()
}

/// Python's `str.isspace`: Unicode white space and the four ASCII separators.
pub fn is_blank(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

fn trim_end(text: &str) -> &str {
    text.trim_end_matches(is_blank)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A vocabulary of the space (0), a (1), b (2) and c (3).
    fn chars() -> Tokenizer {
        Tokenizer::char_from_alphabet(" abc".chars()).unwrap()
    }

    const LIMITS: Limits = Limits {
        seq_len: 4,
        vocab_size: 4,
    };

    #[test]
    fn a_separating_space_belongs_to_the_continuation() {
        for (context, continuation) in [("ab ", "c"), ("ab", " c")] {
            let row = joint(&chars(), context, continuation, LIMITS).unwrap();
            assert_eq!((row.tokens, row.predicted), (vec![1, 2, 0, 3], 2));
        }
        let row = separate(&chars(), "ab ", "c", LIMITS).unwrap();
        assert_eq!(row.predicted, 1);
    }

    #[test]
    fn a_long_context_is_truncated_at_the_start() {
        let row = joint(&chars(), "abcabc", " a", LIMITS).unwrap();
        assert_eq!((row.tokens, row.predicted), (vec![1, 2, 3, 0, 1], 2));
        assert!(row.is_cut);
        assert!(!joint(&chars(), "abc", " a", LIMITS).unwrap().is_cut);
    }

    #[test]
    fn unscorable_texts_are_rejected() {
        let refusal = |context, continuation, limits| {
            joint(&chars(), context, continuation, limits).unwrap_err()
        };
        assert!(refusal("", "a", LIMITS).contains("no token for the context"));
        assert!(refusal("a", "", LIMITS).contains("no token for what follows"));
        assert!(refusal("a", "bbbbb", LIMITS).contains("5 tokens is longer than the context of 4"));
        assert!(refusal("a", "x", LIMITS).contains('x'));
        let small = Limits {
            vocab_size: 3,
            ..LIMITS
        };
        assert!(refusal("a", "c", small).contains("token id 3, but the model knows 3"));
    }
}
