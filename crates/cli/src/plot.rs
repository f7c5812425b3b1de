//! Plots of runs and attention, drawn with `plotters`.
//!
//! | module | contents |
//! |---|---|
//! | `figure`, `quantity`, `draw`, `legend` | curves of runs: values, metric, drawing, legend |
//! | `intervals` | means with confidence intervals |
//! | `heat_map`, `token_label` | attention weights; tokens as labels |
//! | `axis`, `smooth`, `clip`, `marker`, `theme` | limits and ticks, smoothing, clipping, markers, colours
//! and fonts |
//! | `paint`, `page`, `file` | SVG and PNG; HTML; format by file name |

mod axis;
mod clip;
mod draw;
mod figure;
mod file;
pub mod heat_map;
mod intervals;
mod legend;
mod marker;
mod page;
mod paint;
mod quantity;
mod smooth;
mod theme;
mod token_label;

pub use axis::short;
pub use figure::{Figure, NamedRun, XQuantity};
pub use file::{Format, PictureFile};
pub use heat_map::HeatMap;
pub use intervals::{IntervalRow, Intervals};
pub use legend::middle_cut;
pub use page::Page;
pub use paint::svg;
pub use quantity::Quantity;
pub use token_label::id_label;
