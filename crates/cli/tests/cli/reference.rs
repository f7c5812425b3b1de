//! The generated pages of the documentation.

use super::support::Sandbox;

#[test]
fn generated_pages_match_the_program() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference");
    let sandbox = Sandbox::new();
    for page in ["commands", "configuration", "metrics"] {
        let committed = std::fs::read_to_string(format!("{folder}/{page}.md")).unwrap();
        let generated = sandbox.words(&format!("reference {page}")).ok();
        assert!(
            generated == committed,
            "docs/reference/{page}.md is stale: run `cargo xtask reference`"
        );
    }
}
