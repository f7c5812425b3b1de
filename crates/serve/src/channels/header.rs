//! The header of a message in a channel.

use super::ChannelFormat;

/// The longest header in bytes.
const MOST_BYTES: usize = 512;

/// A message's header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Header<'a> {
    /// `None` for the first message of an answer, whose role is part of the prompt.
    pub role: Option<&'a str>,
    pub channel: Option<&'a str>,
    pub recipient: Option<&'a str>,
}

/// The result of reading a header. It is the same for every beginning of a text that is long enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeaderRead<'a> {
    /// A header, and its length with the marker before the message's text.
    Complete(Header<'a>, usize),
    /// The beginning of a header.
    Incomplete,
    /// Another text.
    Malformed,
}

/// The meaning of the next word.
#[derive(Clone, Copy, Debug)]
enum Expected {
    /// Only a recipient: no marker precedes.
    Recipient,
    Role,
    Channel,
    ContentType,
}

impl<'a> HeaderRead<'a> {
    /// Reads the header at the beginning of `text`.
    pub fn new(format: &ChannelFormat, text: &'a str) -> Self {
        let mut header = Header::default();
        let mut expected = Expected::Recipient;
        // Published examples have line breaks between messages.
        let mut rest = text.trim_ascii_start();
        while !rest.is_empty() {
            if let Some(after) = rest.strip_prefix(format.message) {
                return match text.len() - after.len() {
                    length if length <= MOST_BYTES => Self::Complete(header, length),
                    _ => Self::Malformed,
                };
            }
            if let Some(after) = rest.strip_prefix(format.start) {
                (header, expected, rest) = (Header::default(), Expected::Role, after);
            } else if let Some(after) = rest.strip_prefix(format.channel) {
                (expected, rest) = (Expected::Channel, after);
            } else if let Some(after) = rest.strip_prefix(format.constrain) {
                (expected, rest) = (Expected::ContentType, after);
            } else if format.begins_header_marker(rest) {
                break;
            } else {
                let end = rest.find(|c| !is_of_word(c));
                let (word, after) = rest.split_at(end.unwrap_or(rest.len()));
                let recipient = word.strip_prefix(format.to);
                match (recipient, expected) {
                    _ if word.is_empty() => return Self::Malformed,
                    (Some(name), _) => header.recipient = Some(name),
                    (None, Expected::Role) => {
                        header.role = Some(word);
                        expected = Expected::ContentType;
                    }
                    (None, Expected::Channel) => {
                        header.channel = Some(word);
                        expected = Expected::ContentType;
                    }
                    (None, Expected::ContentType) => {}
                    (None, Expected::Recipient) if end.is_none() && format.to.starts_with(word) => {
                    }
                    (None, Expected::Recipient) => return Self::Malformed,
                }
                rest = after;
            }
            rest = rest.trim_start_matches(' ');
        }
        match text.len() <= MOST_BYTES {
            true => Self::Incomplete,
            false => Self::Malformed,
        }
    }
}

impl ChannelFormat {
    /// Returns true if `text` is the beginning of a marker in a header.
    fn begins_header_marker(&self, text: &str) -> bool {
        let markers = [self.start, self.channel, self.constrain, self.message];
        markers.iter().any(|marker| marker.starts_with(text))
    }
}

/// Returns true for a character of roles, channels, recipients and content types.
fn is_of_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '=' | '/' | '+' | ':')
}

#[cfg(test)]
mod tests {
    use super::super::HARMONY;
    use super::*;

    #[test]
    fn headers_have_a_role_a_channel_and_a_recipient() {
        let role = Some("assistant");
        for (text, (role, channel, recipient)) in [
            ("<|message|>", (None, None, None)),
            ("<|channel|>final<|message|>", (None, Some("final"), None)),
            (
                "<|start|>assistant<|channel|>final <|constrain|>json<|message|>",
                (role, Some("final"), None),
            ),
            (
                "<|channel|>commentary to=functions.f-2 <|constrain|>json<|message|>",
                (None, Some("commentary"), Some("functions.f-2")),
            ),
            (
                "<|start|>assistant to=functions.f<|channel|>commentary json<|message|>",
                (role, Some("commentary"), Some("functions.f")),
            ),
            (
                " to=functions.f<|channel|>commentary<|constrain|>json<|message|>",
                (None, Some("commentary"), Some("functions.f")),
            ),
            (
                "<|channel|>analysis to=browser.search code<|message|>",
                (None, Some("analysis"), Some("browser.search")),
            ),
        ] {
            let header = Header {
                role,
                channel,
                recipient,
            };
            let complete = HeaderRead::Complete(header, text.len());
            let longer = format!("{text}to=<|end|>");
            assert_eq!(HeaderRead::new(&HARMONY, &longer), complete, "{text}");
            for end in 0..text.len() {
                let begun = HeaderRead::new(&HARMONY, &text[..end]);
                assert_eq!(begun, HeaderRead::Incomplete, "{}", &text[..end]);
            }
        }
    }

    #[test]
    fn other_texts_are_malformed() {
        for text in [
            "Hello",
            "to be",
            "<b>",
            "é",
            "<|channel|>final\n<|message|>",
            "<|channel|>final<|end|>",
            "<|channel|>é<|message|>",
            "<|call|>",
            &format!("<|channel|>{}<|message|>", "a ".repeat(MOST_BYTES / 2)),
        ] {
            assert_eq!(
                HeaderRead::new(&HARMONY, text),
                HeaderRead::Malformed,
                "{text}"
            );
        }
    }
}
