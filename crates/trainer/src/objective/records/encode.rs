//! Tokenization of records with completions.

use std::path::Path;

use emberlm_data::{ChatTokens, PreferenceEncoder, PreferenceRecord};

use crate::error::TrainError;

/// Records that are tokenized together: another process may render their chat template.
const TOGETHER: usize = 64;

/// Tokenizes records in their order, and calls `keep` with each and its sequences. An error of `keep` is the violated rule.
///
/// # Errors
/// [`TrainError::Preference`] with the line in `path` of a record that cannot be tokenized or violates a rule.
pub(in crate::objective) fn encode_records(
    records: &[PreferenceRecord],
    encoder: &PreferenceEncoder,
    path: &Path,
    mut keep: impl FnMut(&PreferenceRecord, Vec<ChatTokens>) -> Result<(), &'static str>,
) -> Result<(), TrainError> {
    for records in records.chunks(TOGETHER) {
        for (record, encoded) in records.iter().zip(encoder.encode(records)) {
            let encoded = encoded.map_err(|error| error.to_string());
            let kept = encoded.and_then(|tokens| Ok(keep(record, tokens)?));
            kept.map_err(|reason| TrainError::Preference {
                path: path.to_owned(),
                line: record.number,
                reason,
            })?;
        }
    }
    Ok(())
}
