//! The adapters of the rows of a ragged pass.

/// The rows of a pass in groups of consecutive rows. The rows of a group have one adapter of the model's bank, or the
/// model's own weights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AdapterRows {
    groups: Vec<AdapterGroup>,
}

/// Consecutive rows with one adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AdapterGroup {
    /// The number in the bank; `None` for the model's own weights.
    pub adapter: Option<usize>,
    /// Number of rows.
    pub rows: usize,
}

impl AdapterRows {
    /// The groups of a pass: neighbours with one adapter are joined.
    pub fn of(groups: impl IntoIterator<Item = AdapterGroup>) -> Self {
        let mut joined: Vec<AdapterGroup> = Vec::new();
        for group in groups {
            match joined.last_mut() {
                Some(last) if last.adapter == group.adapter => last.rows += group.rows,
                _ if group.rows == 0 => {}
                _ => joined.push(group),
            }
        }
        Self { groups: joined }
    }

    /// The groups in the order of their rows.
    pub fn groups(&self) -> &[AdapterGroup] {
        &self.groups
    }

    /// The groups of some of the rows, whose numbers are given in ascending order.
    pub fn select(&self, rows: &[i32]) -> Self {
        let mut rest = rows;
        let mut end = 0;
        let groups = self.groups.iter().map(|group| {
            end += group.rows;
            let count = rest.partition_point(|&row| (row as usize) < end);
            rest = &rest[count..];
            AdapterGroup {
                rows: count,
                ..*group
            }
        });
        Self::of(groups)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(groups: &[(Option<usize>, usize)]) -> AdapterRows {
        let groups = groups.iter();
        AdapterRows::of(groups.map(|&(adapter, rows)| AdapterGroup { adapter, rows }))
    }

    #[test]
    fn neighbours_with_one_adapter_are_one_group() {
        let joined = rows(&[
            (None, 2),
            (Some(1), 0),
            (None, 1),
            (Some(0), 3),
            (Some(1), 1),
        ]);
        assert_eq!(joined, rows(&[(None, 3), (Some(0), 3), (Some(1), 1)]));
        assert_eq!(joined.groups().len(), 3);
    }

    #[test]
    fn selected_rows_keep_their_adapters() {
        let all = rows(&[(None, 2), (Some(0), 3), (Some(1), 1), (None, 1)]);
        let expected = [(None, 1), (Some(0), 2), (None, 1)];
        assert_eq!(all.select(&[1, 2, 4, 6]), rows(&expected));
        assert_eq!(all.select(&[]), rows(&[]));
        assert_eq!(all.select(&[0, 1, 6]), rows(&[(None, 3)]));
    }
}
