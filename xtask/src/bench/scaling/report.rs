//! How costs are shown: a Markdown table, or one line of JSON.

use serde_json::{Value, json};

use super::super::measurement::Measurement;
use super::{Dimension, Point};

/// What a step of some size cost.
#[derive(Debug, Clone)]
pub struct Measured {
    /// The sizes.
    pub point: Point,
    /// The cost.
    pub run: Measurement,
}

/// All sizes.
#[derive(Debug, Clone)]
pub struct Report {
    /// Each once.
    pub measured: Vec<Measured>,
}

impl Report {
    /// The base with one size varied, as far as it was measured.
    pub fn along(&self, dimension: Dimension) -> Vec<&Measured> {
        let points = dimension.points();
        let of = |point: &Point| self.measured.iter().find(|m| m.point == *point);
        points.iter().filter_map(of).collect()
    }

    /// One line, with every size.
    pub fn to_json(&self) -> String {
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
        json!({ "points": rows.collect::<Vec<Value>>() }).to_string()
    }

    /// A table: the rows of each dimension one after the other, what is varied in bold.
    pub fn to_markdown(&self) -> String {
        let mut text = "| width | sequence | batch | parameters | tokens/s | s/step | peak MiB |\n\
                        |---|---|---|---|---|---|---|\n"
            .to_owned();
        for dimension in Dimension::ALL {
            for Measured { point, run } in self.along(dimension) {
                for column in Dimension::ALL {
                    let size = column.of(*point);
                    text.push_str(&match column == dimension {
                        true => format!("| **{size}** "),
                        false => format!("| {size} "),
                    });
                }
                text.push_str(&format!(
                    "| {:.1}M | {:.0} | {:.3} | {} |\n",
                    run.parameters as f64 / 1e6,
                    run.tokens_per_second,
                    run.seconds_per_step,
                    run.peak_rss_mib
                ));
            }
        }
        text
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::{super::super::measurement::tests::example, super::points, *};

    /// Speeds that fall with every size.
    pub fn report() -> Report {
        let measured = |point: Point| Measured {
            point,
            run: example(1e9 / (point.width * point.seq * point.batch) as f64),
        };
        Report {
            measured: points(None).into_iter().map(measured).collect(),
        }
    }

    #[test]
    fn every_dimension_has_its_rows() {
        let table = report().to_markdown();
        assert_eq!(table.lines().count(), 2 + 4 + 6 + 5, "{table}");
        assert!(
            table.contains("\n| **256** | 512 | 1 | 0.8M | 7629 | 0.250 | 90 |\n"),
            "{table}"
        );
        assert!(table.contains("| 256 | **4096** | 1 |"), "{table}");
    }

    #[test]
    fn json_has_every_size_once() {
        let value: Value = serde_json::from_str(&report().to_json()).unwrap();
        assert_eq!(value["points"].as_array().map(Vec::len), Some(13));
        assert_eq!(value["points"][0]["width"], 128);
    }
}
