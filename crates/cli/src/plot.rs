//! Pictures of runs, drawn by `plotters`.
//!
//! Map: `figure` is what a picture of runs shows, `quantity` the metric that it shows, `draw` draws it with its `legend`; `intervals` shows means with their
//! confidence; `axis` makes limits and ticks, `smooth` and `clip` lines, `marker` what is on them, `theme` colours and
//! type; `paint` makes SVG and PNG of any of these pictures, `page` HTML.

mod axis;
mod clip;
mod draw;
mod figure;
mod intervals;
mod legend;
mod marker;
mod page;
mod paint;
mod quantity;
mod smooth;
mod theme;

pub use axis::short;
pub use figure::{Along, Figure, Named};
pub use intervals::{Estimated, Intervals};
pub use legend::middle_cut;
pub use page::Page;
pub use paint::{png, svg};
pub use quantity::Quantity;
