//! Targets that tests start as programs, with configurations in folders of their own.

use std::io::{BufRead, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

pub use testkit::free_port;

/// A process that is still there after this is a failed test.
pub const PATIENCE: Duration = Duration::from_secs(30);

pub fn weft(arguments: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_weft"))
        .args(arguments)
        .output();
    output.expect("weft starts")
}

/// What a command comes to that ends by itself.
pub fn end_of(command: &mut Command) -> Output {
    let mut child = command.stderr(Stdio::piped()).spawn().expect("weft starts");
    let deadline = Instant::now() + PATIENCE;
    while child.try_wait().expect("our child").is_none() {
        if Instant::now() > deadline {
            child.kill().expect("our child");
            panic!("{command:?} does not end");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.wait_with_output().expect("our child")
}

/// A command that goes on until it is dropped.
pub struct Ends(pub Child);

impl Ends {
    pub fn start(command: &mut Command) -> Ends {
        Ends(command.spawn().expect("it starts"))
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An output without a reader.
pub fn unread() -> Stdio {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    writer.into()
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What keeps a target away from the admin socket that others have on this machine.
pub const NO_ADMIN: &str = "\n[admin]\nsocket = \"off\"\nlisten = \"off\"\n";

/// A configuration in a folder of its own, without admin socket where it names none.
pub struct File {
    _folder: tempfile::TempDir,
    pub path: PathBuf,
}

pub fn file(text: &str) -> File {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("weft.toml");
    let admin = if text.contains("[admin]") {
        ""
    } else {
        NO_ADMIN
    };
    std::fs::write(&path, format!("{text}{admin}")).expect("a file");
    File {
        _folder: folder,
        path,
    }
}

pub fn good(port: u16) -> String {
    format!(
        "[[volume]]\nname = \"disk0\"\nkind = \"file\"\npath = \"disk0.img\"\nsize = \"8MiB\"\n\
         [[nvme.subsystem]]\nnqn = \"nqn.2026-01.io.weft:cli\"\nallow_any_host = true\n\
         [[nvme.subsystem.namespace]]\nnsid = 1\nvolume = \"disk0\"\n\
         [[listener]]\naddress = \"127.0.0.1:{port}\"\n\
         [policy]\nmemory_max = \"1GiB\"\n"
    )
}

/// The same in memory, where no disk is so full that an event tells of it.
pub fn good_in_memory(port: u16) -> String {
    good(port).replace("\"file\"\npath = \"disk0.img\"", "\"ram\"")
}

/// A target that ends with the test.
pub struct Serving {
    pub child: Child,
    out: BufReader<ChildStdout>,
    /// Lines of its log, as they come.
    log: Receiver<String>,
    pub shown: String,
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn serve(config: &Path) -> Serving {
    serve_by(
        Command::new(env!("CARGO_BIN_EXE_weft")),
        config,
        Stdio::piped(),
    )
}

/// By a command that `serve -c FILE` is added to, with its log going to `log`.
pub fn serve_by(mut command: Command, config: &Path, log: Stdio) -> Serving {
    command
        .args(["serve", "-c"])
        .arg(config)
        // No test writes where this machine's own weft does.
        .env("STATE_DIRECTORY", config.with_file_name("state"));
    serve_as(command, log)
}

/// By a whole command.
pub fn serve_as(mut command: Command, log: Stdio) -> Serving {
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .expect("weft starts");
    let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
    let (tell, log) = channel();
    if let Some(errors) = child.stderr.take() {
        std::thread::spawn(move || {
            let lines = BufReader::new(errors).lines().map_while(Result::ok);
            lines.for_each(|line| drop(tell.send(line)));
        });
    }
    let mut shown = String::new();
    while !shown.contains("ends it in order") {
        let read = out.read_line(&mut shown).expect("text");
        if read == 0 {
            let log: Vec<String> = log.iter().collect();
            panic!("weft ended early: {shown}{}", log.join("\n"));
        }
    }
    Serving {
        child,
        out,
        log,
        shown,
    }
}

impl Serving {
    /// Sends a signal by name.
    pub fn signal(&self, name: &str) {
        let command = format!("kill -{name} {}", self.child.id());
        let status = Command::new("sh").args(["-c", &command]).status();
        assert!(status.expect("a shell").success());
    }

    /// The next line of its log that holds `part`.
    pub fn log_line(&mut self, part: &str) -> String {
        let mut seen = Vec::new();
        while let Ok(line) = self.log.recv_timeout(PATIENCE) {
            if line.contains(part) {
                return line;
            }
            seen.push(line);
        }
        panic!("{part:?} is not in its log:\n{}", seen.join("\n"));
    }

    /// What its log says from here to its end.
    pub fn rest_of_log(&mut self) -> String {
        self.log.iter().collect::<Vec<_>>().join("\n")
    }

    /// The next line of what it prints that holds `part`.
    pub fn line(&mut self, part: &str) -> String {
        loop {
            let mut line = String::new();
            let read = self.out.read_line(&mut line).expect("text");
            assert_ne!(read, 0, "it ended without {part:?}");
            if line.contains(part) {
                return line;
            }
        }
    }

    /// The exit code, and everything that it printed to the end.
    pub fn end(self) -> (Option<i32>, String) {
        let (code, rest, _) = self.end_and_log();
        (code, rest)
    }

    /// The same, with the lines of its log that the test has not read.
    pub fn end_and_log(mut self) -> (Option<i32>, String, String) {
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            match self.child.try_wait().expect("our child") {
                Some(status) => break status,
                None => assert!(Instant::now() < deadline, "weft does not end"),
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        let mut rest = String::new();
        self.out.read_to_string(&mut rest).expect("text");
        (status.code(), rest, self.rest_of_log())
    }
}
