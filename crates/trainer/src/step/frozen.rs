//! Parameters that a run does not train, by their names.

use burn::module::ParamId;
use burn::tensor::Tensor;
use emberlm_kernels::TrainingBackend;
use emberlm_model::weights::{ParamMapper, map_params, whole_path};

use crate::error::TrainError;
use crate::objective::model::TrainingModel;

/// Freezes the parameters that `names` select: a name is a path or the beginning of one, such as `tokens` or
/// `blocks.0.attention`, and `*` stands for any component.
///
/// # Errors
/// A name selects no parameter, or no parameter is left to train.
pub(crate) fn freeze<B: TrainingBackend>(
    model: TrainingModel<B>,
    names: &[String],
) -> Result<TrainingModel<B>, TrainError> {
    if names.is_empty() {
        return Ok(model);
    }
    let refused = |value: &str, rule: &str| TrainError::Setting {
        table: "train",
        field: "frozen",
        value: format!("{value:?}"),
        rule: rule.to_owned(),
    };
    let parameters = model.parameters();
    for name in names {
        let selected = |path: &str| selects(name, whole_path(path));
        if !parameters.iter().any(|parameter| selected(&parameter.path)) {
            let rule = "must be the beginning of a parameter's path, such as tokens or blocks.0";
            return Err(refused(name, rule));
        }
    }
    let model = map_params::<B, _>(model, &mut Freeze(names));
    let trained = model.parameters();
    match trained.iter().any(|parameter| parameter.trainable) {
        true => Ok(model),
        false => Err(refused(&names.join(", "), "must leave parameters to train")),
    }
}

/// True if `name` is `path` or its beginning, component by component.
fn selects(name: &str, path: &str) -> bool {
    let mut path = path.split('.');
    name.split('.')
        .all(|part| path.next().is_some_and(|own| part == "*" || part == own))
}

struct Freeze<'a>(&'a [String]);

impl<B: TrainingBackend> ParamMapper<B> for Freeze<'_> {
    fn map<const D: usize>(
        &mut self,
        path: &str,
        _id: ParamId,
        value: Tensor<B, D>,
    ) -> Tensor<B, D> {
        match self.0.iter().any(|name| selects(name, whole_path(path))) {
            true => Tensor::from_inner(value.inner()),
            false => value,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_select_whole_components() {
        assert!(selects("blocks.1", "blocks.1.norm1.gain"));
        assert!(selects(
            "blocks.*.attention",
            "blocks.12.attention.out.weight"
        ));
        assert!(selects("tokens", "tokens"));
        for (name, path) in [
            ("blocks.1", "blocks.12.norm1.gain"),
            ("tokens.x", "tokens"),
            ("attention", "blocks.1.attention.out.weight"),
        ] {
            assert!(!selects(name, path), "{name} {path}");
        }
    }
}
