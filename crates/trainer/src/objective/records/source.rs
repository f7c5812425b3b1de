//! Reads the records of a run, and tokenizes their texts.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use emberlm_data::{FieldRecord, RecordField, SequenceEncoder, Tokenizer, read_fields};

use super::splits::RecordSplits;
use super::{Record, RecordSet};
use crate::config::{ClassifyConfig, DataConfig, Seq2SeqConfig};
use crate::data::identity::DataIdentity;
use crate::error::TrainError;

/// The records of a run that have been read but not tokenized yet.
pub(crate) struct RecordSource(RecordSplits<FieldRecord>);

/// The labels of a classifier, whose ids are their places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Labels(pub(crate) Vec<String>);

/// Records of both splits.
#[derive(Clone)]
pub(crate) struct Records {
    pub(crate) train: RecordSet,
    pub(crate) validation: RecordSet,
    /// Texts that were truncated.
    pub(crate) truncated: usize,
    /// Conversations that were left out, because truncation removed all answers.
    pub(crate) left_out: usize,
}

impl RecordSource {
    /// Reads texts with labels.
    ///
    /// # Errors
    /// A file cannot be read, or a record is broken; there are several datasets, or too few records.
    pub(crate) fn of_labels(
        data: &DataConfig,
        config: &ClassifyConfig,
    ) -> Result<Self, TrainError> {
        let ClassifyConfig {
            text,
            text_pair,
            label,
        } = config;
        Self::read(
            data,
            &[
                field(text, false),
                field(label, false),
                field(text_pair, true),
            ],
        )
    }

    /// Reads pairs of texts.
    ///
    /// # Errors
    /// Those of [`RecordSource::of_labels`].
    pub(crate) fn of_pairs(data: &DataConfig, config: &Seq2SeqConfig) -> Result<Self, TrainError> {
        let Seq2SeqConfig { source, target, .. } = config;
        Self::read(data, &[field(source, false), field(target, false)])
    }

    fn read(data: &DataConfig, fields: &[RecordField]) -> Result<Self, TrainError> {
        let read = |path: &PathBuf| read_fields(std::slice::from_ref(path), fields);
        Ok(Self(RecordSplits::read(data, read)?))
    }

    /// The number of records to train on.
    pub(crate) fn train_count(&self) -> usize {
        self.0.train.len()
    }

    /// The labels that occur: numbers by their value, other labels in alphabetical order.
    pub(crate) fn labels(&self) -> Labels {
        let records = self.0.all();
        let labels: BTreeSet<&str> = records
            .filter_map(|record| record.values[1].as_deref())
            .collect();
        let mut labels: Vec<String> = labels.into_iter().map(str::to_owned).collect();
        if labels.iter().all(|label| label.parse::<i64>().is_ok()) {
            labels.sort_by_key(|label| label.parse::<i64>().unwrap_or_default());
        }
        Labels(labels)
    }

    /// Tokenizes the texts of records with labels. Texts have at most `max_tokens` tokens.
    ///
    /// # Errors
    /// A text cannot be tokenized, or has a label that is not one of `labels`.
    pub(crate) fn labelled(
        self,
        labels: &Labels,
        tokenizer: &Tokenizer,
        max_tokens: usize,
        seed: u64,
        padding: u32,
    ) -> Result<Records, TrainError> {
        let encoder = SequenceEncoder::new(tokenizer, max_tokens);
        self.tokenized(seed, padding, |values, path, number| {
            let [text, label, pair] = values else {
                return Ok((Record::default(), false));
            };
            let text = text.as_deref().unwrap_or_default();
            let sequence = match pair {
                Some(pair) => encoder.encode_pair(text, pair)?,
                None => encoder.encode(text)?,
            };
            let label = label.as_deref().unwrap_or_default();
            let found = labels.0.iter().position(|known| known == label);
            let Some(id) = found else {
                return Err(TrainError::UnknownLabel {
                    path: path.to_owned(),
                    record: number,
                    label: label.to_owned(),
                    known: labels.0.join(", "),
                });
            };
            let truncated = sequence.truncated;
            Ok((Record::new(sequence, vec![id as u32]), truncated))
        })
    }

    /// Tokenizes pairs of texts. Sources have at most `max_tokens` tokens, targets as many as the configuration allows,
    /// with the end-of-text token.
    ///
    /// # Errors
    /// A text cannot be tokenized.
    pub(crate) fn pairs(
        self,
        config: &Seq2SeqConfig,
        tokenizer: &Tokenizer,
        max_tokens: usize,
        seed: u64,
        padding: u32,
    ) -> Result<Records, TrainError> {
        let encoder = SequenceEncoder::new(tokenizer, max_tokens);
        let end = tokenizer.end_of_text();
        self.tokenized(seed, padding, |values, _, _| {
            let [source, target] = values else {
                return Ok((Record::default(), false));
            };
            let source = source.as_deref().unwrap_or_default();
            let sequence = encoder.encode(&format!("{}{source}", config.prefix))?;
            let mut targets = tokenizer.encode(target.as_deref().unwrap_or_default())?;
            let room = config.target_tokens - usize::from(end.is_some());
            let truncated = sequence.truncated || targets.len() > room;
            targets.truncate(room);
            targets.extend(end);
            Ok((Record::new(sequence, targets), truncated))
        })
    }

    fn tokenized(
        self,
        seed: u64,
        padding: u32,
        tokenize: impl Fn(&[Option<String>], &Path, u64) -> Result<(Record, bool), TrainError>,
    ) -> Result<Records, TrainError> {
        let mut truncated = 0;
        let splits = self.0.convert(|records, path| {
            let record = |record: FieldRecord| {
                let (made, cut) = tokenize(&record.values, path, record.number)?;
                truncated += usize::from(cut);
                if made.is_empty() {
                    return Err(TrainError::EmptyRecord {
                        path: path.to_owned(),
                        record: record.number,
                    });
                }
                Ok(made)
            };
            records.into_iter().map(record).collect()
        })?;
        Ok(Records {
            train: RecordSet::new(splits.train, seed, padding),
            validation: RecordSet::new(splits.validation, seed, padding),
            truncated,
            left_out: 0,
        })
    }
}

fn field(name: &str, optional: bool) -> RecordField {
    RecordField {
        name: name.to_owned(),
        optional,
    }
}

impl Records {
    /// The identity of the records, so that a run is not resumed on others.
    pub(crate) fn identity(&self) -> DataIdentity {
        DataIdentity {
            train: self.train.identity(),
            val: self.validation.identity(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use emberlm_data::IGNORED;

    use super::*;
    use crate::config::RunConfig;

    fn source(contents: &str) -> Result<RecordSource, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("records.csv");
        fs::write(&path, contents).unwrap();
        let source = RecordSource::of_labels(&DataConfig::of(path), &ClassifyConfig::default());
        source.map_err(|error| error.to_string())
    }

    fn table(labels: &[&str]) -> String {
        let rows = labels.iter().enumerate();
        let rows = rows.map(|(row, label)| format!("{},{label}\n", "x".repeat(1 + row % 7)));
        format!("text,label\n{}", rows.collect::<String>())
    }

    fn labelled(count: usize, seed: u64) -> Records {
        let labels: Vec<&str> = ["a", "b"].into_iter().cycle().take(count).collect();
        let source = source(&table(&labels)).unwrap();
        let (labels, bytes) = (source.labels(), Tokenizer::builtin("byte".parse().unwrap()));
        source
            .labelled(&labels, &bytes.unwrap(), 5, seed, 9)
            .unwrap()
    }

    #[test]
    fn labels_are_sorted_by_number_or_alphabet() {
        let labels = |labels: &[&str]| source(&table(labels)).unwrap().labels().0;
        assert_eq!(labels(&["10", "9", "-1", "9"]), ["-1", "9", "10"]);
        assert_eq!(labels(&["10", "9", "b", "a"]), ["10", "9", "a", "b"]);
    }

    #[test]
    fn every_record_is_in_one_split_and_once_per_epoch() {
        let records = labelled(35, 3);
        assert_eq!((records.train.len(), records.validation.len()), (31, 4));
        // Texts of six and seven bytes are truncated.
        assert_eq!(records.truncated, 10);
        let lengths = |first: u64| {
            let mut lengths = records.train.batch(first, 31).lengths.unwrap();
            lengths.sort_unstable();
            lengths
        };
        assert_eq!(lengths(0), lengths(31));
        assert_ne!(records.train.batch(0, 31), records.train.batch(31, 31));
        assert_ne!(
            records.train.batch(0, 31),
            labelled(35, 4).train.batch(0, 31)
        );
        assert_eq!(records.identity(), labelled(35, 4).identity());
        assert_ne!(records.identity(), labelled(36, 3).identity());
        let total: usize = lengths(0).iter().sum();
        assert_eq!(records.train.tokens_before(62), 2 * total as u64);
        let first = records.train.batch(0, 40).lengths.unwrap();
        let first: usize = first.iter().sum();
        assert_eq!(records.train.tokens_before(40), first as u64);
    }

    #[test]
    fn batches_are_padded_to_their_longest_text() {
        let records = labelled(35, 3);
        let whole = records.train.batch(10, 6);
        assert_eq!(whole.inputs.len(), 6 * whole.seq);
        let lengths = whole.lengths.as_ref().unwrap();
        assert_eq!(lengths.iter().max(), Some(&whole.seq));
        for (row, &length) in whole.inputs.chunks(whole.seq).zip(lengths) {
            assert!(row[..length].iter().all(|&id| id == u32::from(b'x')));
            assert!(row[length..].iter().all(|&id| id == 9));
        }
        // A batch is a function of the number of its first record.
        let second = records.train.batch(13, 3);
        assert_eq!(second.lengths.unwrap(), lengths[3..]);
        assert_eq!(second.targets, whole.targets[3..]);
        let validation: usize = records.validation.batches(3).map(|batch| batch.batch).sum();
        assert_eq!(validation, 4);
    }

    #[test]
    fn targets_end_with_the_end_of_text() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pairs.jsonl");
        let line = |target: &str| format!("{{\"source\": \"s\", \"target\": \"{target}\"}}\n");
        fs::write(&path, line("ab") + &line("abcdef")).unwrap();
        let config = Seq2SeqConfig {
            prefix: "p: ".to_owned(),
            target_tokens: 4,
            ..Seq2SeqConfig::default()
        };
        let data = DataConfig {
            validation: path.clone(),
            ..DataConfig::of(path)
        };
        let source = RecordSource::of_pairs(&data, &config).unwrap();
        let bytes = Tokenizer::builtin("byte".parse().unwrap()).unwrap();
        let records = source.pairs(&config, &bytes, 16, 1, 0).unwrap();
        let batch = records.validation.batches(2).next().unwrap();
        assert_eq!(batch.inputs, b"p: sp: s".map(u32::from));
        assert_eq!(batch.targets, [97, 98, 256, IGNORED, 97, 98, 99, 256]);
        assert_eq!(records.truncated, 2, "in both splits");
    }

    #[test]
    fn unusable_records_are_refused() {
        assert!(
            source("text,label\na,b\n")
                .err()
                .unwrap()
                .contains("at least 2 records")
        );
        assert!(
            source("text,label\na,b\nc,\n")
                .err()
                .unwrap()
                .contains("line 3")
        );
        let source = source(&table(&["a", "b", "c"])).unwrap();
        let bytes = Tokenizer::builtin("byte".parse().unwrap()).unwrap();
        let known = Labels(vec!["a".to_owned(), "b".to_owned()]);
        let error = source
            .labelled(&known, &bytes, 5, 1, 0)
            .err()
            .unwrap()
            .to_string();
        assert!(
            error.contains("line 4") || error.contains("record 4"),
            "{error}"
        );
        assert!(
            error.contains("label `c`, but the model has a, b"),
            "{error}"
        );
        let mut config: RunConfig = crate::config::presets::run("bert-nano").unwrap();
        config.data.mix = vec![crate::MixedDataset {
            dataset: "a".into(),
            weight: 1.0,
        }];
        assert!(RecordSource::of_labels(&config.data, &ClassifyConfig::default()).is_err());
    }
}
