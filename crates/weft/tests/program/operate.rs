//! The commands of docs/operate.md: what is shown is what is printed.

use std::process::Command;

use crate::serving::{file, free_port, serve, text};
use crate::told::end_in_order;

const PAGE: &str = include_str!("../../../../docs/operate.md");
/// Where the page says that the file is.
const SHOWN: &str = "/etc/weft/weft.toml";

/// What stands between fences of a kind, one after another.
fn blocks(kind: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut lines = PAGE.lines();
    while let Some(line) = lines.next() {
        if line == format!("```{kind}") {
            let block = lines.by_ref().take_while(|line| *line != "```");
            blocks.push(block.map(|line| format!("{line}\n")).collect());
        }
    }
    blocks
}

/// Commands, each with the lines that it prints.
fn commands() -> Vec<(String, Vec<String>)> {
    let mut commands: Vec<(String, Vec<String>)> = Vec::new();
    for line in blocks("console").concat().lines() {
        match (line.strip_prefix("$ "), commands.last_mut()) {
            (Some(command), _) => commands.push((command.to_owned(), Vec::new())),
            (None, Some((_, printed))) => printed.push(line.to_owned()),
            (None, None) => panic!("{line} is of no command"),
        }
    }
    commands
}

/// Of a line that tells a time, what stands around time and user; of heads, the words: they
/// are as far apart as what stands below them is wide.
fn comparable(line: &str) -> Vec<&str> {
    let is_time = |word: &str| word.len() == 20 && word.ends_with('Z');
    let words: Vec<&str> = line.split_whitespace().collect();
    match words.iter().position(|word| is_time(word)) {
        Some(at) => [&words[..at], &words[at + 2..]].concat(),
        None if words.contains(&"TIME") => words,
        None => vec![line],
    }
}

#[test]
fn page_shows_what_its_commands_print() {
    let port = free_port();
    let toml = blocks("toml")[0].replace("4420", &port.to_string());
    let admin = "\n[admin]\nsocket = \"admin.sock\"\nstate = \"state\"\n";
    let file = file(&format!("{toml}{admin}"));
    let path = file.path.to_str().expect("UTF-8");
    let folder = file.path.parent().expect("a folder");
    let serving = serve(&file.path);
    let socket = folder.join("admin.sock");
    let weft = format!(
        "weft() {{ {} \"$@\" --socket {}; }}",
        env!("CARGO_BIN_EXE_weft"),
        socket.display()
    );
    let all = commands();
    assert!(all.len() > 8, "{}", all.len());
    for (command, printed) in all {
        let mut shell = Command::new("sh");
        let script = format!("{weft}\n{}", command.replace(SHOWN, path));
        let output = shell.args(["-ec", &script]).current_dir(folder).output();
        let output = output.expect("a shell");
        let told = text(&output.stdout).replace(path, SHOWN);
        let problem = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{command}: {problem}");
        let told: Vec<_> = told.lines().map(comparable).collect();
        let shown: Vec<_> = printed.iter().map(|line| comparable(line)).collect();
        assert_eq!(told, shown, "{command}");
    }
    end_in_order(serving);
}
