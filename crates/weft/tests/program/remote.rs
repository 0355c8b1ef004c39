//! A volume of another process, which is killed, stopped and started again under load.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use crate::serving::{File, Serving, file, free_port, good, serve, text};

const NQN: &str = "nqn.2026-01.io.weft:front";

/// Another process, with 8 MiB.
struct There {
    file: File,
    port: u16,
}

impl There {
    fn new() -> There {
        let port = free_port();
        There {
            file: file(&good(port)),
            port,
        }
    }

    fn serve(&self) -> Serving {
        serve(&self.file.path)
    }

    /// A volume that is its disk.
    fn volume(&self, timeout_ms: u32) -> String {
        let url = format!(
            "nvme-tcp://127.0.0.1:{}/nqn.2026-01.io.weft:cli?nsid=1",
            self.port
        );
        format!(
            "[[volume]]\nname = \"there\"\nkind = \"remote\"\nurls = [\"{url}\"]\ntimeout_ms = \
             {timeout_ms}\n"
        )
    }
}

/// What serves `volume` of these volumes, and where.
fn front(volumes: &str, volume: &str) -> (File, String) {
    let port = free_port();
    let rest = format!(
        "[[nvme.subsystem]]\nnqn = \"{NQN}\"\nallow_any_host = true\n\
         [[nvme.subsystem.namespace]]\nnsid = 1\nvolume = \"{volume}\"\n\
         [[listener]]\naddress = \"127.0.0.1:{port}\"\n[policy]\nmemory_max = \"1GiB\"\n"
    );
    let url = format!("nvme-tcp://127.0.0.1:{port}/{NQN}?nsid=1");
    (file(&format!("{volumes}{rest}")), url)
}

/// Reads and writes that are looked at afterwards.
fn load(url: &str, runtime: &str) -> Child {
    let load = Command::new(env!("CARGO_BIN_EXE_weft"))
        .args([
            "perf",
            url,
            "--rw",
            "randrw",
            "--bs",
            "4k",
            "--iodepth",
            "8",
        ])
        .args(["--runtime", runtime, "--ramp-time", "0", "--verify"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    load.expect("weft starts")
}

/// The load has come to its end, and all that it read was right.
fn is_right(load: Child) {
    let output = load.wait_with_output().expect("our child");
    let shown = text(&output.stdout) + &text(&output.stderr);
    assert!(output.status.success(), "{shown}");
    assert!(shown.contains(" blocks checked, 0 wrong"), "{shown}");
}

fn in_folder(file: &File, name: &str) -> PathBuf {
    file.path.parent().unwrap_or(Path::new("")).join(name)
}

#[test]
fn load_on_a_remote_volume_is_right_while_its_target_is_killed_and_stopped() {
    let there = There::new();
    let first = there.serve();
    let (config, url) = front(&there.volume(60_000), "there");
    let mut front = serve(&config.path);
    front.log_line("remote-path-up");
    let load = load(&url, "20s");
    front.log_line("host connected");
    sleep(Duration::from_secs(1));
    first.signal("KILL");
    front.log_line("remote-path-lost");
    let second = there.serve();
    front.log_line("remote-path-up");
    sleep(Duration::from_secs(1));
    second.signal("STOP");
    sleep(Duration::from_secs(2));
    second.signal("CONT");
    is_right(load);
    front.signal("TERM");
    assert_eq!(front.end().0, Some(0));
}

#[test]
fn mirror_goes_on_without_a_remote_leg_and_copies_to_it_what_it_has_missed() {
    let there = There::new();
    let first = there.serve();
    let here = "[[volume]]\nname = \"here\"\nkind = \"file\"\npath = \"here.img\"\nsize = \"8MiB\"\n\
                [[volume]]\nname = \"both\"\nkind = \"mirror\"\nof = [\"here\", \"there\"]\nstate = \
                \"both.state\"\n";
    let (config, url) = front(&(there.volume(2_000) + here), "both");
    let mut front = serve(&config.path);
    front.log_line("mirror-leg-whole");
    let load = load(&url, "25s");
    front.log_line("host connected");
    sleep(Duration::from_secs(1));
    first.signal("KILL");
    front.log_line("mirror-leg-out");
    let second = there.serve();
    front.log_line("mirror-leg-in");
    front.log_line("mirror-leg-whole");
    is_right(load);
    front.signal("TERM");
    assert_eq!(front.end().0, Some(0));
    second.signal("TERM");
    assert_eq!(second.end().0, Some(0));
    let bytes = |path| std::fs::read(path).expect("a file");
    let (here, there) = (
        in_folder(&config, "here.img"),
        in_folder(&there.file, "disk0.img"),
    );
    assert!(bytes(here) == bytes(there), "the legs differ");
}
