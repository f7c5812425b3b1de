//! Orders texts by their similarity to the first one:
//! `cargo run --release -p emberlm-examples --bin embed -- MODEL QUERY TEXT...`.
//!
//! MODEL is an encoder, such as a model of sentence-transformers, or a decoder.

#![allow(clippy::print_stdout)]

use std::error::Error;

use emberlm_examples::Backend;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("usage: embed MODEL QUERY TEXT...")?;
    let texts: Vec<String> = args.collect();

    let vectors = emberlm::open::<Backend>(path)?.embed(&texts)?;
    let (query, others) = vectors.split_first().ok_or("there is no query")?;
    let cosine = |vector: &[f32]| -> f32 { query.iter().zip(vector).map(|(a, b)| a * b).sum() };
    // The vectors have length 1, so their product is the cosine of their angle.
    let mut found: Vec<(f32, &String)> = others
        .iter()
        .zip(&texts[1..])
        .map(|(vector, text)| (cosine(vector), text))
        .collect();
    found.sort_by(|a, b| b.0.total_cmp(&a.0));
    for (similarity, text) in found {
        println!("{similarity:.4}  {text}");
    }
    Ok(())
}
