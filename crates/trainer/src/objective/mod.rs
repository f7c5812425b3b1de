//! The training objectives of models other than decoders: what is computed from a window of tokens or from a record before it
//! becomes a batch.
//!
//! | module | contents |
//! |---|---|
//! | `source` | [`TrainSource`]: the batches of a run, a function of the number of their first sequence |
//! | `host_batch` | a batch in the host's memory |
//! | `masked_lm` | masked tokens (BERT, RoBERTa) |
//! | `span_corruption` | removed spans (T5) |
//! | `record_source` | reads labelled texts and pairs of texts, and tokenizes them |
//! | `records` | batches of them |
//! | `scores` | accuracy and F1 of predicted labels |

mod host_batch;
pub(crate) mod masked_lm;
mod record_source;
mod records;
mod scores;
mod source;
pub(crate) mod span_corruption;

pub(crate) use host_batch::HostBatch;
pub(crate) use masked_lm::MaskedLm;
pub(crate) use record_source::{Labels, RecordSource};
pub(crate) use records::RecordSet;
pub(crate) use scores::ClassScores;
pub(crate) use source::{HostBatches, TrainSource, WindowTask};
pub(crate) use span_corruption::SpanCorruption;
