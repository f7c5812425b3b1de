//! `emberlm devices`: lists the devices of each backend.

use clap::Args;
use indicatif::HumanBytes;
use serde::Serialize;

use crate::backend::BackendName;
use crate::backend::devices::{self, DeviceInfo};
use crate::error::CliError;
use crate::examples;
use crate::output::{Align, Table, print, print_json};

/// Arguments of `devices`.
#[derive(Clone, Copy, Debug, Args)]
#[command(after_help = examples::DEVICES)]
pub struct DevicesArgs {
    /// Print one line of JSON
    #[arg(long)]
    json: bool,
}

/// A backend and its devices.
#[derive(Serialize)]
struct ListedBackend {
    backend: &'static str,
    compiled: bool,
    devices: Vec<DeviceInfo>,
}

/// Lists the devices of each compiled-in backend, and names the other backends.
///
/// # Errors
/// Returns an error if stdout cannot be written.
pub fn run(args: DevicesArgs) -> Result<(), CliError> {
    let listed: Vec<ListedBackend> = BackendName::all()
        .map(|backend| ListedBackend {
            backend: backend.name(),
            compiled: backend.is_compiled(),
            devices: match backend.is_compiled() {
                true => devices::with_products(backend),
                false => Vec::new(),
            },
        })
        .collect();
    match args.json {
        true => print_json(&listed),
        false => print(&text(&listed)),
    }
}

fn text(listed: &[ListedBackend]) -> String {
    let mut table = Table::new([
        Align::Left,
        Align::Right,
        Align::Left,
        Align::Left,
        Align::Right,
    ]);
    table.row(["--backend", "--device", "name", "kind", "memory"]);
    for backend in listed.iter().filter(|backend| backend.compiled) {
        if backend.devices.is_empty() {
            table.row([backend.backend, "", "none found"]);
        }
        for device in &backend.devices {
            let name = match &device.driver {
                Some(driver) => format!("{} ({driver})", device.name),
                None => device.name.clone(),
            };
            let memory = match (device.memory_bytes, device.largest_buffer_bytes) {
                (Some(bytes), _) => HumanBytes(bytes).to_string(),
                (None, Some(bytes)) => format!("buffers to {}", HumanBytes(bytes)),
                (None, None) => String::new(),
            };
            let number = device.number.to_string();
            table.row([backend.backend, &number, &name, device.kind.name(), &memory]);
        }
    }
    let missing: Vec<&str> = listed
        .iter()
        .filter(|backend| !backend.compiled)
        .map(|backend| backend.backend)
        .collect();
    let mut text = table.render();
    for backend in listed {
        for device in &backend.devices {
            if let Some(products) = &device.products {
                let (backend, number) = (backend.backend, device.number);
                text += &format!("matrix products of {backend} device {number}: {products}\n");
            }
        }
    }
    if !missing.is_empty() {
        text += &format!("not compiled in: {}\n", missing.join(", "));
    }
    text
}
