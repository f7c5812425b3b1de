//! The content blocks of an answer during generation.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::api::answer_parts::{AnswerForm, AnswerPart, AnswerParts};
use crate::api::answers::{AnswerEvent, FinishReason};

/// A block of an answer.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
#[schemars(rename = "MessagesAnswerBlock")]
pub(crate) enum AnswerBlock {
    Text {
        text: String,
    },
    /// The model's reasoning.
    Thinking {
        thinking: String,
        /// Always empty: reasoning is accepted without one.
        signature: String,
    },
    /// A call of a tool.
    ToolUse {
        id: String,
        name: String,
        /// The arguments. Empty if the answer ended within them.
        input: Map<String, Value>,
    },
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "MessagesStopReason")]
pub(crate) enum StopReason {
    /// The end of the answer.
    EndTurn,
    /// The maximum number of tokens.
    MaxTokens,
    /// One of `stop_sequences`.
    StopSequence,
    /// The end of an answer that calls tools.
    ToolUse,
}

/// A part of a block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "type")]
pub(super) enum BlockDelta {
    #[serde(rename = "text_delta")]
    Text { text: String },
    #[serde(rename = "thinking_delta")]
    Thinking { thinking: String },
    #[serde(rename = "input_json_delta")]
    InputJson { partial_json: String },
}

/// A change of the blocks.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum BlockChange {
    /// The block at `index` begins, without content.
    Start { index: usize, block: AnswerBlock },
    /// More of the last block.
    Delta { index: usize, delta: BlockDelta },
    /// The block at `index` is complete.
    Stop { index: usize },
}

/// The blocks so far. The last one grows until it is complete.
pub(super) struct Blocks {
    parts: AnswerParts,
    shows_reasoning: bool,
    stop_sequences: Vec<String>,
    blocks: Vec<AnswerBlock>,
    /// The arguments of the last call so far.
    arguments: String,
    /// True while the last block is incomplete.
    is_open: bool,
    end: Option<(StopReason, Option<String>)>,
}

impl Blocks {
    pub fn new(form: AnswerForm, shows_reasoning: bool, stop_sequences: Vec<String>) -> Self {
        Self {
            parts: AnswerParts::new(form),
            shows_reasoning,
            stop_sequences,
            blocks: Vec::new(),
            arguments: String::new(),
            is_open: false,
            end: None,
        }
    }

    /// The blocks, and why the answer ended: with the stop sequence if there was one.
    pub fn into_parts(self) -> (Vec<AnswerBlock>, Option<(StopReason, Option<String>)>) {
        (self.blocks, self.end)
    }

    /// Processes the next event.
    pub fn push(&mut self, event: &AnswerEvent) -> Vec<BlockChange> {
        let mut changes = Vec::new();
        for part in self.parts.push(event) {
            self.take(part, &mut changes);
        }
        if let Some(finish) = event.finish {
            if self.blocks.is_empty() {
                let text = String::new();
                self.begin(AnswerBlock::Text { text }, &mut changes);
            }
            self.close(&mut changes);
            self.end = Some(self.reason(event, finish));
        }
        changes
    }

    fn reason(&self, event: &AnswerEvent, finish: FinishReason) -> (StopReason, Option<String>) {
        // Stop strings of the template follow those of the request.
        let stop = event.stop.and_then(|index| self.stop_sequences.get(index));
        let calls = |block: &AnswerBlock| matches!(block, AnswerBlock::ToolUse { .. });
        match (finish, stop) {
            (FinishReason::Length, _) => (StopReason::MaxTokens, None),
            (FinishReason::Stop, Some(stop)) => (StopReason::StopSequence, Some(stop.clone())),
            (FinishReason::Stop, None) if self.blocks.iter().any(calls) => {
                (StopReason::ToolUse, None)
            }
            (FinishReason::Stop, None) => (StopReason::EndTurn, None),
        }
    }

    fn take(&mut self, part: AnswerPart, changes: &mut Vec<BlockChange>) {
        let delta = match part {
            AnswerPart::Reasoning(_) if !self.shows_reasoning => return,
            AnswerPart::Reasoning(text) => {
                if !matches!(self.last(), Some(AnswerBlock::Thinking { .. })) {
                    let (thinking, signature) = Default::default();
                    self.begin(
                        AnswerBlock::Thinking {
                            thinking,
                            signature,
                        },
                        changes,
                    );
                }
                BlockDelta::Thinking { thinking: text }
            }
            AnswerPart::Text(text) => {
                if !matches!(self.last(), Some(AnswerBlock::Text { .. })) {
                    let text = String::new();
                    self.begin(AnswerBlock::Text { text }, changes);
                }
                BlockDelta::Text { text }
            }
            AnswerPart::Call { id, name } => {
                let input = Map::new();
                self.begin(AnswerBlock::ToolUse { id, name, input }, changes);
                return;
            }
            AnswerPart::Arguments(text) => BlockDelta::InputJson { partial_json: text },
        };
        match (self.blocks.last_mut(), &delta) {
            (Some(AnswerBlock::Text { text }), BlockDelta::Text { text: more }) => {
                *text += more;
            }
            (
                Some(AnswerBlock::Thinking { thinking, .. }),
                BlockDelta::Thinking { thinking: more },
            ) => *thinking += more,
            (_, BlockDelta::InputJson { partial_json }) => self.arguments += partial_json,
            _ => {}
        }
        let index = self.blocks.len().saturating_sub(1);
        changes.push(BlockChange::Delta { index, delta });
    }

    /// The incomplete block.
    fn last(&self) -> Option<&AnswerBlock> {
        self.blocks.last().filter(|_| self.is_open)
    }

    fn begin(&mut self, block: AnswerBlock, changes: &mut Vec<BlockChange>) {
        self.close(changes);
        let index = self.blocks.len();
        self.blocks.push(block.clone());
        self.is_open = true;
        changes.push(BlockChange::Start { index, block });
    }

    fn close(&mut self, changes: &mut Vec<BlockChange>) {
        let arguments = std::mem::take(&mut self.arguments);
        if let Some(AnswerBlock::ToolUse { input, .. }) = self.blocks.last_mut()
            && let Ok(arguments) = serde_json::from_str(&arguments)
        {
            *input = arguments;
        }
        if std::mem::take(&mut self.is_open) {
            let index = self.blocks.len().saturating_sub(1);
            changes.push(BlockChange::Stop { index });
        }
    }
}
