//! The target under test: the `weft` binary, as a user runs it.

use crate::child::{Owned, output, tail, tied};
use crate::guest::{Guest, new_log_dir};
use crate::{target_dir, workspace_dir};
use std::fs::{self, File};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::thread::sleep;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The subsystem that [`WeftProcess`] serves.
pub const NQN: &str = "nqn.2026-01.org.example:interop";

/// A second one beside it, with two namespaces: 1 of 16 MiB in blocks of 512
/// bytes, 7 of 32 MiB in blocks of 4096.
pub const NQN_OTHER: &str = "nqn.2026-01.org.example:other";

/// The user and group `nobody`, who may do nothing.
const NOBODY: u32 = 65534;

/// How long a target may take to listen, or to end in order.
const START_MAX: Duration = Duration::from_secs(20);

/// What is served and how.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The `io` key: `auto`, `io_uring` or `epoll`.
    pub io: &'static str,
    /// The `kind` of the one volume: `ram` or `file`.
    pub volume: &'static str,
    /// Its size in MiB.
    pub size_mib: u32,
    /// Its block size.
    pub block_bytes: u32,
    /// More lines of the listener.
    pub listener: &'static str,
    /// As a user without any right, where this process may become one.
    pub unprivileged: bool,
    /// What denies it system calls: a launcher, `deny_io_uring` or `under_profile`, and its
    /// first argument.
    pub launcher: Option<(&'static str, &'static str)>,
    /// In its folder there is another, `small`, a file system of so many MiB that
    /// it alone sees: see [`small_disk`].
    pub small_disk_mib: Option<u32>,
}

impl Default for Setup {
    fn default() -> Self {
        Setup {
            io: "auto",
            volume: "ram",
            size_mib: 256,
            block_bytes: 4096,
            listener: "",
            unprivileged: false,
            launcher: None,
            small_disk_mib: None,
        }
    }
}

/// The binary: `WEFT_BIN`, else built once a process, as tests are.
pub fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        if let Some(path) = std::env::var_os("WEFT_BIN") {
            return PathBuf::from(path);
        }
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut build = Command::new(cargo);
        build.current_dir(workspace_dir());
        build.args(["build", "--quiet", "--workspace", "--bin", "weft"]);
        // With a test of the workspace the dependencies are those that tests have:
        // without, everything would be compiled once more.
        build.args(["--test", "denied"]);
        if let Err(e) = output(&mut build) {
            panic!("building weft: {e}");
        }
        target_dir().join("debug/weft")
    })
}

/// What weft logs, once, when it is to choose and has no io_uring.
pub const FALLBACK: &str = "using epoll";

/// A target that runs, with a folder of its own for its volume.
#[derive(Debug)]
pub struct WeftProcess {
    child: Owned,
    setup: Setup,
    address: SocketAddr,
    logs: PathBuf,
    home: TempDir,
    starts: u32,
}

impl WeftProcess {
    /// Starts a target and waits until it listens, on 127.0.0.1 only. Panics
    /// with what it said when it does not.
    pub fn start(name: &str, setup: Setup) -> WeftProcess {
        let address = free_address();
        let config = config(&setup, address);
        WeftProcess::start_with(name, setup, &config, address)
    }

    /// The same with a configuration of the caller's, in which a listener has
    /// `address`.
    pub fn serve(name: &str, config: &str, address: SocketAddr) -> WeftProcess {
        WeftProcess::serve_in(name, Setup::default(), config, address)
    }

    /// The same, in other circumstances.
    pub fn serve_in(name: &str, setup: Setup, config: &str, address: SocketAddr) -> WeftProcess {
        WeftProcess::start_with(name, setup, config, address)
    }

    fn start_with(name: &str, setup: Setup, config: &str, address: SocketAddr) -> WeftProcess {
        let logs = new_log_dir(&format!("{name}-target")).expect("a folder for logs");
        let home = tempfile::Builder::new()
            .prefix("weft-")
            .tempdir()
            .expect("a folder");
        prepare_home(home.path(), &setup, config);
        let child = spawn(&setup, home.path(), &logs.join("weft-0.log"));
        let mut target = WeftProcess {
            child,
            setup,
            address,
            logs,
            home,
            starts: 1,
        };
        target.wait_until_listening();
        target
    }

    /// Starts a target that refuses to serve; what it said. Panics when it
    /// does not end with a failure.
    pub fn expect_refusal(name: &str, setup: Setup) -> String {
        let logs = new_log_dir(&format!("{name}-target")).expect("a folder for logs");
        let home = tempfile::Builder::new()
            .prefix("weft-")
            .tempdir()
            .expect("a folder");
        prepare_home(home.path(), &setup, &config(&setup, free_address()));
        let log = logs.join("weft-0.log");
        let mut child = spawn(&setup, home.path(), &log);
        let ended = child.wait_for(START_MAX).expect("a child");
        let said = fs::read_to_string(&log).unwrap_or_default();
        let failed = ended.is_some_and(|status| status.code().is_some_and(|code| code != 0));
        assert!(failed, "{ended:?}: logs kept in {}: {said}", logs.display());
        // Logs of a success are only in the way.
        let _ = fs::remove_dir_all(&logs);
        said
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// Its folder: binary, configuration, volume.
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// What a command prints that is asked at its admin socket `admin.sock`. Panics with what it
    /// said when it is refused.
    pub fn run(&self, words: &[&str]) -> String {
        let printed = output(&mut self.command(words));
        let printed = printed.unwrap_or_else(|why| panic!("weft {words:?}: {why}"));
        String::from_utf8_lossy(&printed).trim_end().to_owned()
    }

    /// A command that asks at its admin socket `admin.sock`: that is there a moment after hosts
    /// are served.
    pub fn command(&self, words: &[&str]) -> Command {
        let socket = self.home().join("admin.sock");
        let end = Instant::now() + START_MAX;
        while !socket.exists() {
            assert!(Instant::now() < end, "no admin socket: {}", self.log());
            sleep(Duration::from_millis(20));
        }
        let mut command = tied(binary());
        command.args(words).arg("--at").arg(socket);
        command
    }

    /// What all its processes have logged by now.
    pub fn log(&self) -> String {
        (0..self.starts)
            .map(|n| fs::read_to_string(self.log_path(n)).unwrap_or_default())
            .collect()
    }

    /// Drives verified load against it with weft's own initiator, and says
    /// what that printed; panics when it fails.
    pub fn perf(&self, arguments: &[&str]) -> String {
        perf(self.address, arguments)
            .unwrap_or_else(|e| panic!("{e}\n--- target\n{}", tail(&self.log(), 20)))
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        self.child.kill().expect("the target can be killed");
    }

    /// Starts it again, on the same address and volume.
    pub fn restart(&mut self) {
        let log = self.log_path(self.starts);
        self.child = spawn(&self.setup, self.home.path(), &log);
        self.starts += 1;
        self.wait_until_listening();
    }

    /// Kills it at each mark of the guest's script and starts it again after `pause`.
    pub fn dies_at(&mut self, mut guest: Guest, marks: &[&str], pause: Duration) -> Guest {
        for mark in marks {
            guest = guest.until(mark);
            self.kill();
            sleep(pause);
            self.restart();
        }
        guest
    }

    /// A field of `/proc/PID/status`, in KiB.
    pub fn status_kib(&self, field: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("it runs");
        let line = status
            .lines()
            .find_map(|l| l.strip_prefix(field)?.strip_prefix(':'));
        line.and_then(|l| l.split_whitespace().next()?.parse().ok())
            .expect("a size in KiB")
    }

    /// Asks it to read its configuration and its files of keys again (SIGHUP).
    pub fn reload(&self) {
        self.signal("-HUP");
    }

    fn signal(&self, signal: &str) {
        let mut kill = Command::new("kill");
        output(kill.args([signal, &self.pid().to_string()])).expect("a signal is sent");
    }

    /// Asks it to end, expects that it ends well, and removes its logs.
    pub fn expect_orderly_end(mut self) {
        self.signal("-TERM");
        let ended = self.child.wait_for(START_MAX).expect("a child");
        let log = self.log();
        let ended = ended.unwrap_or_else(|| panic!("no end after SIGTERM: {}", tail(&log, 20)));
        assert!(
            ended.success(),
            "{ended}: logs kept in {}: {}",
            self.logs.display(),
            tail(&log, 20)
        );
        assert!(!log.contains("panicked"), "{}", tail(&log, 40));
        // Logs of a success are only in the way.
        let _ = fs::remove_dir_all(&self.logs);
    }

    fn log_path(&self, start: u32) -> PathBuf {
        self.logs.join(format!("weft-{start}.log"))
    }

    fn wait_until_listening(&mut self) {
        let end = Instant::now() + START_MAX;
        while TcpStream::connect(self.address).is_err() {
            let ended = self.child.try_wait().expect("a child");
            if ended.is_some() || Instant::now() > end {
                panic!(
                    "the target does not listen ({ended:?}):\n{}",
                    tail(&self.log(), 40)
                );
            }
            sleep(Duration::from_millis(20));
        }
    }
}

/// Drives load against [`NQN`] at `address` with weft's own initiator; what it
/// printed.
pub fn perf(address: SocketAddr, arguments: &[&str]) -> Result<String, String> {
    let mut perf = tied(binary());
    perf.args(["perf", "--traddr"])
        .arg(address.ip().to_string());
    perf.arg("--trsvcid").arg(address.port().to_string());
    perf.args(["--nqn", NQN]).args(arguments);
    output(&mut perf).map(|said| String::from_utf8_lossy(&said).into_owned())
}

/// The same of whatever the URL names.
pub fn perf_url(url: &str, arguments: &[&str]) -> Result<String, String> {
    let mut perf = tied(binary());
    perf.arg("perf").arg(url).args(arguments);
    output(&mut perf).map(|said| String::from_utf8_lossy(&said).into_owned())
}

/// An address of this machine that no other test of this process is given.
pub fn free_address() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], testkit::free_port()))
}

/// What is served by a target without a configuration of its own.
fn config(setup: &Setup, address: SocketAddr) -> String {
    format!(
        "[[volume]]\nname = \"v\"\nkind = \"{kind}\"\nsize = \"{size}MiB\"\nblock_bytes = {block}\n{path}\n\
         [[nvme.subsystem]]\nnqn = \"{NQN}\"\nallow_any_host = true\n\
         [[nvme.subsystem.namespace]]\nnsid = 1\nvolume = \"v\"\n\
         [[volume]]\nname = \"o1\"\nkind = \"ram\"\nsize = \"16MiB\"\nblock_bytes = 512\n\
         [[volume]]\nname = \"o7\"\nkind = \"ram\"\nsize = \"32MiB\"\nblock_bytes = 4096\n\
         [[nvme.subsystem]]\nnqn = \"{NQN_OTHER}\"\nallow_any_host = true\n\
         [[nvme.subsystem.namespace]]\nnsid = 1\nvolume = \"o1\"\n\
         [[nvme.subsystem.namespace]]\nnsid = 7\nvolume = \"o7\"\n\
         [[listener]]\naddress = \"{address}\"\n{listener}\n\
         [policy]\nio = \"{io}\"\n\
         [nvme]\ncontrollers_of_host_max = 2000\n\
         [admin]\nsocket = \"off\"\n",
        kind = setup.volume,
        size = setup.size_mib,
        block = setup.block_bytes,
        listener = setup.listener,
        path = if setup.volume == "file" {
            "path = \"v.img\""
        } else {
            ""
        },
        io = setup.io,
    )
}

/// Fills the target's folder. Binary and launcher are copied into it: the
/// build folder may lie where `nobody` cannot look.
fn prepare_home(home: &Path, setup: &Setup, config: &str) {
    let file = home.join("weft.toml");
    fs::write(&file, config).expect("a configuration");
    // Secrets may stand in it.
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("a mode");
    copy_program(binary(), &home.join("weft"));
    fs::set_permissions(home, fs::Permissions::from_mode(0o755)).expect("a mode");
    if setup.unprivileged && crate::is_root() {
        for path in [home, &file] {
            std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).expect("a new owner");
        }
    }
}

/// By another process: a file that is open for writing here would be so in
/// what another thread just forked too, and cannot be run until that is gone.
fn copy_program(from: &Path, to: &Path) {
    output(Command::new("cp").arg(from).arg(to)).expect("a copy");
}

/// A command that sees mounts of its own, and may make some.
fn unshared() -> Command {
    let mut command = tied(Path::new("/usr/bin/unshare"));
    command.arg("--mount");
    if !crate::is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command
}

fn spawn(setup: &Setup, home: &Path, log: &Path) -> Owned {
    let program = home.join("weft");
    let mut command = match setup.launcher {
        None if setup.small_disk_mib.is_some() => {
            let mib = setup.small_disk_mib.unwrap_or_default();
            let _ = fs::create_dir(home.join("small"));
            let script = format!("mount -t tmpfs -o size={mib}m tmpfs small && exec \"$@\"");
            let mut command = unshared();
            command.args(["sh", "-c", &script, "sh"]).arg(&program);
            command
        }
        None => tied(&program),
        Some((launcher, argument)) => {
            let copy = home.join("launcher");
            copy_program(Path::new(launcher), &copy);
            let mut command = tied(&copy);
            command.arg(argument).arg(&program);
            command
        }
    };
    command.args(["serve", "-c", "weft.toml"]).current_dir(home);
    command.env("STATE_DIRECTORY", home.join("weft-state"));
    if setup.unprivileged && crate::is_root() {
        // Leaving uid 0 for another drops every capability.
        command.gid(NOBODY).uid(NOBODY);
    }
    let log = File::create(log).expect("a log");
    command
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("a log"))
        .stderr(log);
    Owned::spawn(&mut command).expect("the target starts")
}
