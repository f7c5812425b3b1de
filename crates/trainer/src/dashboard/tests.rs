//! A hook's metric appears in the dashboard.

use burn::data::dataloader::Progress;
use burn::train::metric::{
    Metric as BurnMetric, MetricEntry, MetricMetadata, Numeric, SerializedEntry,
};
use ratatui::backend::TestBackend;

use super::*;
use crate::hooks::{Hook, HookList};
use crate::metrics::renderers::{FigureMetric, LOSS, TextMetric};
use crate::metrics::{Figures, Metric, Phase, built_in};

/// A hook that declares a metric for both phases.
struct Bits;

impl Hook for Bits {
    fn metrics(&self) -> Vec<Metric> {
        vec![Metric::new("bits", "Bits per token").phase(Phase::Both)]
    }
}

/// A renderer without a terminal, and its screen.
fn dashboard() -> (Dashboard, Painter) {
    let (updates, receiver) = channel();
    let dashboard = Dashboard {
        names: HashMap::new(),
        updates,
        thread: None,
    };
    let run = DashboardRun {
        path: PathBuf::new(),
        notes: "training 12 parameters".to_owned(),
        steps: 100,
        interval: 50,
        stop: StopSignal::default(),
    };
    let painter = Painter {
        screen: Screen::of(&run),
        run,
        updates: receiver,
        newest: HashMap::new(),
    };
    (dashboard, painter)
}

/// Passes a value to the renderer, as Burn's learner does.
fn update(
    dashboard: &mut Dashboard,
    metric: &mut FigureMetric,
    name: &str,
    value: f64,
    validation: bool,
) {
    let mut figures = Figures::default();
    figures.readings.insert(name, value);
    let metadata = MetricMetadata {
        progress: Progress::new(1, 1),
        global_progress: Progress::new(1, 1),
        iteration: None,
        lr: None,
    };
    let entry = metric.update(&figures, &metadata);
    let entry = MetricEntry::new(MetricId::new(metric.name()), entry);
    let state = MetricState::Numeric(entry, Numeric::value(metric));
    match validation {
        true => dashboard.update_valid(state),
        false => dashboard.update_train(state),
    }
}

#[test]
fn notes_are_shown_until_the_first_metrics() {
    let (mut dashboard, mut painter) = dashboard();
    let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
    let mut drawn = |painter: &Painter| {
        terminal.draw(|frame| painter.screen.draw(frame)).unwrap();
        terminal.backend().to_string()
    };
    assert!(drawn(&painter).contains("training 12 parameters"));
    let now = TextMetric::now();
    let id = MetricId::new(now.name());
    dashboard.register_metric(MetricDefinition::new(id.clone(), &now));
    let entry = SerializedEntry::new("loss 1.5".to_owned(), "loss 1.5".to_owned());
    dashboard.update_train(MetricState::Generic(MetricEntry::new(id, entry)));
    painter.take(painter.updates.try_recv().unwrap());
    let text = drawn(&painter);
    assert!(
        text.contains("loss 1.5") && !text.contains("training"),
        "{text}"
    );
}

#[test]
fn a_hook_metric_has_its_own_tab() {
    let hooks = HookList::new(vec![Box::new(Bits)], Vec::new(), Default::default()).unwrap();
    let loss = built_in().iter().find(|metric| metric.name == "loss");
    let metrics = [loss.unwrap(), &hooks.metrics()[0]];
    let [mut loss, mut bits] = metrics.map(|metric| FigureMetric::new(metric).unwrap());
    let (mut dashboard, mut painter) = dashboard();
    for metric in [&loss, &bits] {
        let id = MetricId::new(metric.name());
        dashboard.register_metric(MetricDefinition::new(id, metric));
    }
    for step in [10, 20, 30] {
        update(&mut dashboard, &mut loss, "loss", 3.0, false);
        update(
            &mut dashboard,
            &mut bits,
            "bits",
            200.0 + step as f64,
            false,
        );
        dashboard.send(Update::Step {
            step,
            validation: false,
        });
    }
    update(&mut dashboard, &mut bits, "bits", 240.0, true);
    dashboard.send(Update::Step {
        step: 30,
        validation: true,
    });
    while let Ok(update) = painter.updates.try_recv() {
        painter.take(update);
    }

    let curves = painter.screen.plots.of("Bits per token");
    assert_eq!(curves.train, [(10.0, 210.0), (20.0, 220.0), (30.0, 230.0)]);
    assert_eq!(curves.valid, [(30.0, 240.0)]);
    let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
    let mut drawn = |painter: &Painter| {
        terminal.draw(|frame| painter.screen.draw(frame)).unwrap();
        terminal.backend().to_string()
    };
    let text = drawn(&painter);
    assert!(text.contains(&format!("{LOSS} │ Bits per token")), "{text}");
    assert!(!text.contains("240"), "{text}");
    painter.on(&Event::Key(KeyCode::Right.into()));
    let text = drawn(&painter);
    assert!(text.contains("240") && text.contains("210"), "{text}");
}
