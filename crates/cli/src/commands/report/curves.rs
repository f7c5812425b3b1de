//! Plots of the metrics of runs.

use emberlm_trainer::events::NormKind;

use super::document::Block;
use crate::error::CliError;
use crate::plot::{AxisOptions, Figure, Group, LayerMap, NamedRun, Quantity, XQuantity, svg};

/// The plotted metrics, as far as the runs have them.
const METRICS: [&str; 4] = [
    "loss",
    "gradient_norm",
    "learning_rate",
    "tokens_per_second",
];

/// A plot of each metric. `names` is the heading of the groups' names.
pub fn plots(groups: &[Group], names: &str) -> Result<Vec<Block>, CliError> {
    let mut blocks = Vec::new();
    for metric in METRICS {
        blocks.extend(plot(groups, names, metric)?);
    }
    Ok(blocks)
}

/// The plot of a metric. `None` if the runs have no finite value of it.
pub fn plot(groups: &[Group], names: &str, metric: &str) -> Result<Option<Block>, CliError> {
    let runs = groups.iter().flat_map(|group| &group.runs);
    let Ok(quantity) = Quantity::find(metric, runs) else {
        return Ok(None);
    };
    let options = AxisOptions::default();
    match Figure::new(groups, names, XQuantity::Steps, &quantity, options) {
        Ok(figure) => Ok(Some(Block::Picture(svg(&figure)?))),
        Err(_) => Ok(None),
    }
}

/// Heat maps of the norms by layer that a run recorded.
pub fn norms(run: &NamedRun) -> Result<Vec<Block>, CliError> {
    let maps = NormKind::ALL.into_iter();
    let maps = maps.filter_map(|kind| LayerMap::new(run, kind));
    let pictures: Vec<Block> = maps
        .map(|map| Ok(Block::Picture(svg(&map)?)))
        .collect::<Result<_, CliError>>()?;
    let heading = (!pictures.is_empty()).then(|| Block::Heading("Norms by layer".to_owned()));
    Ok(heading.into_iter().chain(pictures).collect())
}

/// A run that is drawn as it is. `None` if it has no logged step.
pub fn drawn(run: NamedRun) -> Option<Group> {
    let has_steps = !run.history.steps.is_empty();
    has_steps.then(|| Group::single(run))
}
