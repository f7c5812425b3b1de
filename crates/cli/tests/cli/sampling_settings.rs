//! Each row of `SETTINGS` reaches the command line, `/set`, requests and the playground.

use emberlm_generate::ranges::LOGIT_BIAS;
use emberlm_generate::{SETTINGS, SamplingSetting};
use serde_json::{Value, json};

use super::chat::LETTERS;
use super::serve::with_model;
use super::support::{AssertText, Sandbox};

/// The option of a setting.
fn option(setting: &SamplingSetting) -> String {
    setting.name.replace('_', "-")
}

/// The option names of all settings, separated by commas.
pub fn options() -> String {
    SETTINGS.iter().map(option).collect::<Vec<_>>().join(", ")
}

/// A valid value that is not the default.
fn other(setting: &SamplingSetting) -> String {
    let ends = [setting.range.least, setting.slider.most];
    let mut values = ends.into_iter().map(|end| (end + setting.default) / 2.0);
    let other = values.find(|value| *value != setting.default).unwrap();
    other.to_string()
}

#[test]
fn the_help_of_a_sampling_setting_has_its_range() {
    for command in ["generate", "chat"] {
        let help = Sandbox::new().ok(&format!("{command} --help"));
        let words: Vec<&str> = help.split_whitespace().collect();
        let help = words.join(" ");
        let settings = SETTINGS.iter();
        let settings = settings.filter(|setting| !setting.range.is_whole);
        let settings = settings.map(|setting| (option(setting), setting.range));
        for (option, range) in settings.chain([("logit-bias".to_owned(), LOGIT_BIAS)]) {
            let rule = range.rule();
            let (_, after) = help.split_once(&format!("--{option} <")).unwrap();
            let (own, _) = after.split_once(" --").unwrap();
            assert!(own.contains(&rule), "{option}: {rule}: {own}");
        }
    }
}

#[test]
fn every_setting_is_an_option() {
    let sandbox = with_model(16, &[1]);
    let options = SETTINGS
        .iter()
        .map(|setting| format!("--{} {}", option(setting), other(setting)));
    let options: Vec<String> = options.collect();
    let line = format!(
        "generate run --tokens 1 --max-new-tokens 1 --verbose {}",
        options.join(" ")
    );
    let printed = sandbox.succeeds(&line).stderr;
    for (setting, given) in SETTINGS.iter().zip(options) {
        let value = other(setting);
        printed.assert_has(&format!("{} {value} (command line)", option(setting)));
        let refusal = sandbox.refusal(&format!("generate run --beams 2 {given}"));
        refusal.assert_has("the argument '--beams <N>' cannot be used with");
    }
}

#[test]
fn every_setting_can_be_set_in_a_chat() {
    let sandbox = Sandbox::with_letters();
    let lines = SETTINGS
        .iter()
        .map(|setting| format!("/set {} {}\n", option(setting), other(setting)));
    let shown = sandbox.chat(LETTERS, lines.collect::<String>() + "/show\n");
    for setting in &SETTINGS {
        let (name, value) = (option(setting), other(setting));
        let is_shown = shown.stdout.lines().any(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            words == [&name[..], &value, "(/set)"]
        });
        assert!(is_shown, "{name} {value}: {shown}");
    }
}

#[test]
fn every_setting_is_a_field_of_requests_and_a_number_of_the_playground() {
    let sandbox = with_model(16, &[1]);
    let server = sandbox.serve("serve run");
    let description = server.json("/openapi.json");
    let script = server.get("/sampling.js").expect(200).body;
    let listed = script.strip_prefix("export const SETTINGS = ").unwrap();
    let listed: Value = serde_json::from_str(listed.trim_end().trim_end_matches(';')).unwrap();
    let listed = listed.as_array().unwrap();
    assert_eq!(listed.len(), SETTINGS.len());
    for (setting, number) in SETTINGS.iter().zip(listed) {
        let name = setting.name;
        assert_eq!(number["name"], name);
        assert_eq!(number["label"], setting.slider.label);
        for path in ["/v1/completions", "/v1/chat/completions", "/v1/responses"] {
            let request = &description["paths"][path]["post"]["requestBody"];
            let fields = &request["content"]["application/json"]["schema"]["properties"];
            assert_eq!(fields[name]["description"], setting.description);
        }
        let wrong = json!({ "model": "run", "prompt": "a", name: "x" });
        let refusal = server.post("/v1/completions", &wrong).expect(400).json();
        assert_eq!(refusal["error"]["param"], name);
    }
    // The playground sends all of them.
    let page = server.get("/settings.js").expect(200).body;
    page.assert_has("import { SETTINGS } from \"./sampling.js\";");
    page.assert_has("  ...SETTINGS,\n");
}
