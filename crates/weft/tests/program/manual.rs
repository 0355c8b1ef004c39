//! What packages carry of the program itself.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Stdio};

use needs::needs;

use super::serving::{text, weft};

/// The names in `weft --help`.
fn commands() -> BTreeSet<String> {
    let help = weft(&["--help"]);
    let help = text(&help.stdout);
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let lines = lines.take_while(|line| !line.is_empty());
    let names = lines.filter_map(|line| line.strip_prefix("  ")?.split_once(' '));
    let names = names.filter(|(name, _)| !name.is_empty() && *name != "help");
    names.map(|(name, _)| name.to_owned()).collect()
}

#[test]
fn completions_know_every_command() {
    let commands = commands();
    assert!(
        commands.contains("serve") && commands.contains("man"),
        "{commands:?}"
    );
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = weft(&["completions", shell]);
        assert_eq!(output.status.code(), Some(0), "{shell}");
        let shown = text(&output.stdout);
        for command in &commands {
            assert!(shown.contains(command.as_str()), "{shell}: {command}");
        }
    }
    assert_eq!(weft(&["completions", "tcsh"]).status.code(), Some(2));
}

#[needs(program(bash))]
#[test]
fn bash_completes_commands_and_options() {
    let script = r#"
        eval "$("$0" completions bash)"
        COMP_WORDS=(weft $1) COMP_CWORD=$(($# ? ${#COMP_WORDS[@]} - 1 : 0))
        _weft weft "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
        echo "${COMPREPLY[@]}""#;
    for (typed, completed) in [("ref", "refusals"), ("check --conf", "--config")] {
        let mut bash = Command::new("bash");
        bash.args(["-c", script, env!("CARGO_BIN_EXE_weft"), typed]);
        let output = bash.stdin(Stdio::null()).output().expect("bash");
        assert_eq!(
            text(&output.stdout).trim(),
            completed,
            "{}",
            text(&output.stderr)
        );
    }
}

#[test]
fn manual_has_a_page_for_each_command() {
    let folder = tempfile::tempdir().expect("a folder");
    let pages = folder.path().join("man/man1");
    let output = weft(&["man", pages.to_str().expect("UTF-8")]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    for command in commands() {
        let page = fs::read_to_string(pages.join(format!("weft-{command}.1")));
        let page = page.expect("a page");
        assert!(page.contains(".SH SYNOPSIS"), "{command}: {page}");
    }
    assert!(pages.join("weft.1").exists());
    assert!(!pages.join("weft-leash.1").exists(), "a hidden one");
    // A file stands where the folder would be.
    let file = pages.join("weft.1/man");
    let output = weft(&["man", file.to_str().expect("UTF-8")]);
    assert_eq!(output.status.code(), Some(1));
    let why = text(&output.stderr);
    assert!(why.contains("name a folder"), "{why}");
}

#[test]
fn schema_is_json_with_the_sections_of_a_file() {
    let output = weft(&["schema"]);
    assert_eq!(output.status.code(), Some(0));
    let schema: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(schema["properties"]["volume"]["type"], "array");
}
