//! Shell completions and man pages.

use super::support::{AssertText, Sandbox};

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
        let script = sandbox.ok(&format!("completions {shell}"));
        assert!(script.contains(expected), "{shell}: {script:.400}");
        assert!(script.contains("tokenizer"), "{shell}");
    }
}

#[test]
fn each_command_has_a_man_page() {
    let sandbox = Sandbox::new();
    let output = sandbox.ok("man --out share/man1");
    assert_eq!(output.trim(), "wrote share/man1/emberlm.1");
    let page = |name: &str| sandbox.text(format!("share/man1/{name}"));
    assert!(page("emberlm.1").contains("emberlm\\-train(1)"));
    let train = page("emberlm-train.1");
    train.assert_has(".TH emberlm-train 1");
    train.assert_has("\\-\\-batch\\-size");
    assert!(!sandbox.path("share/man1/emberlm-fit-step.1").exists());
    let refused = sandbox.fails("man --out /proc/man1");
    refused.says("/proc/man1");
}
