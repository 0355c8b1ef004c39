//! Snapshots by commands, on a file system that can share blocks between files.

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use needs::needs;
use serde_json::Value;
use testkit::Mounted;

use crate::connected::{HOST, INITIATOR};
use crate::reload::Load;
use crate::serving::{File, PATIENCE, Serving, file, free_port, serve, text, weft};
use crate::told::end_in_order;

const NQN: &str = "nqn.2026-01.io.weft:snapshots";
const IQN: &str = "iqn.2026-01.io.weft:snapshots";
pub const SIZE: usize = 8 << 20;

/// Two volumes on XFS, one over NVMe/TCP and one over iSCSI.
pub struct Disks {
    pub file: File,
    nvme: u16,
    iscsi: u16,
    pub mounted: Mounted,
    _folder: tempfile::TempDir,
}

impl Disks {
    pub fn new() -> Disks {
        Disks::with("")
    }

    /// The same with more in the configuration.
    fn with(more: &str) -> Disks {
        let folder = tempfile::tempdir().expect("a folder");
        let mounted = Mounted::made_by("mkfs.xfs", folder.path());
        let (nvme, iscsi) = (free_port(), free_port());
        let at = mounted.path().display();
        let file = file(&format!(
            "[[volume]]\nname = \"a\"\nkind = \"file\"\npath = \"{at}/a\"\nsize = \"8MiB\"\n\
             [[volume]]\nname = \"b\"\nkind = \"file\"\npath = \"{at}/b\"\nsize = \"8MiB\"\n\
             [[volume]]\nname = \"r\"\nkind = \"ram\"\nsize = \"8MiB\"\n\
             [[nvme.subsystem]]\nnqn = \"{NQN}\"\nvolumes = [\"a\", \"r\"]\n\
             allow_any_host = true\n\
             [[iscsi.target]]\nname = \"{IQN}\"\nvolumes = [\"b\"]\nallow_any_initiator = true\n\
             [[listener]]\naddress = \"127.0.0.1:{nvme}\"\n\
             [[listener]]\naddress = \"127.0.0.1:{iscsi}\"\nprotocol = \"iscsi\"\n\
             [policy]\nmemory_max = \"1GiB\"\n[admin]\nsocket = \"admin.sock\"\n{more}"
        ));
        Disks {
            file,
            nvme,
            iscsi,
            mounted,
            _folder: folder,
        }
    }

    pub fn serve(&self) -> Serving {
        serve(&self.file.path)
    }

    pub fn arguments(&self, arguments: &[&str]) -> Vec<String> {
        let socket = self.file.path.with_file_name("admin.sock");
        let socket = socket.display().to_string();
        let all = ["snapshot"]
            .iter()
            .chain(arguments)
            .map(|word| (*word).to_owned());
        all.chain(["--at".to_owned(), socket]).collect()
    }

    pub fn ask(&self, arguments: &[&str]) -> Output {
        let all = self.arguments(arguments);
        weft(&all.iter().map(String::as_str).collect::<Vec<_>>())
    }

    pub fn answer(&self, arguments: &[&str]) -> String {
        let output = self.ask(arguments);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stdout)
    }

    pub fn refusal(&self, arguments: &[&str], code: i32) -> String {
        let output = self.ask(arguments);
        assert_eq!(output.status.code(), Some(code), "{}", text(&output.stdout));
        text(&output.stderr)
    }

    pub fn list(&self) -> Vec<Value> {
        let answer: Value = serde_json::from_str(&self.answer(&["list", "--json"])).expect("JSON");
        answer["snapshots"].as_array().expect("a list").clone()
    }

    /// Waits until so many hosts do I/O.
    fn wait_for_hosts(&self, count: usize) {
        let socket = self.file.path.with_file_name("admin.sock");
        let socket = socket.to_str().expect("UTF-8");
        let deadline = Instant::now() + PATIENCE;
        loop {
            let told = weft(&["get", "hosts", "--json", "--at", socket]);
            let told: Value = serde_json::from_slice(&told.stdout).expect("JSON");
            let hosts = told["hosts"].as_array().expect("a list");
            if hosts.len() == count && hosts.iter().all(|host| host["ios"].as_u64() > Some(0)) {
                return;
            }
            assert!(Instant::now() < deadline, "{told:#}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn path(&self, volume: &str) -> PathBuf {
        self.mounted.path().join(volume)
    }

    /// Writes to a volume's file as a host does whose I/O weft has done.
    pub fn fill(&self, volume: &str, byte: u8) {
        let file = OpenOptions::new().write(true).open(self.path(volume));
        let written = file
            .expect("it is there")
            .write_all_at(&vec![byte; SIZE], 0);
        written.expect("room");
    }

    /// What all of a volume holds.
    fn byte(&self, volume: &str) -> u8 {
        let bytes = fs::read(self.path(volume)).expect("it is there");
        assert!(bytes.iter().all(|&byte| byte == bytes[0]), "a mixture");
        bytes[0]
    }
}

#[needs(loop_device, mount, program("mkfs.xfs"))]
#[test]
fn snapshots_are_made_listed_renamed_and_removed_by_commands() {
    let disks = Disks::new();
    let serving = disks.serve();
    assert_eq!(disks.answer(&["list"]), "there is no snapshot\n");
    assert_eq!(
        disks.answer(&["create", "monday", "a", "b"]),
        "snapshot monday of volume a is made\nsnapshot monday of volume b is made\n"
    );
    disks.fill("a", 1);
    disks.answer(&["create", "tuesday", "a"]);
    let shown = disks.answer(&["list"]);
    assert!(shown.starts_with("VOLUME  NAME "), "{shown}");
    assert_eq!(shown.lines().count(), 4, "{shown}");
    let shown = disks.answer(&["list", "b"]);
    assert_eq!(shown.lines().count(), 2, "{shown}");
    let all = disks.list();
    assert_eq!(all[0]["name"], "monday");
    assert_eq!(all[1]["size_bytes"], SIZE);
    assert!(all.iter().all(|one| one["damage"].is_null()), "{all:?}");

    for (arguments, code, part) in [
        (&["create", "x", "c"][..], 1, "there are a, b, r"),
        (&["create", "x", "a", "r"], 1, "which has no snapshots"),
        (
            &["create", "monday", "b", "a"],
            1,
            "has a snapshot \"monday\" already",
        ),
        (&["create", "-x", "a"], 2, "unexpected argument"),
        (&["create", "a/b", "a"], 2, "is no name of a snapshot"),
        (&["create", "x"], 2, "<VOLUMES>"),
        (&["rm", "friday", "a"], 1, "has no snapshot \"friday\""),
        (&["rename", "monday", "tuesday", "a"], 1, "already"),
        (
            &["rollback", "friday", "a"],
            1,
            "has no snapshot \"friday\"",
        ),
        (&["list", "c"], 1, "there is no volume c"),
    ] {
        let told = disks.refusal(arguments, code);
        assert!(told.contains(part), "{arguments:?}: {told}");
    }
    assert_eq!(disks.list().len(), 3);

    disks.answer(&["rename", "monday", "first", "a", "b"]);
    disks.answer(&["rm", "first", "a", "b"]);
    end_in_order(serving);
    let serving = disks.serve();
    let all = disks.list();
    assert_eq!(all.len(), 1, "{all:?}");
    assert_eq!(all[0]["name"], "tuesday");
    disks.fill("a", 2);
    assert_eq!(
        disks.answer(&["rollback", "tuesday", "a"]),
        "volume a holds what its snapshot tuesday holds\n"
    );
    assert_eq!(disks.byte("a"), 1);
    let socket = disks.file.path.with_file_name("admin.sock");
    let audit = weft(&["audit", "--at", socket.to_str().expect("UTF-8")]);
    assert!(
        text(&audit.stdout).contains("snapshot rollback"),
        "{audit:?}"
    );
    end_in_order(serving);
}

#[needs(loop_device, mount, program("mkfs.xfs"))]
#[test]
fn clone_is_added_to_the_configuration_and_served_after_a_restart() {
    let disks = Disks::new();
    let serving = disks.serve();
    disks.fill("a", 4);
    disks.answer(&["create", "s", "a"]);
    let told = disks.answer(&["clone", "s", "a", "c"]);
    assert!(told.contains("volume \"c\""), "{told}");
    assert_eq!(disks.byte("c"), 4);
    for (arguments, part) in [
        (&["clone", "s", "a", "c"][..], "exists"),
        (&["clone", "none", "a", "d"], "has no snapshot"),
        (&["clone", "s", "a", "b"], "exists"),
    ] {
        let told = disks.refusal(arguments, 1);
        assert!(told.contains(part), "{arguments:?}: {told}");
    }
    let elsewhere = disks.path("elsewhere");
    let elsewhere = elsewhere.to_str().expect("UTF-8");
    // The name is another volume's.
    let told = disks.refusal(&["clone", "s", "a", "b", "--path", elsewhere], 2);
    assert!(told.contains("there is a volume \"b\" already"), "{told}");
    assert!(!disks.path("elsewhere").exists(), "it is taken back");
    disks.answer(&["rm", "s", "a"]);
    end_in_order(serving);
    let serving = disks.serve();
    disks.answer(&["create", "t", "a", "c"]);
    assert_eq!(disks.byte("c"), 4);
    end_in_order(serving);
}

#[test]
fn path_of_a_clone_that_another_machine_or_the_configuration_cannot_have_is_told() {
    let bytes = OsStr::from_bytes(b"/srv/\xff");
    for (path, part) in [
        (OsStr::new("c.img"), "c.img: give an absolute path"),
        (bytes, "the configuration is UTF-8"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weft"));
        command.args([
            "snapshot",
            "clone",
            "s",
            "a",
            "c",
            "--at",
            "https://127.0.0.1:1",
        ]);
        let output = command.arg("--path").arg(path).output();
        let output = output.expect("weft starts");
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert!(told.contains(part), "{told}");
    }
}

#[needs(loop_device, mount, program("mkfs.xfs"))]
#[test]
fn schedule_makes_snapshots_of_all_its_volumes_at_once() {
    let disks = Disks::with(
        "[[snapshot_schedule]]\nname = \"auto\"\nvolumes = [\"a\", \"b\"]\nhourly = 9\n",
    );
    let serving = disks.serve();
    let deadline = Instant::now() + PATIENCE;
    let all = loop {
        let all = disks.list();
        if all.len() == 2 {
            break all;
        }
        assert!(Instant::now() < deadline, "{all:?}");
        thread::sleep(Duration::from_millis(20));
    };
    let name = &all[0]["name"];
    assert!(name.as_str().expect("text").starts_with("auto-"), "{name}");
    assert_eq!(&all[1]["name"], name, "of one instant");
    end_in_order(serving);
    let serving = disks.serve();
    let again = disks.list();
    let stay = again.iter().filter(|one| one["name"] == *name).count();
    assert_eq!(stay, 2, "{again:?}");
    end_in_order(serving);
}

#[needs(loop_device, mount, program("mkfs.xfs"))]
#[test]
fn hosts_see_no_error_of_a_snapshot_and_lose_volumes_for_a_rollback_when_told() {
    let disks = Disks::new();
    let serving = disks.serve();
    let url = format!("nvme-tcp://127.0.0.1:{}/{NQN}?nsid=1", disks.nvme);
    let nvme = || Load::start_as(&url, &["--hostnqn", HOST]);
    let url = format!("iscsi://127.0.0.1:{}/{IQN}/0", disks.iscsi);
    let iscsi = Load::start_as(&url, &["--initiator", INITIATOR]);
    let load = nvme();
    disks.wait_for_hosts(2);
    for number in 0..10 {
        disks.answer(&["create", &format!("s{number}"), "a", "b"]);
    }
    let told = disks.refusal(&["rollback", "s1", "a", "b"], 1);
    for part in ["! volume a", "! volume b", "--disconnect does it"] {
        assert!(told.contains(part), "{told}");
    }
    let told = disks.refusal(&["rollback", "none", "a", "--disconnect"], 1);
    assert!(told.contains("has no snapshot \"none\""), "{told}");
    // Every block of theirs is checked, and every error ends them.
    load.end();
    iscsi.end();

    let load = nvme();
    disks.wait_for_hosts(1);
    let told = disks.answer(&["rollback", "s1", "a", "--disconnect"]);
    assert!(told.contains("goes away and comes again"), "{told}");
    drop(load);
    disks.wait_for_hosts(0);
    let load = nvme();
    disks.wait_for_hosts(1);
    load.end();
    end_in_order(serving);
}

/// A kill at any point leaves each snapshot whole or not there, and each volume as it was or
/// as it is rolled back.
#[needs(loop_device, mount, program("mkfs.xfs"))]
#[test]
fn weft_that_is_killed_leaves_no_half_of_a_snapshot_or_of_a_rollback() {
    let disks = Disks::new();
    let serving = disks.serve();
    disks.fill("a", 1);
    disks.answer(&["create", "base", "a", "b"]);
    end_in_order(serving);
    let mut answered = Vec::new();
    for number in 0..16_u64 {
        let mut serving = disks.serve();
        disks.fill("a", 2);
        let name = format!("s{number}");
        let arguments = match number % 2 {
            0 => disks.arguments(&["create", &name, "a", "b"]),
            _ => disks.arguments(&["rollback", "base", "a"]),
        };
        let mut command = Command::new(env!("CARGO_BIN_EXE_weft"));
        command.args(&arguments);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut asks = command.spawn().expect("weft starts");
        thread::sleep(Duration::from_millis(number * 2));
        serving.child.kill().expect("our child");
        serving.child.wait().expect("our child");
        let is_done = asks.wait().expect("our child").success();
        drop(serving);

        let serving = disks.serve();
        let all = disks.list();
        assert!(all.iter().all(|one| one["damage"].is_null()), "{all:?}");
        let byte = disks.byte("a");
        match number % 2 {
            0 if is_done => answered.push(name),
            0 => assert_eq!(byte, 2),
            _ => assert!(byte == 1 || byte == 2 && !is_done, "{byte}"),
        }
        for volume in ["a", "b"] {
            let of_volume = all.iter().filter(|one| one["volume"] == *volume);
            let names: Vec<_> = of_volume.map(|one| one["name"].as_str()).collect();
            let mut awaited = answered.iter().map(String::as_str).chain(["base"]);
            assert!(awaited.all(|name| names.contains(&Some(name))), "{names:?}");
            let folder = disks.path(volume).with_extension("snapshots");
            let left = fs::read_dir(folder).expect("a folder").flatten();
            let left: Vec<_> = left.map(|entry| entry.file_name()).collect();
            assert_eq!(left.len(), names.len(), "{left:?}");
        }
        end_in_order(serving);
    }
}
