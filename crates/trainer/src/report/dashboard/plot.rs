//! The curves of the metrics.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::Marker;
use ratatui::text::Line;
use ratatui::widgets::{Axis, Block, Chart, Dataset, GraphType, Tabs};

/// Maximum number of points of a curve. Neighbouring points are averaged to stay below it.
const POINTS: usize = 1000;
/// Number of points in the view of the newest steps.
const RECENT: usize = 200;

/// The columns and rows that a chart needs beside others.
const CHART: (u16, u16) = (58, 15);

/// A metric's curves over the steps.
#[derive(Debug, Default)]
pub(super) struct Curves {
    pub(super) name: String,
    pub(super) train: Vec<(f64, f64)>,
    pub(super) valid: Vec<(f64, f64)>,
}

/// The curves of all metrics. Those of one metric are shown.
#[derive(Debug, Default)]
pub(super) struct Plots {
    curves: Vec<Curves>,
    shown: usize,
    /// True if only the newest points are shown.
    recent: bool,
}

impl Plots {
    /// The curves by metric, in the order in which metrics first appear.
    pub(super) fn of(&mut self, name: &str) -> &mut Curves {
        let at = self.curves.iter().position(|curves| curves.name == name);
        let at = at.unwrap_or_else(|| {
            self.curves.push(Curves {
                name: name.to_owned(),
                ..Curves::default()
            });
            self.curves.len() - 1
        });
        &mut self.curves[at]
    }

    /// Shows the next or the previous metric.
    pub(super) fn turn(&mut self, forward: bool) {
        let count = self.curves.len().max(1);
        let by = if forward { 1 } else { count - 1 };
        self.shown = (self.shown + by) % count;
    }

    /// Toggles between all points and the newest.
    pub(super) fn change_range(&mut self) {
        self.recent = !self.recent;
    }

    pub(super) fn draw(&self, frame: &mut Frame<'_>, area: Rect) {
        let range = if self.recent {
            "newest steps"
        } else {
            "all steps"
        };
        let block = Block::bordered().title(format!("Plots, {range}"));
        let inner = block.inner(area);
        frame.render_widget(block, area);
        let [tabs, chart] =
            Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(inner);
        let first = self.first_tab(tabs.width);
        let names = self.curves[first..].iter();
        let names = Tabs::new(names.map(|curves| Line::from(curves.name.as_str())))
            .select(self.shown - first)
            .divider("│")
            .padding(" ", " ")
            .style(Style::default().fg(Color::Gray))
            .highlight_style(
                Style::default()
                    .fg(Color::Yellow)
                    .add_modifier(Modifier::BOLD),
            );
        frame.render_widget(names, tabs);
        let count = self.curves.len();
        let cells = grid(chart, count);
        // One chart is named by its tab.
        let is_named = cells.len() > 1;
        for (at, cell) in cells.into_iter().enumerate() {
            let curves = &self.curves[(self.shown + at) % count];
            let block = match is_named {
                true => Block::new().title(curves.name.as_str()),
                false => Block::new(),
            };
            self.chart(curves, frame, cell, block);
        }
    }

    /// The first tab to draw, so that the selected tab is visible.
    fn first_tab(&self, width: u16) -> usize {
        // Each tab has two blanks and a divider.
        let columns = |curves: &Curves| curves.name.chars().count() + 3;
        let mut left = usize::from(width) + 2;
        let fitting = self.curves.iter().take(self.shown + 1).rev();
        let fitting = fitting.take_while(|curves| {
            let fits = columns(curves) <= left;
            left = left.saturating_sub(columns(curves));
            fits
        });
        (self.shown + 1)
            .saturating_sub(fitting.count().max(1))
            .min(self.curves.len())
    }

    fn chart(&self, curves: &Curves, frame: &mut Frame<'_>, area: Rect, block: Block<'_>) {
        let shown = |points: &[(f64, f64)], from: f64| {
            let first = points.partition_point(|&(step, _)| step < from);
            thinned(&points[first..])
        };
        let newest = curves.train.len().saturating_sub(RECENT);
        let from = match curves.train.get(newest) {
            Some(&(step, _)) if self.recent => step,
            _ => f64::NEG_INFINITY,
        };
        let (train, valid) = (shown(&curves.train, from), shown(&curves.valid, from));
        let all = || train.iter().chain(&valid);
        let range = |pick: fn(&(f64, f64)) -> f64| {
            let start = (f64::INFINITY, f64::NEG_INFINITY);
            let (low, high) = all().map(pick).fold(start, |(low, high), value| {
                (low.min(value), high.max(value))
            });
            match low < high {
                true => [low, high],
                // There is at most one distinct value.
                false if low.is_finite() => [low - 0.5, low + 0.5],
                false => [0.0, 1.0],
            }
        };
        let (x, y) = (range(|point| point.0), range(|point| point.1));
        let middle = |[low, high]: [f64; 2]| (low + high) / 2.0;
        let steps = [x[0], middle(x), x[1]].map(|step| format!("{step:.0}"));
        let values = [y[0], middle(y), y[1]].map(number);
        let curve = |name, color, points| {
            Dataset::default()
                .name(name)
                .marker(Marker::Braille)
                .graph_type(GraphType::Line)
                .style(Style::default().fg(color))
                .data(points)
        };
        let mut curves = vec![curve("train", Color::Yellow, &train)];
        if !valid.is_empty() {
            curves.push(curve("valid", Color::Cyan, &valid));
        }
        let axis = Style::default().fg(Color::DarkGray);
        let chart = Chart::new(curves)
            .block(block)
            .x_axis(Axis::default().style(axis).bounds(x).labels(steps))
            .y_axis(Axis::default().style(axis).bounds(y).labels(values));
        frame.render_widget(chart, area);
    }
}

/// Divides an area into cells for `count` charts, or as many as fit.
fn grid(area: Rect, count: usize) -> Vec<Rect> {
    let columns = usize::from(area.width / CHART.0).clamp(1, count.max(1));
    let rows = usize::from(area.height / CHART.1).clamp(1, count.div_ceil(columns).max(1));
    let rows = Layout::vertical(vec![Constraint::Fill(1); rows]).split(area);
    let columns = Layout::horizontal(vec![Constraint::Fill(1); columns]).spacing(1);
    let cells = rows.iter().flat_map(|row| columns.split(*row).to_vec());
    cells.take(count).collect()
}

/// Averages neighbours down to at most [`POINTS`] points. Non-finite values are left out.
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let finite = points
        .iter()
        .copied()
        .filter(|(_, value)| value.is_finite());
    let finite: Vec<_> = finite.collect();
    let every = finite.len().div_ceil(POINTS).max(1);
    let mean = |points: &[(f64, f64)]| {
        let count = points.len() as f64;
        let sum = points
            .iter()
            .fold((0.0, 0.0), |sum, point| (sum.0 + point.0, sum.1 + point.1));
        (sum.0 / count, sum.1 / count)
    };
    finite.chunks(every).map(mean).collect()
}

/// Formats a number compactly.
fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if (0.01..1000.0).contains(&size) => format!("{value:.2}"),
        size if (1000.0..1e7).contains(&size) => format!("{value:.0}"),
        _ => format!("{value:.1e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_averaged_and_non_finite_ones_skipped() {
        let points: Vec<_> = (0..2500)
            .map(|step| (f64::from(step), f64::from(step % 2)))
            .collect();
        let thin = thinned(&points);
        assert!(
            thin.len() <= POINTS && thin.len() > POINTS / 2,
            "{}",
            thin.len()
        );
        assert_eq!(thin[0].0, 1.0);
        assert_eq!(thinned(&[(1.0, f64::NAN), (2.0, 3.0)]), [(2.0, 3.0)]);
    }

    #[test]
    fn numbers_are_short() {
        let texts = [0.0, 3.25, 12_345.6, 0.000_3, -2.5e9].map(number);
        assert_eq!(texts, ["0", "3.25", "12346", "3.0e-4", "-2.5e9"]);
    }
}
