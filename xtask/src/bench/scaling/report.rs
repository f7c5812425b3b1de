//! The result of `cargo xtask bench scaling`.

use serde_json::{Value, json};

use super::super::measurement::Measurement;
use super::super::report::Column::Number;
use super::super::report::{Report, Table};
use super::{Dimension, Point};

/// The cost of a step of one size.
#[derive(Debug, Clone)]
pub struct Measured {
    /// The sizes.
    pub point: Point,
    /// The measured run.
    pub run: Measurement,
}

/// All sizes.
#[derive(Debug, Clone)]
pub struct ScalingReport {
    /// Each point once.
    pub measured: Vec<Measured>,
}

impl ScalingReport {
    /// The measured points along `dimension`, with the others at the base.
    pub fn along(&self, dimension: Dimension) -> Vec<&Measured> {
        let points = dimension.points();
        let of = |point: &Point| self.measured.iter().find(|m| m.point == *point);
        points.iter().filter_map(of).collect()
    }
}

impl Report for ScalingReport {
    /// All points.
    fn to_json(&self) -> Value {
        let rows = self.measured.iter().map(|Measured { point, run }| {
            json!({
                "width": point.width,
                "sequence": point.seq,
                "batch": point.batch,
                "parameters": run.parameters,
                "tokens_per_second": run.tokens_per_second,
                "seconds_per_step": run.seconds_per_step,
                "peak_rss_mib": run.peak_rss_mib,
            })
        });
        json!({ "points": rows.collect::<Vec<Value>>() })
    }

    /// In Markdown: the rows of one dimension after the other, with the varied size in bold.
    fn to_text(&self) -> String {
        let mut table = Table::new(
            [
                "width",
                "sequence",
                "batch",
                "parameters",
                "tokens/s",
                "s/step",
                "peak MiB",
            ]
            .map(Number),
        );
        for dimension in Dimension::ALL {
            for Measured { point, run } in self.along(dimension) {
                let size = |column: Dimension| match column == dimension {
                    true => format!("**{}**", column.of(*point)),
                    false => column.of(*point).to_string(),
                };
                let cost = [
                    format!("{:.1}M", run.parameters as f64 / 1e6),
                    format!("{:.0}", run.tokens_per_second),
                    format!("{:.3}", run.seconds_per_step),
                    run.peak_rss_mib.to_string(),
                ];
                table.row(Dimension::ALL.map(size).into_iter().chain(cost));
            }
        }
        table.to_markdown()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::{super::super::measurement::tests::example, super::points, *};

    /// A report whose speed falls with every size.
    pub fn report() -> ScalingReport {
        let measured = |point: Point| Measured {
            point,
            run: example(1e9 / (point.width * point.seq * point.batch) as f64),
        };
        ScalingReport {
            measured: points(None).into_iter().map(measured).collect(),
        }
    }

    #[test]
    fn every_dimension_has_its_rows() {
        let table = report().to_text();
        assert_eq!(table.lines().count(), 2 + 4 + 6 + 5, "{table}");
        assert!(
            table.contains("\n| **256** | 512 | 1 | 0.8M | 7629 | 0.250 | 90 |\n"),
            "{table}"
        );
        assert!(table.contains("| 256 | **4096** | 1 |"), "{table}");
    }

    #[test]
    fn json_has_every_size_once() {
        let value = report().to_json();
        assert_eq!(value["points"].as_array().map(Vec::len), Some(13));
        assert_eq!(value["points"][0]["width"], 128);
    }
}
