//! Child processes that end with the process that started them.

use std::io;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A child process, killed and reaped when dropped.
#[derive(Debug)]
pub struct Owned(Child);

impl Owned {
    /// Starts `command`.
    pub fn spawn(command: &mut Command) -> io::Result<Owned> {
        command.spawn().map(Owned)
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Whether it has ended, and how.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.0.try_wait()
    }

    /// Waits until it ends; `None` once `limit` has passed.
    pub fn wait_for(&mut self, limit: Duration) -> io::Result<Option<ExitStatus>> {
        let end = Instant::now() + limit;
        loop {
            match self.0.try_wait()? {
                Some(status) => return Ok(Some(status)),
                None if Instant::now() >= end => return Ok(None),
                None => sleep(Duration::from_millis(10)),
            }
        }
    }

    /// SIGKILL, and waits for the end.
    pub fn kill(&mut self) -> io::Result<()> {
        self.0.kill()?;
        self.0.wait().map(drop)
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // Already ended is as good as killed.
        let _ = self.kill();
    }
}

/// A command that the kernel kills if the thread that starts it goes first
/// (a test runner that is itself killed runs no destructor). Where the tool
/// for it is missing, the plain command.
pub fn tied(program: &Path) -> Command {
    let setpriv = Path::new("/usr/bin/setpriv");
    if setpriv.exists() {
        let mut command = Command::new(setpriv);
        command.args(["--pdeathsig", "KILL", "--"]).arg(program);
        command
    } else {
        Command::new(program)
    }
}

/// The same command in the network namespace of process `pid`.
pub fn in_network_of(pid: u32, command: &Command) -> Command {
    let mut inside = Command::new("/usr/bin/nsenter");
    inside.args(["--target", &pid.to_string(), "--net"]);
    if !crate::is_root() {
        inside.args(["--user", "--preserve-credentials"]);
    }
    inside.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => inside.env(name, value),
            None => inside.env_remove(name),
        };
    }
    inside
}

/// Runs `command` to its end: its standard output, or what went wrong with
/// the end of what it said.
pub fn output(command: &mut Command) -> Result<Vec<u8>, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let out = command.output().map_err(|e| format!("{name}: {e}"))?;
    if out.status.success() {
        return Ok(out.stdout);
    }
    let said = [out.stdout, out.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    Err(format!("{name}: {}: {}", out.status, tail(&said, 12)))
}

/// The last `lines` lines.
pub fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}
