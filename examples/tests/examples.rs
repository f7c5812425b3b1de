//! Runs the examples as a reader would.

use std::io;
use std::process::{Command, Output};

use emberlm_data::Packing;
use emberlm_examples::Backend;
use emberlm_model::{DecoderConfig, families};
use emberlm_tokenizer::Tokenizer;
use emberlm_trainer::checkpoint::{self, Description};

fn run(program: &str, args: &[&str]) -> io::Result<Output> {
    Command::new(program).args(args).output()
}

#[test]
fn a_loop_of_ones_own_lowers_the_loss() {
    let output = run(env!("CARGO_BIN_EXE_train-loop"), &["25"]).unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let losses: Vec<f64> = text
        .lines()
        .map(|line| line.rsplit(' ').next().unwrap().parse().unwrap())
        .collect();
    assert_eq!(losses.len(), 25);
    // The first is that of a model that knows nothing of 54 characters: ln 54 = 3.99 and a little more.
    assert!((3.8..4.6).contains(&losses[0]), "{}", losses[0]);
    assert!(losses[24] < 2.9, "{}", losses[24]);
}

#[test]
fn a_run_is_sampled_from() {
    let tokenizer = Tokenizer::char_from_alphabet("\nabcdefgh".chars()).unwrap();
    let mut model = families::preset("pocket-tales").unwrap().config;
    model.vocab_size = Some(tokenizer.vocab_size());
    model.n_layers = 1;
    let decoder = DecoderConfig::try_from(model.clone()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let description = Description {
        model,
        tokenizer: Some(tokenizer.spec()),
        chat_template: None,
        documents: Packing::Stream,
    };
    let decoder = decoder.init::<Backend>(1, &Default::default());
    let checkpoint = folder.path().join("checkpoints/step-00000001");
    std::fs::create_dir_all(&checkpoint).unwrap();
    checkpoint::write_untrained(&checkpoint, &decoder, &description, Some(&tokenizer)).unwrap();
    let path = folder.path().to_str().unwrap();
    let output = run(env!("CARGO_BIN_EXE_sample"), &[path, "abc"]).unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    // 200 tokens of a character each, and the end of the line.
    assert_eq!(text.chars().count(), 201, "{text:?}");
}

/// The picture of docs/training.md: six panels of lines on white.
#[test]
fn schedules_are_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("schedules.png");
    let output = run(env!("CARGO_BIN_EXE_schedules"), &[path.to_str().unwrap()]).unwrap();
    assert!(output.status.success(), "{output:?}");
    let file = io::BufReader::new(std::fs::File::open(path).unwrap());
    let mut reader = png::Decoder::new(file).read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut pixels).unwrap();
    let (width, height) = (info.width as usize, info.height as usize);
    // The colours of the five schedules, in the five panels of their own.
    let colours = [
        [0, 0, 0],
        [0, 114, 178],
        [0, 158, 115],
        [213, 94, 0],
        [204, 121, 167],
    ];
    for (panel, colour) in colours.iter().enumerate() {
        let (left, top) = (panel % 3 * width / 3, panel / 3 * height / 2);
        let drawn = (top..top + height / 2)
            .flat_map(|y| (left..left + width / 3).map(move |x| 3 * (y * width + x)))
            .filter(|&at| pixels[at..at + 3] == *colour);
        assert!(drawn.count() > 200, "panel {panel}");
    }
}

#[test]
fn sampling_needs_a_run() {
    let output = run(env!("CARGO_BIN_EXE_sample"), &[]).unwrap();
    assert!(!output.status.success());
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("usage: sample RUN"), "{text}");
}
