//! What is shown of hosts at work: on a terminal, and as lines for programs.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use needs::needs;
use serde_json::Value;

use crate::admin::with_socket;
use crate::serving::{Ends, PATIENCE, file, free_port, good, serve, text, weft};
use crate::told::end_in_order;

const HOST: &str = "nqn.2026-01.io.weft:loads";

/// A host that writes to the target of [`good`] until it is dropped.
fn load(port: u16) -> Ends {
    let url = format!("nvme-tcp://127.0.0.1:{port}/nqn.2026-01.io.weft:cli?nsid=1");
    let mut perf = Command::new(env!("CARGO_BIN_EXE_weft"));
    let perf = perf
        .args(["perf", &url, "--rw", "write", "--bs", "4k", "--size", "1m"])
        .args(["--runtime", "600s", "--ramp-time", "0", "--rate", "1000"])
        .args(["--hostnqn", HOST])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    Ends::start(perf)
}

/// A terminal of tmux, and what runs in it.
struct Pane<'a> {
    socket: &'a Path,
}

impl Pane<'_> {
    fn tmux(&self, words: &[&str]) -> String {
        let mut tmux = Command::new("tmux");
        let tmux = tmux.arg("-S").arg(self.socket).args(["-f", "/dev/null"]);
        let output = tmux.args(words).output().expect("tmux");
        assert!(
            output.status.success(),
            "{words:?}: {}",
            text(&output.stderr)
        );
        text(&output.stdout)
    }

    fn press(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    /// Its screen, once that has all of `parts`.
    fn until(&self, parts: &[&str]) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let screen = self.tmux(&["capture-pane", "-p"]);
            if parts.iter().all(|part| screen.contains(part)) {
                return screen;
            }
            assert!(
                Instant::now() < deadline,
                "{parts:?} are not all in\n{screen}"
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Pane<'_> {
    fn drop(&mut self) {
        let _ = Command::new("tmux")
            .arg("-S")
            .arg(self.socket)
            .arg("kill-server")
            .output();
    }
}

#[test]
#[needs(program("tmux"))]
fn terminal_shows_hosts_over_a_restart_of_weft_and_is_as_it_was_afterwards() {
    let port = free_port();
    let file = file(&with_socket(&good(port)));
    let serving = serve(&file.path);
    let first = load(port);
    let (admin, tmux) = (
        file.path.with_file_name("admin.sock"),
        file.path.with_file_name("tmux"),
    );
    let pane = Pane { socket: &tmux };
    let binary = env!("CARGO_BIN_EXE_weft");
    let top = format!(
        "{binary} top --delay 0.2 --at {}; echo ended $?; cat",
        admin.display()
    );
    pane.tmux(&["new-session", "-d", "-x", "100", "-y", "24", &top]);
    let screen = pane.until(&["1 hosts  2 volumes", "BYTES/S", HOST, "q: end"]);
    assert!(screen.contains("conn"), "{screen}");
    let is_other = |pane: &Pane| pane.tmux(&["display", "-p", "#{alternate_on}"]);
    assert_eq!(is_other(&pane).trim(), "1");
    pane.press(&["2"]);
    pane.until(&["VOLUME", "disk0", "nvme-tcp"]);
    pane.press(&["4"]);
    pane.until(&["BUSY %", "CALLS/I/O"]);
    pane.press(&["1", "Enter"]);
    pane.until(&["looks", "w await", HOST]);
    pane.press(&["k"]);
    pane.until(&[&format!("end host {HOST}? y: yes")]);
    pane.press(&["n", "6"]);
    pane.until(&["TEXT", "connected"]);
    pane.tmux(&["resize-window", "-x", "40", "-y", "10"]);
    pane.until(&["1 hosts 2 vols 3 conn 4 react 5 nfs 6 ev"]);
    pane.tmux(&["resize-window", "-x", "100", "-y", "24"]);
    pane.press(&["1"]);
    end_in_order(serving);
    pane.until(&["weft does not answer; asking again"]);
    drop(first);
    let serving = serve(&file.path);
    pane.until(&["weft has started anew"]);
    let _load = load(port);
    pane.until(&[HOST]);
    pane.press(&["k"]);
    pane.until(&["y: yes"]);
    pane.press(&["y"]);
    pane.until(&["controller"]);
    pane.press(&["q"]);
    pane.until(&["ended 0"]);
    assert_eq!(
        is_other(&pane).trim(),
        "0",
        "the screen is the shell's again"
    );
    end_in_order(serving);
}

#[test]
fn lines_for_programs_have_what_hosts_do_and_as_many_as_are_asked_for() {
    let port = free_port();
    let file = file(&with_socket(&good(port)));
    let serving = serve(&file.path);
    let _load = load(port);
    let admin = file.path.with_file_name("admin.sock");
    let socket = ["--at", admin.to_str().expect("UTF-8")];
    let deadline = Instant::now() + PATIENCE;
    loop {
        let output = weft(
            &[
                &["top", "--json", "--delay", "0.3", "--count", "2"][..],
                &socket,
            ]
            .concat(),
        );
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let printed = text(&output.stdout);
        let lines: Vec<Value> = printed
            .lines()
            .map(|line| serde_json::from_str(line).expect("an object"))
            .collect();
        assert_eq!(lines.len(), 2, "{printed}");
        let host = lines[1]["hosts"].as_array().into_iter().flatten();
        let host = host.clone().find(|host| host["host"] == HOST);
        let writes = host.map_or(0.0, |host| host["writes_per_s"].as_f64().expect("a number"));
        if writes > 0.0 {
            break;
        }
        assert!(Instant::now() < deadline, "{printed}");
    }
    end_in_order(serving);
}

#[test]
fn top_without_a_terminal_or_a_weft_says_what_to_do() {
    let file = file(&with_socket(&good(free_port())));
    let admin = file.path.with_file_name("admin.sock");
    let socket = ["--at", admin.to_str().expect("UTF-8")];
    for (words, code, part) in [
        (&["top"][..], 1, "--json prints lines"),
        (&["top", "--json"], 1, "start one with `weft serve`"),
        (&["top", "--delay", "0"], 2, "0.1 to 3600 seconds"),
        (&["top", "--delay", "NaN"], 2, "0.1 to 3600 seconds"),
        (&["top", "--count", "2"], 2, "--json"),
    ] {
        let output = weft(&[words, &socket].concat());
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {told}");
        assert!(told.contains(part), "{words:?}: {told}");
    }
}
