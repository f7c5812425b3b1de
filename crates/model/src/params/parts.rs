//! Split parameters, which weight files store as one tensor.
//!
//! A [`crate::TokenTable`] that exceeds a device's largest buffer consists of several parameters with consecutive rows:
//! the parts of `tokens` are `tokens.parts.0`, `tokens.parts.1` and so on, in the module's order. Files contain only
//! `tokens`.

use std::collections::HashMap;
use std::ops::Range;

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;

use super::Trail;

/// Separates the path of a split parameter from the number of a part.
const PARTS: &str = ".parts.";

/// Splits the path of a part into the path of the whole parameter and the number of the part. Returns `None` for other
/// paths.
pub fn part_of(path: &str) -> Option<(&str, usize)> {
    let (whole, number) = path.rsplit_once(PARTS)?;
    Some((whole, number.parse().ok()?))
}

/// Returns the path of the whole parameter: that of the split parameter for a part, otherwise `path`.
pub fn whole_path(path: &str) -> &str {
    part_of(path).map_or(path, |(whole, _)| whole)
}

/// Returns the path of part `number` of a split parameter.
pub fn part_path(whole: &str, number: usize) -> String {
    format!("{whole}{PARTS}{number}")
}

/// Split parameters of a module: the number of rows of each part, by the path of the whole parameter.
#[derive(Clone, Debug, Default)]
pub struct Parts(HashMap<String, Vec<usize>>);

/// Position of a parameter's rows in the whole parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RowRange<'a> {
    /// Path of the whole parameter.
    pub(crate) whole: &'a str,
    /// First row of the part in the whole parameter.
    pub(crate) start: usize,
    /// Rows of the whole parameter; `None` if the parameter is not split.
    total: Option<usize>,
}

impl Parts {
    /// Finds the split parameters of a module. Lazy parameters are not initialized.
    pub fn of<B: Backend, M: Module<B>>(module: &M) -> Self {
        let mut visitor = PartVisitor {
            trail: Trail::default(),
            parts: Self::default(),
        };
        module.visit(&mut visitor);
        visitor.parts
    }

    /// Returns the number of rows of each part; `None` if the parameter is not split.
    pub fn rows(&self, whole: &str) -> Option<&[usize]> {
        self.0.get(whole).map(Vec::as_slice)
    }

    pub(crate) fn row_range<'a>(&self, path: &'a str) -> RowRange<'a> {
        let part =
            part_of(path).and_then(|(whole, number)| Some((whole, number, self.rows(whole)?)));
        match part {
            Some((whole, number, rows)) => RowRange {
                whole,
                start: rows.iter().take(number).sum(),
                total: Some(rows.iter().sum()),
            },
            None => RowRange {
                whole: path,
                start: 0,
                total: None,
            },
        }
    }
}

impl RowRange<'_> {
    /// Returns the shape of the whole parameter, given the shape of the part.
    pub(crate) fn whole_shape(&self, part: &[usize]) -> Vec<usize> {
        let mut shape = part.to_vec();
        if let (Some(total), Some(rows)) = (self.total, shape.first_mut()) {
            *rows = total;
        }
        shape
    }

    /// Returns the range of the part's elements in the whole parameter, given the shape of the part.
    pub(crate) fn elements(&self, part: &[usize]) -> Range<usize> {
        let columns: usize = part.iter().skip(1).product();
        let start = self.start * columns;
        start..start + part.iter().product::<usize>()
    }
}

/// Groups the parts of split parameters, in row order, under the path of the whole parameter. In `tensors`, the parts
/// of a parameter must be consecutive and in order.
pub fn join_parts<B: Backend>(
    tensors: impl IntoIterator<Item = (String, FloatTensor<B>)>,
) -> Vec<(String, Vec<FloatTensor<B>>)> {
    let mut joined: Vec<(String, Vec<FloatTensor<B>>)> = Vec::new();
    for (path, tensor) in tensors {
        match (part_of(&path), joined.last_mut()) {
            (Some((whole, number)), Some((last, parts))) if number > 0 && last == whole => {
                parts.push(tensor);
            }
            _ => joined.push((whole_path(&path).to_owned(), vec![tensor])),
        }
    }
    joined
}

/// Collects split parameters. It reads only shapes, so lazy parameters are not initialized.
struct PartVisitor {
    trail: Trail,
    parts: Parts,
}

impl<B: Backend> ModuleVisitor<B> for PartVisitor {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.trail.enter(name, container);
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.trail.exit();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let path = self.trail.path();
        if let Some((whole, _)) = part_of(&path) {
            let rows = param.lazy_shape().iter().next().copied().unwrap_or(1);
            self.parts.0.entry(whole.to_owned()).or_default().push(rows);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_recognized_by_path() {
        assert_eq!(part_of("tokens.parts.12"), Some(("tokens", 12)));
        assert_eq!(part_of("decoder.head.parts.0"), Some(("decoder.head", 0)));
        assert_eq!(part_path("tokens", 12), "tokens.parts.12");
        for whole in [
            "tokens",
            "tokens.parts",
            "tokens.parts.x",
            "blocks.0.norm1.gain",
        ] {
            assert_eq!(part_of(whole), None);
            assert_eq!(whole_path(whole), whole);
        }
    }

    #[test]
    fn row_range_starts_after_preceding_parts() {
        let parts = Parts(HashMap::from([("tokens".to_owned(), vec![4, 3, 3])]));
        let range = parts.row_range("tokens.parts.2");
        assert_eq!((range.whole, range.start), ("tokens", 7));
        assert_eq!(range.whole_shape(&[3, 5]), [10, 5]);
        assert_eq!(range.elements(&[3, 5]), 35..50);
        let range = parts.row_range("positions.weight");
        assert_eq!(range.whole_shape(&[8, 5]), [8, 5]);
        assert_eq!(range.elements(&[8, 5]), 0..40);
    }
}
