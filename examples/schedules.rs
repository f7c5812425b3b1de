//! Plots the learning rate at every step of a run for each schedule, as a PNG file:
//! `cargo run --release -p emberlm-examples --bin schedules -- FILE`.

use std::error::Error;
use std::fs::File;
use std::io::BufWriter;

use emberlm::train::config::{
    ConstantConfig, CooldownConfig, DecayConfig, ExponentialConfig, InverseSqrtConfig,
};
use emberlm::train::schedule::learning_rate;
use emberlm::train::{ScheduleConfig, ScheduleKind};
use plotters::prelude::*;
use plotters::style::register_font;

const WIDTH: u32 = 1080;
const HEIGHT: u32 = 560;
const FONT: &str = "Ubuntu";
const INK: RGBColor = RGBColor(38, 38, 46);
const FAINT: RGBColor = RGBColor(225, 225, 230);

/// Okabe and Ito's palette, which is distinguishable with colour blindness.
const SCHEDULES: [(ScheduleKind, &str, RGBColor); 6] = [
    (ScheduleKind::Constant, "constant", RGBColor(0, 0, 0)),
    (ScheduleKind::Cosine, "cosine", RGBColor(0, 114, 178)),
    (ScheduleKind::Linear, "linear", RGBColor(0, 158, 115)),
    (
        ScheduleKind::InverseSqrt,
        "inverse_sqrt",
        RGBColor(213, 94, 0),
    ),
    (
        ScheduleKind::WarmupStableDecay,
        "warmup_stable_decay",
        RGBColor(204, 121, 167),
    ),
    (
        ScheduleKind::Exponential,
        "exponential",
        RGBColor(86, 180, 233),
    ),
];

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("usage: schedules FILE.png")?;
    register_font(FONT, FontStyle::Normal, epaint_default_fonts::UBUNTU_LIGHT)
        .map_err(|_| "the font is not one")?;
    let mut pixels = vec![0; (3 * WIDTH * HEIGHT) as usize];
    {
        let root = BitMapBackend::with_buffer(&mut pixels, (WIDTH, HEIGHT)).into_drawing_area();
        root.fill(&WHITE)?;
        let panels = root.margin(4, 4, 4, 4).split_evenly((2, 3));
        for (panel, schedule) in panels.iter().zip(&SCHEDULES) {
            draw(panel, schedule)?;
        }
        root.present()?;
    }
    let mut encoder = png::Encoder::new(BufWriter::new(File::create(path)?), WIDTH, HEIGHT);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_compression(png::Compression::High);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&pixels)?;
    writer.finish()?;
    Ok(())
}

/// A run of 2000 steps from 1e-3 to 1e-4, with 200 steps of warm-up. The cooldown takes 400 steps.
fn config(kind: ScheduleKind) -> ScheduleConfig {
    let decay = DecayConfig {
        warmup_steps: 200,
        ..DecayConfig::default()
    };
    match kind {
        ScheduleKind::Constant => ScheduleConfig::Constant(ConstantConfig {
            warmup_steps: 200,
            ..ConstantConfig::default()
        }),
        ScheduleKind::Cosine => ScheduleConfig::Cosine(decay),
        ScheduleKind::Linear => ScheduleConfig::Linear(decay),
        ScheduleKind::InverseSqrt => ScheduleConfig::InverseSqrt(InverseSqrtConfig {
            warmup_steps: 200,
            ..InverseSqrtConfig::default()
        }),
        ScheduleKind::WarmupStableDecay => ScheduleConfig::WarmupStableDecay(CooldownConfig {
            warmup_steps: 200,
            cooldown_steps: 400,
            ..CooldownConfig::default()
        }),
        ScheduleKind::Exponential => ScheduleConfig::Exponential(ExponentialConfig {
            learning_rate: 1e-3,
            ..ExponentialConfig::default()
        }),
    }
}

/// Draws the panel of a schedule.
fn draw<B: DrawingBackend>(
    panel: &DrawingArea<B, plotters::coord::Shift>,
    &(schedule, title, colour): &(ScheduleKind, &str, RGBColor),
) -> Result<(), Box<dyn Error>>
where
    B::ErrorType: 'static,
{
    let label = (FONT, 15).into_font().color(&INK);
    // Slightly past the end of the run, where the learning rate is constant.
    let steps = 0..2200;
    let mut chart = ChartBuilder::on(panel)
        .caption(title, (FONT, 20).into_font().color(&INK))
        .margin(8)
        .margin_right(18)
        .x_label_area_size(34)
        .y_label_area_size(52)
        .build_cartesian_2d(0.0..2200.0, 0.0..1.1e-3)?;
    chart
        .configure_mesh()
        .disable_mesh()
        .bold_line_style(FAINT)
        .x_labels(5)
        .y_labels(5)
        .x_label_formatter(&|step| format!("{step}"))
        .y_label_formatter(&|&rate| match rate {
            0.0 => "0".to_owned(),
            rate => format!("{rate:.0e}"),
        })
        .x_desc("step")
        .y_desc("rate")
        .label_style(label)
        .axis_style(INK)
        .draw()?;
    let config = config(schedule);
    let points = steps.map(|done| (done as f64, learning_rate(&config, 2000, done)));
    chart.draw_series(LineSeries::new(points, colour.stroke_width(2)))?;
    Ok(())
}
