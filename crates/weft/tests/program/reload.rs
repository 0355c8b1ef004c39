//! Hosts that read and write while the configuration changes beside them.

use std::fmt::Write as _;
use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::serving::{Ends, NO_ADMIN, Serving, file, free_port, serve, text};

const RELOADS: u64 = 50;
const NQN: &str = "nqn.2026-01.io.weft:stays";
const IQN: &str = "iqn.2026-01.io.weft:stays";

/// What stays, and beside it what `bits` say.
fn document(ports: &[u16; 6], bits: u64) -> String {
    let has = |bit: u32| bits >> bit & 1 == 1;
    let mut text = format!("[policy]\nmemory_max = \"128MiB\"\n{NO_ADMIN}");
    for (n, protocol) in ["nvme-tcp", "iscsi", "nfs"].into_iter().enumerate() {
        for port in [Some(ports[n]), has(n as u32).then_some(ports[n + 3])] {
            let Some(port) = port else { continue };
            let _ = write!(
                text,
                "[[listener]]\naddress = \"127.0.0.1:{port}\"\nprotocol = \"{protocol}\"\n"
            );
        }
    }
    for n in 0..5 {
        if n < 2 || has(n + 1) {
            let _ = write!(
                text,
                "[[volume]]\nname = \"v{n}\"\nkind = \"ram\"\nsize = \"8MiB\"\n"
            );
        }
    }
    for n in 0..2 {
        let _ = write!(
            text,
            "[[file_system]]\nname = \"f{n}\"\nkind = \"mem\"\nsize = \"16MiB\"\n"
        );
    }
    text += "[[export]]\npath = \"/stays\"\nfile_system = \"f0\"\nallow_any_client = true\n";
    if has(6) {
        let read_only = has(7);
        let _ = write!(
            text,
            "[[export]]\npath = \"/beside\"\nfile_system = \"f1\"\nallow_any_client = true\n\
             read_only = {read_only}\n"
        );
    }
    let subsystem = |text: &mut String, nqn: &str, volumes: &[u32]| {
        let _ = write!(text, "[[nvme.subsystem]]\nnqn = \"{nqn}\"\n");
        *text += match has(8) && nqn != NQN {
            true => "hosts = [\"nqn.2026-01.org.example:other\"]\n",
            false => "allow_any_host = true\n",
        };
        for n in volumes.iter().filter(|n| **n < 2 || has(**n + 1)) {
            let nsid = n + 1;
            let _ = write!(
                text,
                "[[nvme.subsystem.namespace]]\nnsid = {nsid}\nvolume = \"v{n}\"\n"
            );
            if has(9) && *n > 1 {
                *text += "hosts = [\"nqn.2026-01.org.example:other\"]\n";
            }
        }
    };
    subsystem(&mut text, NQN, &[0, 2, 3]);
    if has(10) && has(5) {
        subsystem(&mut text, "nqn.2026-01.io.weft:beside", &[4]);
    }
    let _ = write!(
        text,
        "[[iscsi.target]]\nname = \"{IQN}\"\nallow_any_initiator = true\n"
    );
    for n in [1, 2, 4].into_iter().filter(|n| *n < 2 || has(n + 1)) {
        let _ = write!(text, "[[iscsi.target.lun]]\nlun = {n}\nvolume = \"v{n}\"\n");
    }
    text
}

/// Whether a process has a handler of SIGINT, which is signal 2.
fn catches_interrupts(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok());
    caught.is_some_and(|caught| caught >> 1 & 1 == 1)
}

/// A load whose every block is checked; it ends by a signal.
pub struct Load(Ends);

impl Load {
    pub fn start(url: &str) -> Load {
        Load::start_as(url, &[])
    }

    /// By a host that more options describe.
    pub fn start_as(url: &str, more: &[&str]) -> Load {
        let load = ["--rw", "randrw", "--verify", "--size", "4MiB", "--bs", "4k"];
        let mut weft = Command::new(env!("CARGO_BIN_EXE_weft"));
        weft.args(["perf", url, "--runtime", "600s", "--ramp-time", "0"])
            .args(load)
            .args(more)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Load(Ends::start(&mut weft))
    }

    pub fn end(mut self) {
        let ended = self.0.0.try_wait().expect("our child");
        let is_running = ended.is_none();
        let pid = self.0.0.id();
        if is_running {
            // Before that it would end by the signal itself.
            while !catches_interrupts(pid) {
                assert!(
                    self.0.0.try_wait().expect("our child").is_none(),
                    "it ended"
                );
                std::thread::sleep(Duration::from_millis(5));
            }
            let mut kill = Command::new("sh");
            let status = kill.args(["-c", &format!("kill -INT {pid}")]).status();
            assert!(status.expect("a shell").success());
        }
        let told = |mut pipe: Box<dyn std::io::Read>| {
            let mut bytes = Vec::new();
            pipe.read_to_end(&mut bytes).expect("a pipe");
            text(&bytes)
        };
        let shown = told(Box::new(self.0.0.stdout.take().expect("a pipe")));
        let errors = told(Box::new(self.0.0.stderr.take().expect("a pipe")));
        let code = self.0.0.wait().expect("our child").code();
        assert!(is_running, "it ended before: {shown} {errors}");
        assert_eq!(code, Some(0), "{shown} {errors}");
    }
}

fn reload(serving: &mut Serving, line: &str) {
    serving.signal("HUP");
    let told = serving.log_line("reloaded");
    assert!(told.contains(" INFO "), "{line}: {told}");
}

#[test]
fn loads_go_on_without_an_error_while_everything_beside_them_is_reloaded() {
    let ports = [(); 6].map(|()| free_port());
    let file = file(&document(&ports, 0));
    let mut serving = serve(&file.path);
    let [nvme, iscsi, nfs, ..] = ports;
    let urls = [
        (
            format!("nvme-tcp://127.0.0.1:{nvme}/{NQN}?nsid=1"),
            "connected",
        ),
        (format!("iscsi://127.0.0.1:{iscsi}/{IQN}/1"), "logged in"),
        (
            format!("nfs://127.0.0.1:{nfs}/stays/file"),
            "NFS client came",
        ),
    ];
    let loads = urls.map(|(url, came)| {
        let load = Load::start(&url);
        serving.log_line(came);
        load
    });
    // A linear congruential generator (Knuth's MMIX): the same documents every time.
    let mut seed = 17_u64;
    for n in 0..RELOADS {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let bits = seed >> 40;
        std::fs::write(&file.path, document(&ports, bits)).expect("a file");
        reload(&mut serving, &format!("reload {n}, bits {bits:#x}"));
    }
    loads.into_iter().for_each(Load::end);
    serving.signal("TERM");
    assert_eq!(serving.end().0, Some(0));
}
