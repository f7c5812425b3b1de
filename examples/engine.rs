//! Continues several texts at once, which share each pass over the weights:
//! `cargo run --release -p emberlm-examples --bin engine -- MODEL PROMPT...`.

#![allow(clippy::print_stdout)]

use std::collections::HashMap;
use std::error::Error;
use std::sync::Arc;

use emberlm::generate::{EventKind, Overflow, Request};
use emberlm::{Engine, EngineConfig, Model, StopStrings, TextStream};
use emberlm_examples::Backend;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let model = Model::open(args.next().ok_or("usage: engine MODEL PROMPT...")?)?;
    let tokenizer = model.require_tokenizer()?;
    let decoder = model.decoder::<Backend>(&Default::default())?;
    let config = EngineConfig::for_model(model.config());
    let mut engine = Engine::new(Arc::new(decoder), config)?;

    let mut texts = HashMap::new();
    for prompt in args {
        let ids = model.prompt(&tokenizer, &prompt)?;
        let stream = TextStream::after(&tokenizer, &ids, StopStrings::default());
        let request = engine.submit(Request {
            prompt: ids,
            max_new_tokens: 20,
            stop_tokens: model.stop_tokens(Some(&tokenizer)),
            overflow: Overflow::Slide,
            ..Request::default()
        })?;
        texts.insert(request, (prompt, stream));
    }
    let mut events = Vec::new();
    while engine.step(&mut |event| events.push(event)) {
        for event in events.drain(..) {
            match event.kind {
                EventKind::Token(token) => {
                    if let Some((text, stream)) = texts.get_mut(&event.request) {
                        *text += &stream.push(token.id).visible;
                    }
                }
                EventKind::Finished(_) => {
                    if let Some((text, stream)) = texts.remove(&event.request) {
                        println!("{text}{}", stream.finish().visible);
                    }
                }
                EventKind::Failed(error) => return Err(error.into()),
                EventKind::Started | EventKind::Prompt(_) | EventKind::Embedded(_) => {}
            }
        }
    }
    Ok(())
}
