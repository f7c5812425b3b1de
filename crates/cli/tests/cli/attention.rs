//! `emberlm attention`: numbers, pictures, and rejected requests.

use serde_json::Value;

use super::support::model::{tiny, write_run};
use super::support::{AssertText, Sandbox};

/// A PNG file's width and height.
fn size(sandbox: &Sandbox, name: &str) -> (u32, u32) {
    let file = sandbox.bytes(name);
    let decoder = png::Decoder::new(std::io::Cursor::new(file));
    let mut reader = decoder.read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    let frame = reader.next_frame(&mut pixels).unwrap();
    (frame.width, frame.height)
}

#[test]
fn a_table_lists_every_head() {
    let sandbox = Sandbox::with_char_model();
    let text = sandbox.ok("attention run --prompt hello");
    let lines: Vec<Vec<&str>> = text
        .lines()
        .map(|l| l.split_whitespace().collect())
        .collect();
    let names = ["layer", "head", "entropy", "distance", "previous", "first"];
    assert_eq!(lines[0], names);
    let places: Vec<_> = lines[1..].iter().map(|line| [line[0], line[1]]).collect();
    assert_eq!(places, [["0", "0"], ["0", "1"], ["1", "0"], ["1", "1"]]);
}

#[test]
fn numbers_as_json() {
    let sandbox = Sandbox::with_char_model();
    let line = "attention run --tokens 1,2,3,4 --json";
    let report: Value = sandbox.json(line);
    assert_eq!(report["tokens"], serde_json::json!([1, 2, 3, 4]));
    let heads = report["heads"].as_array().unwrap();
    assert_eq!(heads.len(), 4);
    for head in heads {
        let number = |name: &str| head[name].as_f64().unwrap();
        // Initial weights attend almost uniformly, here to 2, 3 and 4 tokens.
        let even = (2f64.ln() + 3f64.ln() + 4f64.ln()) / 3.0;
        assert!((number("entropy") - even).abs() < 0.01, "{head}");
        assert!((number("distance") - 1.0).abs() < 0.05, "{head}");
        let share = (1.0 / 2.0 + 1.0 / 3.0 + 1.0 / 4.0) / 3.0;
        assert!((number("previous") - share).abs() < 0.02, "{head}");
        assert!((number("first") - share).abs() < 0.02, "{head}");
    }
    let one: Value = sandbox.json(&format!("{line} --layer 1 --head 0"));
    assert_eq!(one["heads"].as_array().unwrap().as_slice(), &heads[2..3]);
}

#[test]
fn a_picture_replaces_an_existing_file() {
    let sandbox = Sandbox::with_char_model();
    sandbox.write("all.png", "no picture");
    let line = "attention run --prompt hello --out";
    assert_eq!(
        sandbox.ok(&format!("{line} all.png")),
        "all.png: 2 x 2 panels (layers x heads)\n"
    );
    assert_eq!(
        sandbox.ok(&format!("{line} one.PNG --layer 1 --head 0")),
        "one.PNG: 1 x 1 panels (layers x heads)\n"
    );
    let (all, one) = (size(&sandbox, "all.png"), size(&sandbox, "one.PNG"));
    assert!(
        (1000..8000).contains(&all.0) && (1000..8000).contains(&all.1),
        "{all:?}"
    );
    assert!(
        (720..1200).contains(&one.0) && (720..1200).contains(&one.1),
        "{one:?}"
    );
    let json: Value = sandbox.json(&format!("{line} all.png --json"));
    assert_eq!(json["heads"].as_array().unwrap().len(), 4);
}

#[test]
fn a_vector_picture_and_a_page_show_the_same_panels() {
    let sandbox = Sandbox::with_char_model();
    let line = "attention run --prompt hello --out";
    sandbox.ok(&format!("{line} all.svg"));
    sandbox.ok(&format!("{line} all.html"));
    let svg = sandbox.text("all.svg");
    let lines = |text: &str| svg.lines().filter(|line| *line == text).count();
    for heading in ["head 0", "head 1", "layer 0", "layer 1", "weight"] {
        assert_eq!(lines(heading), 1, "{heading}");
    }
    // Token labels to the left of each row of panels and below each column.
    assert_eq!(lines("h"), 4);
    // The first token of each panel attends only to itself. The colour bar ends in a slightly different
    // colour.
    assert_eq!(svg.matches("fill=\"#FDE725\"").count(), 4);
    let page = sandbox.text("all.html");
    page.assert_has(&svg);
    page.assert_has("prefers-color-scheme: dark");
    assert_eq!(page.matches("<tr>").count(), 5, "{page}");
    page.assert_has("<th>layer</th><th>head</th><th>entropy</th>");
}

#[test]
fn vector_pictures_with_too_many_cells_are_rejected() {
    let sandbox = Sandbox::new();
    let mut model = tiny(11);
    model.seq_len = 1000;
    write_run(&sandbox.path("run"), &model, None, &[1]);
    let tokens = ["1"; 1000].join(",");
    let line = format!("attention run --tokens {tokens} --layer 0 --head 0 --out");
    insta::assert_snapshot!(sandbox.words(&format!("{line} a.svg")), @r"
    exit 1
    --- stderr
    error: a picture as SVG has at most 250000 cells; 1 layers of 1 heads and 1000 tokens have 500500
    hint: use a .png file, or select some panels with --layer N or --head N
    ");
    assert!(!sandbox.path("a.svg").exists());
    sandbox.ok(&format!("{line} a.png"));
    assert!(size(&sandbox, "a.png").0 > 1000);
}

#[test]
fn without_a_tokenizer_ids_are_the_labels() {
    let sandbox = Sandbox::new();
    write_run(&sandbox.path("run"), &tiny(11), None, &[1]);
    sandbox.ok("attention run --tokens 1,10 --out a.png");
    assert!(size(&sandbox, "a.png").0 > 0);
}

#[test]
fn linear_attention_shows_its_estimate() {
    let sandbox = Sandbox::new();
    let mut model = tiny(11);
    model.attention = emberlm_model::config::AttentionKind::Linear {
        features: Some(32),
        seed: 1,
    };
    write_run(&sandbox.path("run"), &model, None, &[1]);
    let report: Value = sandbox.json("attention run --tokens 1,2,3 --json");
    assert_eq!(report["heads"].as_array().unwrap().len(), 4);
}

#[test]
fn impossible_requests_are_refused() {
    let sandbox = Sandbox::with_char_model();
    write_run(&sandbox.path("mute"), &tiny(11), None, &[1]);
    let mut wide = tiny(11);
    (wide.d_model, wide.heads) = (128, 128);
    write_run(&sandbox.path("wide"), &wide, None, &[1]);
    sandbox.check_messages("attention");
    sandbox.ok("attention wide --tokens 1,2 --out a.png --head 127");
}
