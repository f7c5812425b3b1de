//! Computes the contents of a plot of curves: curves, limits and labels.

use super::axes::{AxisOptions, log_axis, y_axis};
use super::axis::{Axis, ends};
use super::curve::Curve;
use super::group::Group;
use super::legend::{Legend, LegendRow};
use super::quantity::Quantity;
use super::scale::{Scale, XQuantity};
use super::summary::{headings, row};
use crate::error::CliError;

/// A plot of curves.
#[derive(Clone, Debug)]
pub struct Figure {
    pub legend: Legend,
    /// Label of the horizontal axis.
    pub along: String,
    pub x: Axis,
    pub y: Axis,
    pub curves: Vec<Curve>,
    /// The lowest achievable validation loss, converted to the plotted quantity.
    pub floor: Option<f64>,
}

impl Figure {
    /// Builds the plot of `groups`. `names` is the heading of their names.
    ///
    /// # Errors
    /// Returns an error if there is nothing to draw.
    pub fn new(
        groups: &[Group],
        names: &str,
        along: XQuantity,
        quantity: &Quantity,
        options: AxisOptions,
    ) -> Result<Self, CliError> {
        let runs = || groups.iter().flat_map(|group| &group.runs);
        let scale = Scale::new(along, runs());
        let mut curves: Vec<Curve> = groups
            .iter()
            .enumerate()
            .map(|(number, group)| Curve::new(number, group, quantity, &scale))
            .collect();
        // A learning-rate range test evaluates only after its last step, whose loss says nothing about the others.
        let is_range_test = along == XQuantity::Rate;
        if is_range_test {
            curves
                .iter_mut()
                .for_each(|curve| curve.validation.points.clear());
        }
        let validated = !is_range_test && runs().any(|run| run.history.best().is_some());
        let floors = runs().filter_map(|run| run.history.floor);
        let floor = floors.reduce(f64::min);
        let floor = floor.and_then(|loss| quantity.of_loss(loss));
        let all = curves.iter().flat_map(Curve::points).map(|p| p.1).collect();
        let full = options.is_full(quantity);
        let lines = curves.iter().flat_map(Curve::lines);
        let ranges = lines.filter_map(|line| line.range(full));
        let y = y_axis(all, ranges, quantity, floor, options)?;
        let rows = curves.iter().zip(groups).map(|(curve, group)| LegendRow {
            look: curve.look,
            cells: row(group, validated),
        });
        Ok(Self {
            legend: Legend {
                title: quantity.label(),
                about: about(&curves, &y),
                headings: headings(names, validated),
                rows: rows.collect(),
            },
            along: scale.label,
            x: x_axis(&curves, along, options.log_x)?,
            y,
            floor,
            curves,
        })
    }
}

fn x_axis(curves: &[Curve], along: XQuantity, log: bool) -> Result<Axis, CliError> {
    let xs: Vec<f64> = curves.iter().flat_map(Curve::points).map(|p| p.0).collect();
    if log {
        return log_axis(&xs, (0.0, 0.01), 8, "--log-x");
    }
    let (_, end) = ends(&xs).unwrap_or((0.0, 0.0));
    let end = if end > 0.0 { 1.02 * end } else { 1.0 };
    Ok(match along {
        XQuantity::Time | XQuantity::Flops | XQuantity::Rate => Axis::linear(0.0, end, 8),
        XQuantity::Steps | XQuantity::Tokens => Axis::counts(end, 8),
    })
}

/// Describes the line styles in use, and states the number of values beyond the vertical axis.
fn about(curves: &[Curve], y: &Axis) -> String {
    let mut parts = Vec::new();
    let smoothed = curves.iter().any(|curve| !curve.training.logged.is_empty());
    let training = match smoothed {
        true => "training, smoothed, the logged values faint behind",
        false => "training",
    };
    if curves
        .iter()
        .any(|curve| !curve.validation.points.is_empty())
    {
        parts.push(format!("thick with markers: validation; thin: {training}"));
    } else {
        parts.push(training.to_owned());
    }
    if curves.iter().any(Curve::has_band) {
        parts.push("band: mean ± standard deviation".to_owned());
    }
    if curves.iter().any(|curve| !curve.skipped.is_empty()) {
        parts.push("crosses: skipped steps".to_owned());
    }
    let lines = curves.iter().flat_map(Curve::lines);
    let lines = lines.flat_map(|line| line.points.iter().chain(&line.logged));
    match lines.filter(|(_, value)| y.is_outside(*value)).count() {
        0 => {}
        1 => parts.push("1 value is outside".to_owned()),
        count => parts.push(format!("{count} values are outside")),
    }
    parts.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::NamedRun;
    use crate::run_history::{EvaluationPoint, History};
    use crate::run_history::{PacePoint, SkippedStep};
    use emberlm_trainer::events::Event;

    fn run(losses: &[f64]) -> Group {
        let steps = losses.iter().enumerate().map(|(at, &loss)| Event::Step {
            step: 10 * (at + 1),
            tokens: 1000 * (at as u64 + 1),
            learnt: None,
            loss,
            perplexity: Some(loss.exp()),
            gradient_norm: 1.0,
            learning_rate: 1e-3,
            metrics: Default::default(),
        });
        let paces = (1..=losses.len()).map(|at| PacePoint {
            step: 10 * at,
            seconds: 60.0 * at as f64,
            tokens_per_second: 16.0,
        });
        let history = History {
            paces: paces.collect(),
            ..History::of(steps)
        };
        Group::single(NamedRun::new("run".into(), "run".into(), history))
    }

    fn figure(
        groups: &[Group],
        along: XQuantity,
        name: &str,
        log_y: bool,
    ) -> Result<Figure, CliError> {
        let runs = groups.iter().flat_map(|group| &group.runs);
        let options = AxisOptions {
            log_y,
            ..AxisOptions::default()
        };
        Figure::new(groups, "run", along, &Quantity::find(name, runs)?, options)
    }

    #[test]
    fn the_horizontal_axis_shows_steps_tokens_or_time() {
        let runs = [run(&[3.0, 2.0, 1.0, 0.5])];
        let xs = |along| {
            let figure = figure(&runs, along, "loss", false).expect("curves");
            let xs: Vec<f64> = figure.curves[0]
                .training
                .points
                .iter()
                .map(|p| p.0)
                .collect();
            (xs, figure.along)
        };
        assert_eq!(xs(XQuantity::Steps).0, [10.0, 20.0, 30.0, 40.0]);
        assert_eq!(xs(XQuantity::Tokens).0, [1000.0, 2000.0, 3000.0, 4000.0]);
        let (minutes, label) = xs(XQuantity::Time);
        assert_eq!(minutes, [1.0, 2.0, 3.0, 4.0]);
        assert_eq!(label, "minutes of training");
    }

    #[test]
    fn perplexity_and_its_floor_are_exponentials_of_the_loss() {
        let mut runs = [run(&[1.0, 0.0])];
        runs[0].runs[0].history.floor = Some(0.0);
        runs[0].runs[0].history.evaluations = vec![EvaluationPoint {
            step: 20,
            loss: 2.0,
        }];
        let readings = vec![(20, 2f64.exp())];
        let validated = &mut runs[0].runs[0].history.validated;
        validated.insert("perplexity".into(), readings);
        let figure = figure(&runs, XQuantity::Steps, "perplexity", true).expect("curves");
        assert_eq!(figure.floor, Some(1.0));
        assert_eq!(figure.curves[0].validation.points, [(20.0, 2f64.exp())]);
        assert_eq!(figure.curves[0].training.points[0].1, 1f64.exp());
        assert_eq!(
            figure.legend.rows[0].cells,
            ["run", "2.0000", "2.0000", "20"]
        );
    }

    #[test]
    fn single_points_and_nan_values_are_handled() {
        for loss in [2.0, 0.0, -1.0] {
            let figure = figure(&[run(&[loss])], XQuantity::Steps, "loss", false);
            assert!(figure.is_ok(), "{loss}");
        }
        let nothing = [run(&[f64::NAN])];
        assert!(figure(&nothing, XQuantity::Steps, "loss", false).is_err());
        assert!(figure(&[run(&[-1.0])], XQuantity::Steps, "loss", true).is_err());
        let mut with_skipped = run(&[2.0, f64::NAN, 1.0]);
        with_skipped.runs[0].history.skipped = vec![SkippedStep {
            step: 20,
            loss: None,
            gradient_norm: None,
        }];
        let figure = figure(&[with_skipped], XQuantity::Steps, "loss", false);
        let figure = figure.expect("curves");
        assert_eq!(figure.curves[0].skipped, [(20.0, None)]);
        assert!(
            figure.legend.about.contains("skipped"),
            "{}",
            figure.legend.about
        );
    }

    #[test]
    fn a_group_has_the_mean_of_its_runs_and_a_band() {
        let of = |losses: &[f64]| run(losses).runs.remove(0);
        let group = Group {
            name: "0.001".into(),
            runs: vec![of(&[3.0, 2.0]), of(&[5.0, 4.0]), of(&[4.0, 6.0, 1.0])],
            is_mean: true,
        };
        let figure = figure(&[group], XQuantity::Steps, "loss", false).expect("curves");
        let line = &figure.curves[0].training;
        // The deviations of 3, 4, 5 and of 2, 4, 6 are 1 and 2.
        assert_eq!(line.points, [(10.0, 4.0), (20.0, 4.0)]);
        assert_eq!(line.band, [(10.0, 3.0, 5.0), (20.0, 2.0, 6.0)]);
        // The last losses are 2, 4 and 1: the mean is 7/3, the variance (1/9 + 25/9 + 16/9) / 2 = 7/3.
        let expected = ["0.001 (3 runs)", "2.3333 ± 1.5275", "2k–3k", "20–30"];
        assert_eq!(figure.legend.rows[0].cells, expected);
        assert!(figure.legend.about.contains("standard deviation"));
    }

    #[test]
    fn outliers_are_cut_off_and_counted() {
        let mut losses = vec![60.0];
        losses.extend((0..20).map(|i| 4.0 - 0.1 * f64::from(i)));
        losses.extend([900.0, 1000.0]);
        let groups = [run(&losses)];
        let figure = |full_range| {
            let quantity = Quantity::find("loss", groups[0].runs.iter()).expect("a metric");
            let options = AxisOptions {
                full_range,
                ..AxisOptions::default()
            };
            Figure::new(&groups, "run", XQuantity::Steps, &quantity, options).expect("curves")
        };
        let robust = figure(false);
        assert!((4.0..12.0).contains(&robust.y.to), "{:?}", robust.y);
        assert!(robust.legend.about.contains("3 values are outside"));
        assert!(figure(true).y.to > 1000.0);
        assert!(!figure(true).legend.about.contains("outside"));
    }
}
