//! Answers that consist of messages in channels. The header of a message has its channel and, for a call, the function.
//!
//! | module | contents |
//! |---|---|
//! | this module | [`ChannelFormat`]: a format as data; [`HARMONY`] |
//! | `header` | the header of a message, or the beginning of one |
//! | `parser` | [`ChannelParser`]: splits an answer into reasoning, text and calls during generation |

mod header;
mod parser;
#[cfg(test)]
mod tests;

pub(crate) use parser::ChannelParser;

/// A format of messages in channels: `start ROLE channel CHANNEL message TEXT`, then one of `ends`. The recipient of a
/// message, `to` and a name, follows the role or the channel. The content type follows both, after `constrain` or a space. An
/// answer begins after the role of its first message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ChannelFormat {
    /// Texts that a chat template of this format contains.
    pub contains: [&'static str; 2],
    /// The marker before a message's role.
    start: &'static str,
    /// The role of the messages of an answer.
    role: &'static str,
    /// The marker before a message's channel.
    channel: &'static str,
    /// The marker before a message's content type.
    constrain: &'static str,
    /// The marker before a message's text.
    message: &'static str,
    /// The markers after a message's text.
    ends: &'static [&'static str],
    /// The channels of reasoning. Messages in other channels, without recipient, are text.
    reasoning: &'static [&'static str],
    /// The text before a recipient.
    to: &'static str,
    /// The text before the name of a function that is a recipient.
    functions: &'static str,
    /// The markup between the role of a message and its text, if it is the answer to the user.
    pub answer_headers: &'static [&'static str],
    /// The markup around reasoning that may precede a call.
    pub call_preface: [&'static str; 2],
    /// The headers of calls. The first is the preferred one.
    pub call_headers: &'static [CallHeader],
}

/// The markup around the name of a called function.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CallHeader {
    /// The text between the role and the name.
    pub before_name: &'static str,
    /// True if the role must directly precede.
    pub follows_role: bool,
    /// The alternatives of the text between the name and the arguments.
    pub after_name: &'static [&'static str],
}

/// The markup after the recipient of a call whose channel precedes the recipient.
const AFTER_RECIPIENT: &[&str] = &[
    " <|constrain|>json<|message|>",
    "<|constrain|>json<|message|>",
    " json<|message|>",
];

/// The format of gpt-oss, as described at <https://github.com/openai/harmony/blob/main/docs/format.md>.
pub(crate) const HARMONY: ChannelFormat = ChannelFormat {
    contains: ["<|channel|>analysis<|message|>", "<|start|>assistant"],
    start: "<|start|>",
    role: "assistant",
    channel: "<|channel|>",
    constrain: "<|constrain|>",
    message: "<|message|>",
    ends: &["<|end|>", "<|return|>", "<|call|>"],
    reasoning: &["analysis"],
    to: "to=",
    functions: "functions.",
    answer_headers: &[
        "<|channel|>final<|message|>",
        "<|channel|>final <|constrain|>json<|message|>",
    ],
    call_preface: ["<|channel|>analysis<|message|>", "<|end|>"],
    call_headers: &[
        CallHeader {
            before_name: "<|channel|>commentary to=functions.",
            follows_role: false,
            after_name: AFTER_RECIPIENT,
        },
        CallHeader {
            before_name: "<|channel|>analysis to=functions.",
            follows_role: false,
            after_name: AFTER_RECIPIENT,
        },
        CallHeader {
            before_name: " to=functions.",
            follows_role: true,
            after_name: &[
                "<|channel|>commentary json<|message|>",
                "<|channel|>commentary <|constrain|>json<|message|>",
            ],
        },
    ],
};

impl ChannelFormat {
    /// Returns true if a chat template has this format.
    pub fn is_of_template(&self, source: &str) -> bool {
        self.contains.iter().all(|text| source.contains(text))
    }

    /// Returns true if `token` is a marker, which is part of an answer's text even if it is a special token.
    pub fn is_marker(&self, token: &str) -> bool {
        let [start, channel, constrain] = [self.start, self.channel, self.constrain];
        [start, channel, constrain, self.message].contains(&token) || self.ends.contains(&token)
    }

    /// Returns true if an answer begins with a message's header after a prompt that ends with `tail`. Otherwise, it continues
    /// the text of a message.
    pub fn begins_with_header(&self, tail: &[u8]) -> bool {
        let tail = tail.trim_ascii_end();
        let begun = self.message_start();
        let mut ends = self.ends.iter().copied().chain([&*begun]);
        ends.any(|end| tail.ends_with(end.as_bytes()))
    }

    /// The beginning of a message of an answer, up to its role.
    pub fn message_start(&self) -> String {
        [self.start, self.role].concat()
    }
}
