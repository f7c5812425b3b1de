//! Writes TensorBoard event files.
//!
//! A file is a sequence of records, each `length: u64, masked_crc32c(length): u32, bytes,
//! masked_crc32c(bytes): u32` in little-endian order, as in TensorFlow's `tfrecord`. The bytes are an `Event`
//! of TensorBoard's `event.proto`. Only the fields written here are declared, so the build does not need
//! `protoc`.

use std::fs;
use std::path::Path;

use prost::Message;

use crate::error::TrainError;
use crate::report::append::AppendFile;
use crate::report::events::{DatasetLoss, Event, LayerNorms, NormKind, now};
use crate::report::metrics::{self, Phase};

/// The directory of a run's event files.
pub const FOLDER: &str = "tensorboard";

/// The first record of every event file of this format.
const VERSION: &str = "brain.Event:2";

/// Mirrors a run's events to TensorBoard. Each event is written immediately; if the disk is full, records are
/// buffered.
///
/// A metric becomes the scalar `train/NAME` or `validation/NAME`. Metrics of the machine are
/// `speed/tokens_per_second`, `speed/utilization` and `memory/resident_mib`. `train/skipped` is 1 at a
/// skipped step, and samples are the text `sample`.
#[derive(Debug)]
pub struct TensorBoard {
    file: AppendFile,
}

impl TensorBoard {
    /// Creates `RUN/tensorboard/events.out.tfevents.SECONDS.emberlm` for a time in seconds since 1970. A
    /// resumed run creates another file; TensorBoard reads all files of a directory.
    ///
    /// # Errors
    /// The file cannot be created.
    /// The file cannot be created.
    pub fn create(run: &Path, time: f64) -> Result<Self, TrainError> {
        let folder = run.join(FOLDER);
        fs::create_dir_all(&folder).map_err(TrainError::file("create", &folder))?;
        let name = format!("events.out.tfevents.{:010.0}.emberlm", time.floor());
        // If the run was resumed within the same second, append a number: TensorBoard reads files in the
        // order of their names.
        let numbered = (1..1000).map(|number| format!("{name}.{number:03}"));
        let mut names = std::iter::once(name.clone()).chain(numbered);
        let free = names.find(|name| !folder.join(name).exists());
        let file = AppendFile::create(&folder.join(free.unwrap_or(name)))?;
        let mut this = Self { file };
        this.record(&Record {
            wall_time: time,
            file_version: Some(VERSION.to_owned()),
            ..Record::default()
        })?;
        Ok(this)
    }

    /// Writes an event with its own time, or the current time if it has none.
    ///
    /// # Errors
    /// The file cannot be written. The record is buffered and written with the next one.
    pub fn write(&mut self, event: &Event) -> Result<(), TrainError> {
        self.write_at(event, now())
    }

    /// Writes an event with its own time, or `time` if it has none.
    ///
    /// # Errors
    /// The file cannot be written. The record is buffered and written with the next one.
    pub fn write_at(&mut self, event: &Event, time: f64) -> Result<(), TrainError> {
        match record(event, time) {
            Some(record) => self.record(&record),
            None => Ok(()),
        }
    }

    /// Writes buffered records.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn flush(&mut self) -> Result<(), TrainError> {
        self.file.flush()
    }

    fn record(&mut self, record: &Record) -> Result<(), TrainError> {
        self.file.append(&framed(&record.encode_to_vec()))
    }
}

/// Converts an event. `None` if it has no counterpart in TensorBoard.
fn record(event: &Event, now: f64) -> Option<Record> {
    let mut wall_time = now;
    let mut session_log = None;
    let own = match event {
        Event::Skipped { .. } => vec![scalar("train/skipped", 1.0)],
        Event::Norms { layers, .. } => norms(layers),
        Event::Evaluation { datasets, .. } => {
            let own =
                |of: &DatasetLoss| scalar(&format!("validation/loss/{}", of.dataset), of.loss);
            datasets.iter().map(own).collect()
        }
        Event::Sample { text: written, .. } => vec![text("sample", written)],
        Event::Pace { time, .. } => {
            wall_time = *time;
            Vec::new()
        }
        // On a resumed run, TensorBoard discards later steps of earlier files: they are computed again.
        Event::Begun { time, step, .. } if *step > 0 => {
            wall_time = *time;
            session_log = Some(SessionLog { status: START });
            Vec::new()
        }
        Event::Step { .. } => Vec::new(),
        Event::Begun { .. }
        | Event::Checkpoint { .. }
        | Event::CheckpointFailed { .. }
        | Event::Ended { .. } => return None,
    };
    let mut values = readings(event);
    values.extend(own);
    Some(Record {
        wall_time,
        step: event.step() as i64,
        summary: (!values.is_empty()).then_some(Summary { value: values }),
        session_log,
        ..Record::default()
    })
}

/// A scalar for each metric of an event.
fn readings(event: &Event) -> Vec<Value> {
    let Some((phase, found)) = event.readings() else {
        return Vec::new();
    };
    let folder = match phase {
        Phase::Validation => "validation",
        Phase::Training | Phase::Both => "train",
    };
    let one = |(name, value): (&str, f64)| {
        let tag = metrics::find(name).and_then(|metric| metric.tag);
        match tag {
            Some(tag) => scalar(tag, value),
            None => scalar(&format!("{folder}/{name}"), value),
        }
    };
    found.into_iter().map(one).collect()
}

/// A scalar for each norm of each layer.
fn norms(layers: &[LayerNorms]) -> Vec<Value> {
    let of_layer = |layer: &'_ LayerNorms| {
        let known = NormKind::ALL.into_iter();
        let known = known.filter_map(|kind| Some((kind, kind.of(layer)?)));
        let tagged = known
            .map(|(kind, value)| scalar(&format!("norms/{}/{}", kind.name(), layer.layer), value));
        tagged.collect::<Vec<_>>()
    };
    layers.iter().flat_map(of_layer).collect()
}

fn scalar(tag: &str, value: f64) -> Value {
    Value {
        tag: tag.to_owned(),
        simple_value: Some(value as f32),
        ..Value::default()
    }
}

fn text(tag: &str, text: &str) -> Value {
    Value {
        tag: tag.to_owned(),
        tensor: Some(Tensor {
            dtype: DT_STRING,
            shape: Some(Shape {}),
            string_val: vec![text.as_bytes().to_vec()],
        }),
        metadata: Some(Metadata {
            plugin_data: Some(Plugin {
                plugin_name: "text".to_owned(),
            }),
            data_class: DATA_CLASS_TENSOR,
        }),
        ..Value::default()
    }
}

/// Frames a record with its length and checksums.
fn framed(bytes: &[u8]) -> Vec<u8> {
    let length = (bytes.len() as u64).to_le_bytes();
    let mut framed = Vec::with_capacity(bytes.len() + 16);
    framed.extend(length);
    framed.extend(masked(&length).to_le_bytes());
    framed.extend(bytes);
    framed.extend(masked(bytes).to_le_bytes());
    framed
}

/// A masked CRC-32C (TensorFlow's `crc32c::Mask`). Masking keeps a checksum sound if the data itself contains
/// checksums.
fn masked(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
        .rotate_right(15)
        .wrapping_add(0xa282_ead8)
}

/// `SessionLog.START`.
const START: i32 = 1;
/// `DataType.DT_STRING`.
const DT_STRING: i32 = 7;
/// `DataClass.DATA_CLASS_TENSOR`.
const DATA_CLASS_TENSOR: i32 = 2;

/// `Event`.
#[derive(Clone, PartialEq, Message)]
struct Record {
    #[prost(double, tag = "1")]
    wall_time: f64,
    #[prost(int64, tag = "2")]
    step: i64,
    #[prost(string, optional, tag = "3")]
    file_version: Option<String>,
    #[prost(message, optional, tag = "5")]
    summary: Option<Summary>,
    #[prost(message, optional, tag = "7")]
    session_log: Option<SessionLog>,
}

/// `Summary`.
#[derive(Clone, PartialEq, Message)]
struct Summary {
    #[prost(message, repeated, tag = "1")]
    value: Vec<Value>,
}

/// `Summary.Value`.
#[derive(Clone, PartialEq, Message)]
struct Value {
    #[prost(string, tag = "1")]
    tag: String,
    #[prost(float, optional, tag = "2")]
    simple_value: Option<f32>,
    #[prost(message, optional, tag = "8")]
    tensor: Option<Tensor>,
    #[prost(message, optional, tag = "9")]
    metadata: Option<Metadata>,
}

/// `TensorProto`.
#[derive(Clone, PartialEq, Message)]
struct Tensor {
    #[prost(int32, tag = "1")]
    dtype: i32,
    #[prost(message, optional, tag = "2")]
    shape: Option<Shape>,
    #[prost(bytes = "vec", repeated, tag = "8")]
    string_val: Vec<Vec<u8>>,
}

/// `TensorShapeProto` without dimensions: one value.
#[derive(Clone, Copy, PartialEq, Message)]
struct Shape {}

/// `SummaryMetadata`.
#[derive(Clone, PartialEq, Message)]
struct Metadata {
    #[prost(message, optional, tag = "1")]
    plugin_data: Option<Plugin>,
    #[prost(int32, tag = "4")]
    data_class: i32,
}

/// `SummaryMetadata.PluginData`.
#[derive(Clone, PartialEq, Message)]
struct Plugin {
    #[prost(string, tag = "1")]
    plugin_name: String,
}

/// `SessionLog`.
#[derive(Clone, Copy, PartialEq, Message)]
struct SessionLog {
    #[prost(int32, tag = "1")]
    status: i32,
}
