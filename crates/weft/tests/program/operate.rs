//! The commands of docs/operate.md and docs/tasks.md: what is shown is what is printed.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use needs::needs;

use crate::serving::{file, free_port, serve, text};
use crate::told::end_in_order;

/// Adds what keeps a test's target away from this machine's own.
const ADMIN: &str =
    "\n[admin]\nsocket = \"admin.sock\"\nlisten = \"127.0.0.1:4480\"\nstate = \"state\"\n";

/// A page, and what of the machine it names: each as it is shown and as it is here.
struct Page {
    text: &'static str,
    names: Vec<(&'static str, String)>,
}

impl Page {
    fn new(text: &'static str) -> Page {
        let ports = [
            "127.0.0.1:4420",
            "127.0.0.1:2049",
            "127.0.0.1:3260",
            "127.0.0.1:10809",
            "127.0.0.1:4480",
        ];
        let here = |shown| (shown, format!("127.0.0.1:{}", free_port()));
        let names = ports.map(here).to_vec();
        Page { text, names }
    }

    /// Folders, which lie in that of the file.
    fn name_folders(&mut self, folder: &Path) {
        for (shown, here) in [
            ("/srv", "srv"),
            ("/etc/target", "target"),
            ("/var/lib/weft", "lib"),
            // Last, as the others are in it.
            ("/etc/weft", ""),
        ] {
            let here = folder.join(here);
            let here = here.to_str().expect("UTF-8").trim_end_matches('/');
            self.names.push((shown, here.to_owned()));
        }
    }

    fn as_here(&self, text: &str) -> String {
        let names = self.names.iter();
        names.fold(text.to_owned(), |text, (shown, here)| {
            text.replace(shown, here)
        })
    }

    fn as_shown(&self, text: &str) -> String {
        let names = self.names.iter();
        names.fold(text.to_owned(), |text, (shown, here)| {
            text.replace(here, shown)
        })
    }

    /// What stands between fences of a kind, one after another.
    fn blocks(&self, kind: &str) -> Vec<String> {
        let mut blocks = Vec::new();
        let mut lines = self.text.lines();
        while let Some(line) = lines.next() {
            if line == format!("```{kind}") {
                let block = lines.by_ref().take_while(|line| *line != "```");
                blocks.push(block.map(|line| format!("{line}\n")).collect());
            }
        }
        blocks
    }

    /// Commands, each with the lines that it prints.
    fn commands(&self) -> Vec<(String, Vec<String>)> {
        let mut commands: Vec<(String, Vec<String>)> = Vec::new();
        for line in self.blocks("console").concat().lines() {
            match (line.strip_prefix("$ "), commands.last_mut()) {
                (Some(command), _) => commands.push((command.to_owned(), Vec::new())),
                (None, Some((_, printed))) => printed.push(line.to_owned()),
                (None, None) => panic!("{line} is of no command"),
            }
        }
        commands
    }
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

/// Serves the first configuration of a page and runs its commands in the folder of the file,
/// which `prepare` sees before.
fn run(mut page: Page, prepare: impl Fn(&Page, &Path)) {
    let toml = page.blocks("toml").swap_remove(0) + ADMIN;
    let file = file(&toml);
    let folder = file.path.parent().expect("a folder");
    page.name_folders(folder);
    fs::write(&file.path, page.as_here(&toml)).expect("room");
    prepare(&page, folder);
    let serving = serve(&file.path);
    let programs = Path::new(env!("CARGO_BIN_EXE_weft")).parent();
    let programs = programs.expect("a folder").display().to_string();
    let path = format!("{programs}:{}", std::env::var("PATH").unwrap_or_default());
    let all = page.commands();
    assert!(all.len() > 8, "{}", all.len());
    for (command, printed) in all {
        let mut shell = Command::new("sh");
        shell.args(["-ec", &page.as_here(&command)]);
        shell.current_dir(folder).env("PATH", &path);
        // Where commands look for the socket.
        let output = shell.env("RUNTIME_DIRECTORY", folder).output();
        let output = output.expect("a shell");
        let told = page.as_shown(&text(&output.stdout));
        let problem = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{command}: {problem}");
        let told: Vec<_> = told.lines().map(comparable).collect();
        let shown: Vec<_> = printed.iter().map(|line| comparable(line)).collect();
        assert_eq!(told, shown, "{command}");
    }
    end_in_order(serving);
}

#[test]
fn page_of_operation_shows_what_its_commands_print() {
    let page = Page::new(include_str!("../../../../docs/operate.md"));
    run(page, |_, _| ());
}

#[needs(program(curl))]
#[test]
fn page_of_tasks_shows_what_its_commands_print() {
    let page = Page::new(include_str!("../../../../docs/tasks.md"));
    run(page, |page, folder| {
        let saved = page.as_here(&page.blocks("json")[0]);
        let (_, port) = page.names[2].1.split_once(':').expect("an address");
        let saved = saved.replace("\"port\": 3260", &format!("\"port\": {port}"));
        for name in ["target", "srv", "lib"] {
            fs::create_dir(folder.join(name)).expect("room");
        }
        fs::write(folder.join("target/saveconfig.json"), saved).expect("room");
        let disk = File::create(folder.join("srv/db.img")).expect("room");
        disk.set_len(8 << 20).expect("room");
    });
}
