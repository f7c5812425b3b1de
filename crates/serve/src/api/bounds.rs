//! Upper bounds of the memory of requests.
//!
//! That of a body's values is added to the request's account before the body is parsed, and that of what is kept of its answers
//! before the request is passed to the model.

use super::answers::AnswerRequest;

/// Bytes per prompt token: its id in the request, in the slot and in the token counts, and its text.
pub(crate) const PROMPT_TOKEN: usize = 48;
/// Bytes per token of an answer, including its serialized form.
const TOKEN: usize = 64;
/// Additional bytes per token if log-probabilities are requested, and per alternative.
const LOGPROBS: usize = 400;
const ALTERNATIVE: usize = 256;
/// Tokens of a streamed answer that may be buffered.
const STREAMED: usize = 96;
/// Bytes per token each time that a stream repeats the text.
const REPEATED: usize = 32;
/// Bytes per token that penalties count.
const COUNTED: usize = 20;
/// Bytes per token that is excluded at first, and while its logit is changed.
const DELAYED: usize = 48;
/// Additional bytes per answer.
const SAMPLE: usize = 4 << 10;
/// Bytes per byte of a stop string, shared by the answers: its matching table and the held-back text.
const STOP_BYTE: usize = 10;

/// Bytes per value in a list, which may have room for twice as many, and per value in an object, with its name.
const LISTED: usize = 144;
const NAMED: usize = 240;
/// Additional bytes per list or object: each has room for four values at least.
const NESTED: usize = 512;
/// Bytes per byte of a text while it is encoded.
const ENCODED: usize = 64;

/// An upper bound of the memory that the values of a JSON text take when they are parsed, in bytes.
pub(crate) fn of_json(text: &[u8]) -> usize {
    let (mut listed, mut named, mut nested) = (1_usize, 0_usize, 0_usize);
    // Whether the lists and objects around a value are objects, innermost last. Deeper ones are not parsed.
    let mut objects = 0_u128;
    let mut is_text = false;
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => is_text = !is_text,
            b'\\' if is_text => drop(bytes.next()),
            _ if is_text => {}
            b'[' | b'{' => {
                objects = objects << 1 | u128::from(*byte == b'{');
                nested += 1;
            }
            b']' | b'}' => objects >>= 1,
            b',' if objects & 1 == 1 => named += 1,
            b',' => listed += 1,
            _ => {}
        }
    }
    2 * text.len() + listed * LISTED + named * NAMED + nested * (NESTED + NAMED)
}

/// An upper bound of the memory that encoding texts of `bytes` takes, one after the other.
pub(crate) fn of_encoding(longest: usize, bytes: usize) -> usize {
    let ids = bytes.saturating_mul(size_of::<u32>());
    longest.saturating_mul(ENCODED).saturating_add(ids)
}

/// The parts of a request's answers that are kept in memory.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Kept {
    /// True if the answers are streamed.
    pub streams: bool,
    /// True if each answer starts with the prompt's text.
    pub echoes: bool,
    /// The number of times that a stream repeats the whole text, with its log-probabilities, at the end.
    pub repeats: usize,
    /// Bytes of the request that are echoed in the response.
    pub returned: usize,
}

impl Kept {
    /// An upper bound of the memory for the answers to a prompt, in bytes.
    pub fn bytes(
        self,
        answer_request: &AnswerRequest,
        max_new_tokens: usize,
        vocab_size: usize,
    ) -> usize {
        let chooser = &answer_request.chooser;
        let tokens = match self.streams && self.repeats == 0 {
            true => max_new_tokens.min(STREAMED),
            false => max_new_tokens,
        };
        let logprobs = |count: Option<usize>| {
            count.map_or(0, |count| LOGPROBS.saturating_add(count * ALTERNATIVE))
        };
        let token = TOKEN
            + self.repeats * REPEATED
            + logprobs(chooser.top_logprobs).saturating_mul(self.repeats.max(1));
        let prompt_token = logprobs(answer_request.prompt_logprobs);
        // Modified logits need a copy of the vocabulary's logits in f32.
        let changed = !chooser.logit_bias.is_empty()
            || chooser.constraint.is_some()
            || !chooser.delayed.is_empty()
            || !chooser.penalties.are_none();
        let counted = match chooser.penalties.are_none() {
            true => 0,
            false => vocab_size.min(answer_request.prompt.len().saturating_add(max_new_tokens)),
        };
        let sample = SAMPLE
            + counted * COUNTED
            + tokens.saturating_mul(token)
            + answer_request.prompt.len().saturating_mul(prompt_token)
            + chooser.logit_bias.len() * 16
            + chooser.delayed.len() * DELAYED
            + if changed { 4 * vocab_size } else { 0 }
            + if self.echoes {
                4 * answer_request.prompt.len() * 8
            } else {
                0
            };
        let shared = self.returned
            + answer_request.prompt.len() * PROMPT_TOKEN
            + answer_request.stop_tokens.len() * 2 * size_of::<u32>()
            + answer_request.stops.pattern_bytes() * STOP_BYTE;
        shared.saturating_add(answer_request.samples.saturating_mul(sample))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// The memory of a parsed value by the sizes of its parts.
    fn held(value: &Value) -> usize {
        let own = size_of::<Value>();
        own + match value {
            Value::String(text) => text.capacity(),
            Value::Array(items) => {
                let spare = (items.capacity() - items.len()) * own;
                spare + items.iter().map(held).sum::<usize>()
            }
            Value::Object(fields) => {
                let entry = size_of::<(u64, String)>();
                let room = fields.len().next_power_of_two().max(4) - fields.len();
                let of =
                    |(name, value): (&String, &Value)| entry + 8 + name.capacity() + held(value);
                room * (entry + own + 8) + fields.iter().map(of).sum::<usize>()
            }
            _ => 0,
        }
    }

    #[test]
    fn the_bound_of_a_text_holds_for_its_values() {
        let texts = [
            format!("[{}0]", "[0],".repeat(1000)),
            format!("[{}0]", "{},".repeat(1000)),
            format!("[{}0]", "{\"a\":[]},".repeat(1000)),
            format!("{{\"a\":[{}1]}}", "1,".repeat(1025)),
            format!(
                "{{{}\"z\":1}}",
                (0..1025)
                    .map(|n| format!("\"{n}\":{n},"))
                    .collect::<String>()
            ),
            json!({ "prompt": "a, [b] \\\" {c}".repeat(100), "stop": ["\\", "\"", ","] })
                .to_string(),
            "5".to_owned(),
        ];
        for text in texts {
            let value: Value = serde_json::from_str(&text).unwrap();
            let (held, bound) = (held(&value), of_json(text.as_bytes()));
            let start = &text[..text.len().min(40)];
            assert!(
                held <= bound,
                "{start}: {held} bytes, and the bound is {bound}"
            );
            assert!(
                bound <= 8 * held + 4096,
                "{start}: {held} bytes, and the bound is {bound}"
            );
        }
        // Commas and brackets in a text are not values.
        let text = json!({ "input": "[,{".repeat(10_000) }).to_string();
        assert!(of_json(text.as_bytes()) < 3 * text.len());
    }
}
