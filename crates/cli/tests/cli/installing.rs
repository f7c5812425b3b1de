//! Shell completions and man pages.

use std::fs;

use super::support::Sandbox;

/// Bash's completions for the last word of a command line.
#[cfg(unix)]
fn offered(sandbox: &Sandbox, words: &str) -> Vec<String> {
    let script = format!(
        "$EMBERLM completions bash > completions.sh && . ./completions.sh && COMP_WORDS=({words}) && \
         COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)) && \
         _emberlm emberlm \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD-1]}}\" && printf '%s\\n' \"${{COMPREPLY[@]}}\""
    );
    let ran = sandbox.sh(&format!("bash -c '{}'", script.replace('\'', "'\\''")));
    ran.ok().lines().map(str::to_owned).collect()
}

#[cfg(unix)]
#[test]
fn bash_completes_commands_options_and_their_values() {
    let sandbox = Sandbox::new();
    assert_eq!(offered(&sandbox, "emberlm tra"), ["train"]);
    assert_eq!(offered(&sandbox, "emberlm info --vocab"), ["--vocab-size"]);
    let dtypes = offered(&sandbox, "emberlm export --dtype b");
    assert_eq!(dtypes, ["bf16"]);
    // Hidden commands are internal.
    assert!(offered(&sandbox, "emberlm fit").contains(&"fit".to_owned()));
    assert!(!offered(&sandbox, "emberlm fit").contains(&"fit-step".to_owned()));
}

#[test]
fn each_shell_has_a_completion_script() {
    let sandbox = Sandbox::new();
    for (shell, expected) in [
        ("zsh", "#compdef emberlm"),
        ("fish", "complete -c emberlm"),
        ("elvish", "edit:completion:arg-completer[emberlm]"),
        ("powershell", "Register-ArgumentCompleter"),
    ] {
        let script = sandbox.words(&format!("completions {shell}")).ok();
        assert!(script.contains(expected), "{shell}: {script:.400}");
        assert!(script.contains("tokenizer"), "{shell}");
    }
    let refused = sandbox.words("completions tcsh");
    assert_eq!(refused.code, Some(2), "{refused}");
    assert!(refused.stderr.contains("bash"), "{refused}");
}

#[test]
fn each_command_has_a_man_page() {
    let sandbox = Sandbox::new();
    let output = sandbox.words("man --out share/man1").ok();
    assert_eq!(output.trim(), "wrote share/man1/emberlm.1");
    let page = |name: &str| fs::read_to_string(sandbox.path(format!("share/man1/{name}"))).unwrap();
    assert!(page("emberlm.1").contains("emberlm\\-train(1)"));
    let train = page("emberlm-train.1");
    assert!(train.contains(".TH emberlm-train 1"), "{train:.400}");
    assert!(train.contains("\\-\\-batch\\-size"), "{train:.4000}");
    assert!(!sandbox.path("share/man1/emberlm-fit-step.1").exists());
    let refused = sandbox.words("man --out /proc/man1");
    assert_eq!(refused.code, Some(1), "{refused}");
    assert!(refused.stderr.contains("/proc/man1"), "{refused}");
}
