//! A hook's metric appears in the dashboard.

use ratatui::backend::TestBackend;

use super::*;
use crate::hooks::{Hook, HookList};

/// A hook that declares a metric for both phases.
struct Bits;

impl Hook for Bits {
    fn metrics(&self) -> Vec<Metric> {
        vec![Metric::new("bits", "Bits per token").phase(Phase::Both)]
    }
}

/// A dashboard without a terminal, and its screen.
fn dashboard(added: &[Metric]) -> (Dashboard, Painter) {
    let (updates, receiver) = channel();
    let dashboard = Dashboard::new(updates, added);
    let run = DashboardRun {
        path: PathBuf::from("runs/book"),
        notes: "training 12 parameters".to_owned(),
        steps: 100,
        interval: 50,
        stop: StopSignal::default(),
    };
    let painter = Painter {
        screen: Screen::of(&run),
        run,
        updates: receiver,
        started: Instant::now(),
    };
    (dashboard, painter)
}

/// The figures of some metrics.
fn figures(readings: &[(&str, f64)]) -> Figures {
    let mut figures = Figures::default();
    for (name, value) in readings {
        figures.readings.insert(name, *value);
    }
    figures
}

#[test]
fn notes_are_shown_until_the_first_metrics() {
    let (mut dashboard, mut painter) = dashboard(&[]);
    let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
    let mut drawn = |painter: &Painter| {
        terminal.draw(|frame| painter.screen.draw(frame)).unwrap();
        terminal.backend().to_string()
    };
    let text = drawn(&painter);
    assert!(
        text.contains("training 12 parameters") && text.contains("┌runs/book─"),
        "{text}"
    );
    dashboard.show_step(1, &figures(&[("loss", 1.5)]));
    painter.take(painter.updates.try_recv().unwrap());
    let text = drawn(&painter);
    assert!(
        text.contains("loss\u{a0}1.5") && !text.contains("training"),
        "{text}"
    );
}

#[test]
fn a_hook_metric_has_its_own_tab() {
    let hooks = HookList::new(vec![Box::new(Bits)], Vec::new(), Default::default()).unwrap();
    let (mut dashboard, mut painter) = dashboard(hooks.metrics());
    for step in [10, 20, 30] {
        let readings = [("loss", 3.0), ("bits", 200.0 + step as f64)];
        dashboard.show_step(step, &figures(&readings));
    }
    dashboard.show_evaluation(30, &figures(&[("bits", 240.0)]));
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
    assert!(text.contains("Loss │ Bits per token"), "{text}");
    assert!(!text.contains("240"), "{text}");
    painter.on(&Event::Key(KeyCode::Right.into()));
    let text = drawn(&painter);
    assert!(text.contains("240") && text.contains("210"), "{text}");
}
