//! Parameters in parts, which are one to whoever reads or writes weights.
//!
//! A [`crate::TokenTable`] that a device does not take in one buffer is several parameters: that of the path `tokens` is
//! `tokens.parts.0`, `tokens.parts.1` and so on, consecutive rows in the order in which a module is walked. Files have only `tokens`.

use std::collections::HashMap;
use std::ops::Range;

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;

use super::Trail;

/// Between a parameter's path and the number of its part.
const PARTS: &str = ".parts.";

/// The path of the parameter that a path is of a part of, with the part's number; none for a parameter that is whole.
pub fn part_of(path: &str) -> Option<(&str, usize)> {
    let (whole, number) = path.rsplit_once(PARTS)?;
    Some((whole, number.parse().ok()?))
}

/// The path of the whole parameter that a path is, or is of a part of.
pub fn whole_path(path: &str) -> &str {
    part_of(path).map_or(path, |(whole, _)| whole)
}

/// The path of a part.
pub fn part_path(whole: &str, number: usize) -> String {
    format!("{whole}{PARTS}{number}")
}

/// The parts that a module's parameters are cut into: the rows of each part, by the whole's path. Nothing is computed for it.
#[derive(Clone, Debug, Default)]
pub struct Parts(HashMap<String, Vec<usize>>);

/// The rows of a whole parameter that a path has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RowRange<'a> {
    /// The whole's path.
    pub(crate) whole: &'a str,
    /// The part's first row in it.
    pub(crate) start: usize,
    /// The whole's rows; none where the parameter is no part.
    total: Option<usize>,
}

impl Parts {
    /// Those of a module.
    pub fn of<B: Backend, M: Module<B>>(module: &M) -> Self {
        let mut found = PartVisitor {
            trail: Trail::default(),
            parts: Self::default(),
        };
        module.visit(&mut found);
        found.parts
    }

    /// The rows of each part of a parameter; none of one that is whole.
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
    /// The whole's shape, of the part's.
    pub(crate) fn whole_shape(&self, part: &[usize]) -> Vec<usize> {
        let mut shape = part.to_vec();
        if let (Some(total), Some(rows)) = (self.total, shape.first_mut()) {
            *rows = total;
        }
        shape
    }

    /// The part's elements among the whole's, where the part has this shape.
    pub(crate) fn elements(&self, part: &[usize]) -> Range<usize> {
        let columns: usize = part.iter().skip(1).product();
        let start = self.start * columns;
        start..start + part.iter().product::<usize>()
    }
}

/// Parameters by path with the parts of each together, in the order of their rows, under the whole's path. Parts of one parameter
/// stand beside each other.
pub fn together<B: Backend>(
    tensors: impl IntoIterator<Item = (String, FloatTensor<B>)>,
) -> Vec<(String, Vec<FloatTensor<B>>)> {
    let mut found: Vec<(String, Vec<FloatTensor<B>>)> = Vec::new();
    for (path, tensor) in tensors {
        match (part_of(&path), found.last_mut()) {
            (Some((whole, number)), Some((last, parts))) if number > 0 && last == whole => {
                parts.push(tensor);
            }
            _ => found.push((whole_path(&path).to_owned(), vec![tensor])),
        }
    }
    found
}

/// Uses only shapes: a lazy parameter is not initialized by it.
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
    fn a_part_is_known_by_its_path() {
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
    fn a_part_s_place_is_after_those_before_it() {
        let parts = Parts(HashMap::from([("tokens".to_owned(), vec![4, 3, 3])]));
        let place = parts.row_range("tokens.parts.2");
        assert_eq!((place.whole, place.start), ("tokens", 7));
        assert_eq!(place.whole_shape(&[3, 5]), [10, 5]);
        assert_eq!(place.elements(&[3, 5]), 35..50);
        let place = parts.row_range("positions.weight");
        assert_eq!(place.whole_shape(&[8, 5]), [8, 5]);
        assert_eq!(place.elements(&[8, 5]), 0..40);
    }
}
