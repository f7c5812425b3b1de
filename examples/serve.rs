//! Serves a model in process with an OpenAI-compatible API:
//! `cargo run --release -p emberlm-examples --bin serve -- MODEL`. Stops at the end of its standard input (Ctrl-D).

#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::error::Error;
use std::io::{Read, stdin};
use std::net::{IpAddr, Ipv4Addr};
use std::thread;
use std::time::Duration;

use emberlm::Model;
use emberlm::serve::api::{self, Service};
use emberlm::serve::{Hosts, Limits, ServeOptions, ServedModels, Server, load};
use emberlm_examples::Backend;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("usage: serve MODEL")?;
    let device = Default::default();
    let model = Model::open(path)?;
    let decoder = model.decoder::<Backend>(&device)?;
    let options = ServeOptions {
        name: "example".to_owned(),
        slots: Some(2),
        queue: 16,
        ..ServeOptions::default()
    };
    // Without a sandbox. Suitable only for clients that are trusted not to send hostile grammars.
    let loaded = load(&model, decoder, &options, None)?;

    let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let server = Server::bind(address, 0)?;
    println!("http://{}", server.address());
    let service = Service {
        models: ServedModels::new(vec![loaded.served]).into(),
        limits: Limits::default(),
        key: None,
        admin: None,
        log: None,
    };
    // Dropping the sender stops the server.
    let (stop, stopped) = tokio::sync::oneshot::channel();
    thread::spawn(move || {
        let _ = stdin().read_to_end(&mut Vec::new());
        drop(stop);
    });
    let hosts = Hosts::new(address, &[]);
    server.run(api::router(service), hosts, stopped, Duration::from_secs(5))?;
    Ok(())
}
