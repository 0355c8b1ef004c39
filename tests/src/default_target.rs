//! A target on what is built in, which commands change while it serves.

use crate::child::{Owned, in_network_of, tail, tied};
use crate::guest::Config;
use crate::weft::binary;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long it may take to answer, or to end in order.
const ANSWER_MAX: Duration = Duration::from_secs(20);

/// Where it serves console and API, in its network.
pub const ADMIN: &str = "127.0.0.1:4480";

/// `weft serve` without a file, in a network of its own: the ports of the built-in
/// configuration are free there. State and admin socket are in a folder of its own.
#[derive(Debug)]
pub struct DefaultTarget {
    child: Owned,
    home: TempDir,
}

impl DefaultTarget {
    /// Starts it and waits until it answers commands. Panics with what it said when it does not.
    pub fn start() -> DefaultTarget {
        let home = tempfile::tempdir().expect("a folder");
        let mut command = tied(Path::new("/usr/bin/unshare"));
        command.arg("--net");
        if !crate::is_root() {
            command.args(["--user", "--map-root-user"]);
        }
        command.args(["sh", "-c", "ip link set lo up && exec \"$@\"", "sh"]);
        command.arg(binary()).arg("serve");
        command.env("STATE_DIRECTORY", home.path().join("state"));
        command.env("RUNTIME_DIRECTORY", home.path());
        let log = File::create(home.path().join("log")).expect("a log");
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a log"))
            .stderr(log);
        let child = Owned::spawn(&mut command).expect("the target starts");
        let mut target = DefaultTarget { child, home };
        let end = Instant::now() + ANSWER_MAX;
        while !target.log().contains("weft status --at") {
            let ended = target.child.try_wait().expect("a child");
            assert!(
                ended.is_none() && Instant::now() < end,
                "no target ({ended:?}):\n{}",
                target.log()
            );
            sleep(Duration::from_millis(20));
        }
        target
    }

    /// What it has said by now.
    pub fn log(&self) -> String {
        fs::read_to_string(self.home.path().join("log")).unwrap_or_default()
    }

    /// What a command prints, which must be done. Panics with what it said when it is refused.
    pub fn run(&self, words: &[&str]) -> String {
        let (is_done, said) = self.command(words);
        assert!(is_done, "weft {words:?}: {said}\n{}", tail(&self.log(), 10));
        said
    }

    /// What a command says that must be refused.
    pub fn refused(&self, words: &[&str]) -> String {
        let (is_done, said) = self.command(words);
        assert!(!is_done, "weft {words:?} is not refused: {said}");
        said
    }

    /// A change that cuts hosts: refused by itself, with the line `cuts` as the reason, and
    /// made with `--disconnect`.
    pub fn run_disconnecting(&self, words: &[&str], cuts: &str) {
        let said = self.refused(words);
        let marked = format!("! {cuts}");
        assert!(said.lines().any(|line| line == marked), "{words:?}: {said}");
        let said = self.run(&[words, &["--disconnect"]].concat());
        assert!(said.lines().any(|line| line == cuts), "{words:?}: {said}");
    }

    /// The generation that is served.
    pub fn generation(&self) -> String {
        let listed = self.run(&["history"]);
        let last = listed
            .lines()
            .last()
            .and_then(|line| line.split_whitespace().next());
        last.expect("a generation").to_owned()
    }

    /// The guest's settings, for one that finds this target's 127.0.0.1 where it looks for
    /// the machine's.
    pub fn reach_from(&self, config: &mut Config) {
        config.network_of = Some(self.child.pid());
    }

    /// The same command in the network of this target.
    pub fn inside(&self, command: &Command) -> Command {
        in_network_of(self.child.pid(), command)
    }

    /// Asks it to end, and expects that it ends well.
    pub fn expect_orderly_end(mut self) {
        let pid = self.child.pid().to_string();
        let killed = Command::new("kill").args(["-TERM", &pid]).status();
        assert!(killed.is_ok_and(|status| status.success()));
        let ended = self.child.wait_for(ANSWER_MAX).expect("a child");
        let log = self.log();
        assert!(
            ended.is_some_and(|status| status.success()),
            "{ended:?}: {log}"
        );
        assert!(!log.contains("panicked"), "{log}");
    }

    fn command(&self, words: &[&str]) -> (bool, String) {
        let mut command = tied(binary());
        command.args(words).arg("--at").arg(self.socket());
        let out = command.output().expect("weft runs");
        let said = [out.stdout, out.stderr].concat();
        (
            out.status.success(),
            String::from_utf8_lossy(&said).into_owned(),
        )
    }

    fn socket(&self) -> PathBuf {
        self.home.path().join("admin.sock")
    }
}
