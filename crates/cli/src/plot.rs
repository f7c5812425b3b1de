//! Plots of runs and attention, drawn with `plotters`.
//!
//! | module | contents |
//! |---|---|
//! | `group`, `curve`, `mean`, `smooth` | runs, their curves, means over runs, smoothing |
//! | `figure`, `scale`, `quantity`, `limits` | a plot of curves: its axes and limits |
//! | `draw`, `clip`, `marker`, `legend`, `summary` | drawing of curves; the legend and its numbers |
//! | `intervals` | means with confidence intervals |
//! | `heat_map`, `token_label` | attention weights; tokens as labels |
//! | `axis`, `theme` | ticks; colours and fonts |
//! | `paint`, `page`, `file` | SVG and PNG; HTML; format by file name |

mod axis;
mod clip;
mod curve;
mod draw;
mod figure;
mod file;
mod group;
pub mod heat_map;
mod intervals;
mod legend;
mod limits;
mod marker;
mod mean;
mod page;
mod paint;
mod quantity;
mod scale;
mod smooth;
mod summary;
mod theme;
mod token_label;

pub use axis::short;
pub use figure::{AxisOptions, Figure};
pub use file::{Format, PictureFile};
pub use group::{Group, NamedRun};
pub use heat_map::HeatMap;
pub use intervals::{IntervalRow, Intervals};
pub use legend::middle_cut;
pub use page::Page;
pub use paint::svg;
pub use quantity::Quantity;
pub use scale::XQuantity;
pub use token_label::token_label;
