//! A note on a run that trains on one batch, with the settings that keep its loss above 0.

use super::RunInputs;
use crate::config::TrainConfig;

/// The note. `None` for a run on all of its data, and without such a setting.
pub(super) fn note(train: &TrainConfig, inputs: &RunInputs) -> Option<String> {
    if !train.overfit_batch {
        return None;
    }
    let model = inputs.model.raw();
    let dropout = match model.dropout_sites.is_empty() {
        true => 0.0,
        false => model.dropout,
    };
    let settings = [
        ("model.dropout", dropout),
        ("train.loss.label_smoothing", train.loss.label_smoothing),
        ("train.embedding_noise", train.embedding_noise),
    ];
    let named = settings.into_iter().filter(|(_, value)| *value > 0.0);
    let named: Vec<_> = named.collect();
    let list = |form: fn(&(&str, f64)) -> String| named.iter().map(form).collect::<Vec<_>>();
    let values = list(|(key, value)| format!("{key} = {value}")).join(" and ");
    let options = list(|(key, _)| format!("--set {key}=0")).join(" ");
    (!named.is_empty())
        .then(|| format!("{values} can keep the loss above 0; to test without: {options}"))
}
