//! Programs that are measured alternately.

use serde::{Deserialize, Serialize};

use super::{Unit, median};

/// A measured quantity.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Metric {
    /// The name; may be empty if the unit says enough.
    pub name: String,
    /// The unit.
    pub unit: Unit,
}

impl Metric {
    /// A metric of this name and unit.
    pub fn new(name: impl Into<String>, unit: Unit) -> Self {
        let name = name.into();
        Self { name, unit }
    }

    /// The name with the unit.
    pub fn heading(&self) -> String {
        match (&self.name[..], self.unit.symbol()) {
            (name, "") => name.to_owned(),
            ("", symbol) => symbol.to_owned(),
            (name, symbol) => format!("{name}, {symbol}"),
        }
    }
}

/// The values of a metric, one per repetition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// The metric.
    #[serde(flatten)]
    pub metric: Metric,
    /// The finite values.
    pub values: Vec<f64>,
}

impl Figure {
    /// The median of the values.
    pub fn median(&self) -> f64 {
        median(self.values.clone())
    }

    /// The median, and half the range of the values relative to it if there are several.
    pub fn shown(&self) -> String {
        let (middle, unit) = (self.median(), self.metric.unit);
        let least = self.values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = self.values.iter().copied().fold(-f64::INFINITY, f64::max);
        let spread = 50.0 * (most - least) / middle.abs();
        match spread.is_finite() && spread > 0.0 {
            true => format!("{} ±{spread:.0}%", unit.number(middle)),
            false => unit.number(middle),
        }
    }
}

/// The result of one run of a program.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// The program's name for itself, with its version.
    pub version: Option<String>,
    /// The values. Those that are not finite are left out.
    pub values: Vec<(Metric, f64)>,
}

/// A program, or a way to run one, that takes part in a comparison.
pub struct Contender<'a, E> {
    name: String,
    run: Box<dyn FnMut() -> Result<Sample, E> + 'a>,
}

impl<'a, E> Contender<'a, E> {
    /// A contender that is measured by `run`.
    pub fn new(name: impl Into<String>, run: impl FnMut() -> Result<Sample, E> + 'a) -> Self {
        Self {
            name: name.into(),
            run: Box::new(run),
        }
    }
}

/// The figures of a program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The name in the comparison.
    pub program: String,
    /// The program's name for itself, with its version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// All figures, in the order in which they were first measured.
    pub figures: Vec<Figure>,
}

impl Measured {
    /// The figure of this heading.
    pub fn figure(&self, heading: &str) -> Option<&Figure> {
        let mut figures = self.figures.iter();
        figures.find(|figure| figure.metric.heading() == heading)
    }
}

/// The direction of ratios.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ratio {
    /// The first program's values over those of another.
    FirstToOther,
    /// Another program's values over those of the first.
    OtherToFirst,
}

/// Programs that were measured on the same workload alternately, so that changes of the machine's load affect all of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The workload.
    pub workload: String,
    /// The direction of the ratios.
    pub ratio: Ratio,
    /// The programs. The others are compared with the first.
    pub programs: Vec<Measured>,
}

impl Comparison {
    /// A comparison without programs.
    pub fn new(workload: impl Into<String>, ratio: Ratio) -> Self {
        Self {
            workload: workload.into(),
            ratio,
            programs: Vec::new(),
        }
    }

    /// Runs every contender once per round. `report` is called with the progress.
    ///
    /// # Errors
    /// A run fails.
    pub fn interleaved<E>(
        workload: impl Into<String>,
        ratio: Ratio,
        rounds: usize,
        mut contenders: Vec<Contender<'_, E>>,
        report: impl Fn(&str),
    ) -> Result<Self, E> {
        let mut this = Self::new(workload, ratio);
        for round in 1..=rounds {
            report(&format!("{}, round {round} of {rounds}", this.workload));
            for contender in &mut contenders {
                let sample = (contender.run)()?;
                report(&progress(&contender.name, &sample));
                this.add(&contender.name, sample);
            }
        }
        Ok(this)
    }

    /// Adds a repetition of a program.
    pub fn add(&mut self, program: &str, sample: Sample) {
        let known = self.programs.iter().position(|it| it.program == program);
        let at = known.unwrap_or_else(|| {
            self.programs.push(Measured {
                program: program.to_owned(),
                version: sample.version,
                figures: Vec::new(),
            });
            self.programs.len() - 1
        });
        let figures = &mut self.programs[at].figures;
        let values = sample.values.into_iter();
        for (metric, value) in values.filter(|(_, value)| value.is_finite()) {
            match figures.iter_mut().find(|it| it.metric == metric) {
                Some(figure) => figure.values.push(value),
                None => figures.push(Figure {
                    metric,
                    values: vec![value],
                }),
            }
        }
    }

    /// The program of this name.
    pub fn program(&self, name: &str) -> Option<&Measured> {
        self.programs.iter().find(|it| it.program == name)
    }

    /// The median of the rounds' ratios of a figure: the first program's to another's, or the reverse. It is more reliable
    /// than the ratio of the medians if the load of the machine drifts.
    pub fn ratio_of(&self, program: &Measured, heading: &str) -> Option<f64> {
        let (first, other) = (self.programs.first()?, program);
        let (above, below) = match self.ratio {
            Ratio::FirstToOther => (first, other),
            Ratio::OtherToFirst => (other, first),
        };
        let (above, below) = (above.figure(heading)?, below.figure(heading)?);
        let rounds = above.values.iter().zip(&below.values);
        let ratio = median(rounds.map(|(above, below)| above / below).collect());
        ratio.is_finite().then_some(ratio)
    }
}

fn progress(name: &str, sample: &Sample) -> String {
    let shown = |(metric, value): &(Metric, f64)| match &metric.name[..] {
        "" => metric.unit.shown(*value),
        name => format!("{name} {}", metric.unit.shown(*value)),
    };
    let values = sample.values.iter().filter(|(_, value)| value.is_finite());
    let values: Vec<String> = values.take(4).map(shown).collect();
    format!("  {name}: {}", values.join(", "))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub fn sample(speed: f64, bytes: f64) -> Sample {
        Sample {
            version: None,
            values: vec![
                (Metric::new("", Unit::TokensPerSecond), speed),
                (Metric::new("step", Unit::Seconds), 1.0 / speed),
                (Metric::new("peak", Unit::Bytes), bytes),
            ],
        }
    }

    /// Three rounds of two programs. The machine was slow in the second one.
    pub fn example() -> Comparison {
        let ours = [60.0, 12.0, 70.0];
        let theirs = [50.0, 10.0, 56.0];
        let of = |speeds: [f64; 3], bytes| {
            let mut speeds = speeds.into_iter();
            move || Ok(sample(speeds.next().unwrap(), bytes))
        };
        let mib = f64::from(1 << 20);
        let contenders: Vec<Contender<'_, ()>> = vec![
            Contender::new("ours", of(ours, 150.0 * mib)),
            Contender::new("theirs", of(theirs, 300.0 * mib)),
        ];
        let ratio = Ratio::FirstToOther;
        Comparison::interleaved("tiny", ratio, 3, contenders, |_| {}).unwrap()
    }

    #[test]
    fn rounds_interleave_the_programs() {
        let order = std::cell::RefCell::new(Vec::new());
        let order = &order;
        let contender = |name: &'static str| {
            Contender::<()>::new(name, move || {
                order.borrow_mut().push(name);
                Ok(Sample::default())
            })
        };
        let contenders = vec![contender("a"), contender("b")];
        Comparison::interleaved("w", Ratio::FirstToOther, 2, contenders, |_| {}).unwrap();
        assert_eq!(*order.borrow(), ["a", "b", "a", "b"]);
    }

    #[test]
    fn a_failed_run_ends_the_comparison() {
        let contenders = vec![Contender::new("a", || Err("lost"))];
        let result = Comparison::interleaved("w", Ratio::FirstToOther, 2, contenders, |_| {});
        assert_eq!(result, Err("lost"));
    }

    #[test]
    fn ratios_compare_runs_of_the_same_round() {
        let mut comparison = example();
        let theirs = comparison.programs[1].clone();
        assert_eq!(comparison.ratio_of(&theirs, "tokens/s"), Some(1.2));
        assert_eq!(comparison.ratio_of(&theirs, "peak, MiB"), Some(0.5));
        assert_eq!(comparison.ratio_of(&theirs, "loss, nats"), None);
        comparison.ratio = Ratio::OtherToFirst;
        assert_eq!(comparison.ratio_of(&theirs, "peak, MiB"), Some(2.0));
    }

    #[test]
    fn a_figure_shows_its_spread() {
        let comparison = example();
        let ours = &comparison.programs[0];
        assert_eq!(ours.figure("tokens/s").unwrap().shown(), "60.0 ±48%");
        assert_eq!(ours.figure("peak, MiB").unwrap().shown(), "150.0");
    }

    #[test]
    fn values_that_are_not_finite_are_left_out() {
        let mut comparison = Comparison::new("w", Ratio::FirstToOther);
        comparison.add("a", sample(2.0, f64::NAN));
        assert_eq!(comparison.programs[0].figures.len(), 2);
        assert!(comparison.program("b").is_none());
    }
}
