//! Reads the conversations of a run, and tokenizes them for supervised fine-tuning.
//!
//! Each is a separate sequence whose answers are the targets, as TRL trains on records without packing.

use std::path::PathBuf;

use emberlm_data::{ChatTokens, PreferenceEncoder, PreferenceRecord, read_conversations};

use super::encode::encode_records;
use super::source::Records;
use super::splits::RecordSplits;
use super::{Record, RecordSet};
use crate::config::DataConfig;
use crate::error::TrainError;

/// The conversations of a run that have been read but not tokenized yet.
pub(crate) struct ConversationSource(RecordSplits<PreferenceRecord>);

impl ConversationSource {
    /// Reads the conversations.
    ///
    /// # Errors
    /// A file cannot be read, or a record is broken; there are several datasets, or too few records.
    pub(crate) fn read(data: &DataConfig) -> Result<Self, TrainError> {
        let read = |path: &PathBuf| read_conversations(std::slice::from_ref(path));
        Ok(Self(RecordSplits::read(data, read)?))
    }

    /// The number of records to train on.
    pub(crate) fn train_count(&self) -> usize {
        self.0.train.len()
    }

    /// Returns true if a record consists of messages.
    pub(crate) fn has_conversations(&self) -> bool {
        self.0.all().any(|record| record.is_conversation)
    }

    /// Tokenizes the records. The end of a sequence with more than `max_tokens` tokens is cut off.
    ///
    /// # Errors
    /// A record cannot be tokenized or has no target, or no record is left.
    pub(crate) fn tokenized(
        self,
        encoder: &PreferenceEncoder,
        max_tokens: usize,
        seed: u64,
        padding: u32,
    ) -> Result<Records, TrainError> {
        let (mut truncated, mut left_out) = (0, 0);
        let splits = self.0.convert(|records, path| {
            let mut kept = Vec::with_capacity(records.len());
            encode_records(&records, encoder, path, |_, tokens| {
                let has_target = |tokens: &ChatTokens| tokens.learnt.iter().skip(1).any(|it| *it);
                let Some(tokens) = tokens.into_iter().next().filter(has_target) else {
                    return Err("no token of an answer is predicted from another");
                };
                truncated += usize::from(tokens.ids.len() > max_tokens);
                match sequence(tokens, max_tokens) {
                    Some(record) => kept.push(record),
                    None => left_out += 1,
                }
                Ok(())
            })?;
            Ok(kept)
        })?;
        Ok(Records {
            train: RecordSet::new(splits.train, seed, padding),
            validation: RecordSet::new(splits.validation, seed, padding),
            truncated,
            left_out,
        })
    }
}

/// The inputs and the next tokens of a sequence of at most `max_tokens` tokens. `None` if no target is left.
fn sequence(tokens: ChatTokens, max_tokens: usize) -> Option<Record> {
    let ChatTokens { mut ids, learnt } = tokens;
    ids.truncate(max_tokens);
    Record::of_next_tokens(ids, &learnt)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use emberlm_data::{IGNORED, Tokenizer};

    use super::*;

    fn read(name: &str, contents: &str, max_tokens: usize) -> Result<Records, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        fs::write(&path, contents).unwrap();
        let data = DataConfig::of(path);
        assert!(data.holds_records());
        let tokenizer = Tokenizer::builtin("byte".parse().unwrap()).unwrap();
        let encoder = PreferenceEncoder::new(&tokenizer, None).unwrap();
        let source = ConversationSource::read(&data).map_err(|error| error.to_string())?;
        let records = source.tokenized(&encoder, max_tokens, 1, 0);
        records.map_err(|error| error.to_string())
    }

    #[test]
    fn answers_are_the_targets_of_padded_sequences() {
        let lines = concat!(
            r#"{"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]}"#,
            "\n",
            r#"{"instruction": "a", "input": "", "output": "b"}"#,
        );
        let records = read("a.jsonl", lines, 1000).unwrap();
        let batch = records.train.batch(0, 1);
        assert_eq!(batch, records.validation.batch(0, 1));
        assert_eq!(
            (batch.seq, batch.target_seq),
            (batch.inputs.len(), batch.targets.len())
        );
        let targets: Vec<u8> = batch
            .targets
            .iter()
            .filter(|id| **id != IGNORED)
            .map(|id| *id as u8)
            .collect();
        assert_eq!(targets, b"b<|im_end|>");
        // Each target is the token after its input.
        let pairs = batch.inputs.iter().skip(1).zip(&batch.targets);
        assert!(
            pairs
                .clone()
                .all(|(next, target)| *target == IGNORED || next == target)
        );
        assert!(pairs.count() > 10);
    }

    #[test]
    fn long_and_broken_records_are_counted_or_named() {
        let record = |text: &str| format!("{{\"prompt\": \"{text}\", \"completion\": \"yes\"}}\n");
        // More records than are held out have answers.
        let lines = [
            record("a").repeat(20),
            record("bcd"),
            record(&"x".repeat(50)),
        ]
        .concat();
        let records = read("a.jsonl", &lines, 5).unwrap();
        assert_eq!((records.truncated, records.left_out), (2, 1));
        let error = read("a.csv", "prompt,completion\na,b\nc,\n", 9)
            .err()
            .unwrap();
        assert!(error.contains("line 3: `completion` is missing"), "{error}");
        let talk = r#"{"conversations": [{"from": "narrator", "value": "b"}]}"#;
        let error = read("a.jsonl", talk, 9).err().unwrap();
        assert!(
            error.contains("a.jsonl: line 1: `conversations[0].from` is \"narrator\""),
            "{error}"
        );
    }
}
