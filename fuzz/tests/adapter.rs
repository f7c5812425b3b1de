//! The files of valid adapters and mutations of them, within limits on time and memory.

use emberlm_fuzz::{adapter, bounded};

#[test]
fn adapters() {
    let folder = tempfile::tempdir().unwrap();
    let mut seeds = Vec::new();
    for name in adapter::VALID {
        let files = bounded::seeds(&format!("../crates/model/tests/fixtures/adapters/{name}"));
        seeds.extend(
            files
                .into_iter()
                .filter(|(name, _)| name.starts_with("adapter_")),
        );
    }
    seeds.push(("empty".to_owned(), Vec::new()));
    bounded::run(
        &seeds,
        600,
        |name| name.starts_with("adapter_"),
        |bytes| adapter::adapter(bytes, folder.path()),
    );
}
