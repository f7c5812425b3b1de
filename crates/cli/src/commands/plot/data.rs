//! `plot --out FILE.csv`: the data of a plot, before smoothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::csv::{Csv, number};
use crate::plot::{
    Group, Mean, PictureFile, Points, Quantity, Scale, Series, XQuantity, mean_curve, readings,
};

/// The file of a plot.
#[derive(Clone, Debug)]
pub enum PlotFile {
    Picture(PictureFile),
    /// The data as comma-separated values.
    Csv(PathBuf),
}

impl PlotFile {
    /// The value name in `--help`.
    pub const VALUE_NAME: &str = "FILE.html|.svg|.png|.csv";

    /// The path of the file.
    pub fn path(&self) -> &Path {
        match self {
            Self::Picture(file) => &file.path,
            Self::Csv(path) => path,
        }
    }

    /// Parses a file name.
    ///
    /// # Errors
    /// Returns an error if the extension is not supported.
    pub fn parse(text: &str) -> Result<Self, String> {
        let path = PathBuf::from(text);
        let extension = path.extension().unwrap_or_default();
        match extension.eq_ignore_ascii_case("csv") {
            true => Ok(Self::Csv(path)),
            false => PictureFile::parse(text)
                .map(Self::Picture)
                .map_err(|_| "must end in .html, .svg, .png or .csv".to_owned()),
        }
    }
}

/// The data of curves: one row per run and step, or per group and position.
pub fn curves(groups: &[Group], names: &str, along: XQuantity, quantity: &Quantity) -> Csv {
    match groups.iter().any(|group| group.is_mean) {
        true => means(groups, names, along, quantity),
        false => steps(groups, along, quantity),
    }
}

fn steps(groups: &[Group], along: XQuantity, quantity: &Quantity) -> Csv {
    let mut headings = vec!["run".to_owned()];
    headings.extend(["step", "tokens", "seconds"].map(str::to_owned));
    let has_flops = along == XQuantity::Flops;
    headings.extend(has_flops.then(|| "flops".to_owned()));
    headings.extend(["training", "validation"].map(|phase| format!("{phase}_{}", quantity.name())));
    let mut csv = Csv::new(headings);
    let scales = [XQuantity::Tokens, XQuantity::Time, XQuantity::Flops].map(Scale::in_base_units);
    for run in groups.iter().flat_map(|group| &group.runs) {
        let history = &run.history;
        let mut values: BTreeMap<usize, [Option<f64>; 2]> = BTreeMap::new();
        for (column, series) in [&history.trained, &history.validated]
            .into_iter()
            .enumerate()
        {
            for (step, value) in quantity.points(series) {
                values.entry(step).or_default()[column] = Some(value);
            }
        }
        for (step, values) in values {
            let mut row = vec![run.name.clone(), step.to_string()];
            let places = scales.iter().map(|scale| scale.coordinate(run, step));
            row.extend(places.take(2 + usize::from(has_flops)).map(number));
            row.extend(values.map(number));
            csv.row(row);
        }
    }
    csv
}

fn means(groups: &[Group], names: &str, along: XQuantity, quantity: &Quantity) -> Csv {
    let mut headings = vec![
        names.to_owned(),
        "runs".to_owned(),
        along.column().to_owned(),
    ];
    for phase in ["training", "validation"] {
        let name = format!("{phase}_{}", quantity.name());
        headings.extend([name.clone(), name + "_deviation"]);
    }
    let mut csv = Csv::new(headings);
    let scale = Scale::in_base_units(along);
    for group in groups {
        let of = |curves: Vec<Points>| mean_curve(&curves);
        let trained = of(readings(group, quantity, &scale, |run| {
            &run.history.trained
        }));
        let validated = of(readings(group, quantity, &scale, |run| {
            &run.history.validated
        }));
        let mut rows: Vec<(f64, [Option<Mean>; 2])> = Vec::new();
        rows.extend(trained.into_iter().map(|(x, mean)| (x, [Some(mean), None])));
        rows.extend(
            validated
                .into_iter()
                .map(|(x, mean)| (x, [None, Some(mean)])),
        );
        rows.sort_by(|a, b| a.0.total_cmp(&b.0));
        rows.dedup_by(|next, kept| {
            let is_same = next.0 == kept.0;
            if is_same {
                kept.1[1] = kept.1[1].or(next.1[1]);
            }
            is_same
        });
        for (x, means) in rows {
            let mut row = vec![
                group.name.clone(),
                group.runs.len().to_string(),
                x.to_string(),
            ];
            for mean in means {
                row.push(number(mean.map(|mean| mean.mean)));
                // One run has no deviation.
                let several = mean.filter(|_| group.runs.len() > 1);
                row.push(number(several.map(|mean| mean.deviation)));
            }
            csv.row(row);
        }
    }
    csv
}

/// The data of points: one row per point. `along` is the heading of the horizontal positions, `value` that of the values.
pub fn points(series: &[Series], names: &str, along: &str, value: &str) -> Csv {
    let is_mean = series.iter().any(|series| series.is_mean);
    let mut headings = vec![names.to_owned(), along.to_owned(), value.to_owned()];
    if is_mean {
        headings.extend([format!("{value}_deviation"), "runs".to_owned()]);
    }
    let mut csv = Csv::new(headings);
    for point in series.iter().flat_map(|series| &series.points) {
        let mut row = vec![point.name.clone(), point.x.text(), point.y.mean.to_string()];
        if is_mean {
            let several = (point.runs > 1).then_some(point.y.deviation);
            row.extend([number(several), point.runs.to_string()]);
        }
        csv.row(row);
    }
    csv
}
