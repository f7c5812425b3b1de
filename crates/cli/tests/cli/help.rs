//! `--help` and invalid usage.

use emberlm_generate::ranges;

use super::support::Sandbox;

#[test]
fn the_help_of_a_sampling_setting_has_its_range() {
    let help = Sandbox::new().ok("generate --help");
    let words: Vec<&str> = help.split_whitespace().collect();
    let help = words.join(" ");
    for setting in ranges::ALL {
        let rule = setting.rule;
        let option = setting.name.replace('_', "-");
        let (_, after) = help.split_once(&format!("--{option} <")).unwrap();
        let (own, _) = after.split_once(" --").unwrap();
        assert!(own.contains(rule), "{option}: {rule}: {own}");
    }
}

#[test]
fn the_version_matches_the_package() {
    let version = Sandbox::new().ok("--version");
    assert_eq!(version, format!("emberlm {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn wrong_usage_exits_with_2() {
    Sandbox::new().check_messages("usage");
}
