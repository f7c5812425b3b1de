//! `--help` and invalid usage.

use super::support::Sandbox;

#[test]
fn the_version_matches_the_package() {
    let version = Sandbox::new().ok("--version");
    assert_eq!(version, format!("emberlm {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn wrong_usage_exits_with_2() {
    Sandbox::new().check_messages("usage");
}
