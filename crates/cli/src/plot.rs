//! Plots of runs and attention, drawn with `plotters`.
//!
//! | module | contents |
//! |---|---|
//! | `group`, `curve`, `mean`, `smooth` | runs, their curves, means over runs, smoothing |
//! | `figure`, `scale`, `quantity`, `limits` | a plot of curves: its axes and limits |
//! | `reading`, `scatter`, `draw_scatter` | a plot of points: one value per run |
//! | `draw`, `clip`, `marker`, `legend`, `summary` | drawing of curves; the legend and its numbers |
//! | `intervals` | means with confidence intervals |
//! | `heat_map`, `token_label` | attention weights; tokens as labels |
//! | `layer_map`, `cells` | norms by layer and step; the cells of both heat maps |
//! | `axes`, `axis`, `theme` | vertical and logarithmic axes; ticks; colours and fonts |
//! | `paint`, `page`, `file` | SVG and PNG; HTML; format by file name |

mod axes;
mod axis;
mod cells;
mod clip;
mod curve;
mod draw;
mod draw_scatter;
mod figure;
mod file;
mod group;
pub mod heat_map;
mod intervals;
mod layer_map;
mod legend;
mod limits;
mod marker;
mod mean;
pub mod page;
mod paint;
mod quantity;
mod reading;
mod scale;
mod scatter;
mod smooth;
mod summary;
mod theme;
mod token_label;

pub use axes::AxisOptions;
pub use axis::short;
pub use curve::{Points, readings};
pub use figure::Figure;
pub use file::{Format, PictureFile};
pub use group::{Group, NamedRun};
pub use heat_map::HeatMap;
pub use intervals::{IntervalRow, Intervals};
pub use layer_map::LayerMap;
pub use legend::{Legend, middle_cut};
pub use mean::{Mean, mean_curve};
pub use page::Page;
pub use paint::{Picture, svg};
pub use quantity::Quantity;
pub use reading::Reading;
pub use scale::{Scale, XQuantity};
pub use scatter::{Labels, Point, Position, Scatter, Series};
pub use smooth::local_regression;
pub use summary::{headings, row};
pub use token_label::{id_label, token_label};
