//! An unmodified Linux kernel as the client of files.

use interop::child::output;
use interop::guest::{Config, Guest};
use interop::is_ci;
use interop::scripts::{MACHINE, NFS, NFS_CRASH, NFS_FULL, NFS_PAIR, NFS_SESSION, script};
use interop::systems::{RELEASE, System};
use interop::weft::{WeftProcess, free_address};
use needs::needs;
use std::net::SocketAddr;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// What carries NFS, and clients that have it.
pub(crate) struct Transport {
    pub(crate) system: &'static System,
    /// More lines of the listener.
    pub(crate) listener: &'static str,
    /// What scripts of clients begin with.
    pub(crate) first: &'static [&'static str],
    /// What it is set by.
    pub(crate) settings: &'static [(&'static str, &'static str)],
}

static TCP: Transport = Transport {
    system: &RELEASE,
    listener: "",
    first: &[],
    settings: &[],
};

/// A file system in memory as `/mem`, a directory as `/dir`, both for all
/// users, root included; `listener`: more lines of the listener.
fn config(address: SocketAddr, dir: &Path, listener: &str) -> String {
    let dir = dir.display();
    format!(
        "[nfs]\nstate = \"state\"\nlease_ms = 10000\ngrace_ms = 10000\n\
         [[file_system]]\nname = \"mem\"\nkind = \"mem\"\nsize = \"512MiB\"\n\
         [[file_system]]\nname = \"dir\"\nkind = \"dir\"\npath = \"{dir}\"\n\
         [[export]]\npath = \"/mem\"\nfile_system = \"mem\"\nallow_any_client = true\nsquash = \"none\"\n\
         [[export]]\npath = \"/dir\"\nfile_system = \"dir\"\nallow_any_client = true\nsquash = \"none\"\n\
         [[listener]]\naddress = \"{address}\"\nprotocol = \"nfs\"\n{listener}\n"
    )
}

/// A folder that all users may write, as an export's root.
fn open_folder() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().expect("a folder");
    let mode = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(dir.path(), mode).expect("a mode");
    dir
}

/// Another one each time, unless `WEFT_SEED` says which.
fn seed() -> String {
    let given = std::env::var("WEFT_SEED").ok();
    given.unwrap_or_else(|| {
        let now = std::time::SystemTime::now();
        let since = now.duration_since(std::time::UNIX_EPOCH).expect("a clock");
        since.subsec_nanos().to_string()
    })
}

/// Steps of the exerciser: more in CI.
fn steps() -> &'static str {
    if is_ci() { "500" } else { "60" }
}

fn guest(by: &Transport, name: &str, settings: &[(&str, &str)], pieces: &[&str]) -> Guest {
    let settings = [by.settings, settings].concat();
    let pieces = [by.first, &[NFS], pieces].concat();
    let mut config = Config::new(name, &script(&settings, &pieces));
    config.system = by.system;
    config.cpus = 2;
    config.program = Some(env!("CARGO_BIN_EXE_exerciser").into());
    if is_ci() {
        // Minutes on a quiet machine; a busy one is no reason to fail.
        config.limit = Duration::from_secs(2700);
    }
    Guest::start(&config).expect("a guest, as everything for it is there")
}

/// A client goes through `piece` to its end, against a server of its own.
pub(crate) fn session(by: &Transport, name: &str, piece: &str) {
    let (address, dir, seed) = (free_address(), open_folder(), seed());
    let _socket = UnixListener::bind(dir.path().join("socket")).expect("a socket");
    let config = config(address, dir.path(), by.listener);
    let target = WeftProcess::serve(name, &config, address);
    let port = address.port().to_string();
    let settings = [
        ("ADDR", MACHINE),
        ("PORT", &port),
        ("STEPS", steps()),
        ("SEED", &seed),
        ("EXPORTS", "/dir /mem"),
        ("TRIED", if is_ci() { "/dir /mem" } else { "/mem" }),
    ];
    let output = guest(by, name, &settings, &[piece]).finish();
    let output = output.expect_success();
    let last = output.lines().rfind(|line| line.starts_with("STEP"));
    assert!(last.is_some_and(|line| line.ends_with(" end")), "{output}");
    target.expect_orderly_end();
}

/// Every version, one connection to sixteen, memory and a directory: what
/// programs do, against a model.
#[needs(guest)]
#[test]
fn nfs_session() {
    session(&TCP, "nfs", NFS_SESSION);
}

/// The server dies twice, under load of clients of three versions and with
/// data that is written and not committed: no program notices.
#[needs(guest)]
#[test]
fn nfs_server_killed_under_load() {
    killed_under_load(&TCP, "nfs-killed");
}

pub(crate) fn killed_under_load(by: &Transport, name: &str) {
    let (address, dir, seed) = (free_address(), open_folder(), seed());
    let config = config(address, dir.path(), by.listener);
    let mut target = WeftProcess::serve(name, &config, address);
    let port = address.port().to_string();
    let settings = [
        ("ADDR", MACHINE),
        ("PORT", &port),
        ("STEPS", steps()),
        ("SEED", &seed),
        ("EXPORT", "/dir"),
    ];
    let guest = guest(by, name, &settings, &[NFS_CRASH]);
    let kills = ["MARK under load", "MARK with dirty pages"];
    // Long enough for clients to find out.
    let guest = target.dies_at(guest, &kills, Duration::from_millis(500));
    guest.finish().expect_success();
    target.expect_orderly_end();
}

/// A small file system of this machine, mounted until this is dropped.
struct Small(tempfile::TempDir);

impl Small {
    const BYTES: u64 = 16 << 20;

    fn mount(arguments: &[&str]) -> Small {
        let folder = open_folder();
        let mut mount = Command::new("mount");
        output(mount.args(arguments).arg(folder.path())).expect("a mount");
        Small(folder)
    }

    /// In memory.
    fn tmpfs() -> Small {
        let size = format!("size={}", Small::BYTES);
        Small::mount(&["-t", "tmpfs", "-o", &size, "weft-test"])
    }

    /// Where room is found late: what is written may fail at the sync.
    fn ext4(image: &Path) -> Small {
        let file = std::fs::File::create(image).expect("an image");
        file.set_len(Small::BYTES).expect("a sparse file");
        output(Command::new("mkfs.ext4").arg("-q").arg(image)).expect("a file system");
        Small::mount(&["-o", "loop", &image.display().to_string()])
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let status = Command::new("umount").arg(self.0.path()).status();
        if !status.is_ok_and(|status| status.success()) {
            eprintln!("umount {}: it stays mounted", self.0.path().display());
        }
    }
}

/// A write of more than there is room for fails at once, in every version, buffered,
/// O_SYNC and O_DIRECT.
#[needs(guest, mount, loop_device, program("mkfs.ext4"))]
#[test]
fn nfs_write_to_a_full_file_system_fails_at_once() {
    let name = "nfs-full";
    let images = tempfile::tempdir().expect("a folder");
    let (tmpfs, ext4) = (Small::tmpfs(), Small::ext4(&images.path().join("image")));
    let address = free_address();
    let of = |name: &str, small: &Small| {
        let path = small.path().display();
        format!(
            "[[file_system]]\nname = \"{name}\"\nkind = \"dir\"\npath = \"{path}\"\n\
             [[export]]\npath = \"/{name}\"\nfile_system = \"{name}\"\n\
             allow_any_client = true\nsquash = \"none\"\n"
        )
    };
    let config = format!(
        "[nfs]\nstate = \"state\"\n{}{}\
         [[listener]]\naddress = \"{address}\"\nprotocol = \"nfs\"\n",
        of("tmpfs", &tmpfs),
        of("ext4", &ext4)
    );
    let target = WeftProcess::serve(name, &config, address);
    let port = address.port().to_string();
    let settings = [
        ("ADDR", MACHINE),
        ("PORT", &port),
        ("EXPORTS", "/tmpfs /ext4"),
    ];
    guest(&TCP, name, &settings, &[NFS_FULL])
        .finish()
        .expect_success();
    target.expect_orderly_end();
}

/// A client of two kernels, by name, the other's name, its own version, and what it does at
/// the end.
fn one_of_two(by: &Transport, port: &str, seed: &str, client: [&str; 4]) -> Guest {
    let [name, other, version, end] = client;
    let settings = [
        ("ADDR", MACHINE),
        ("PORT", port),
        ("STEPS", if is_ci() { "300" } else { "120" }),
        ("SEED", seed),
        ("NAME", name),
        ("OTHER", other),
        ("VERSION", version),
        ("END", end),
        ("LEASE_S", "10"),
    ];
    guest(by, &format!("nfs-{name}"), &settings, &[NFS_PAIR])
}

/// What the exerciser said of all its runs in one guest: how much it has counted,
/// and how often it was refused a lock.
fn counted(output: &str) -> (u64, u64) {
    let words = |line: &str| -> Vec<u64> {
        let words = line.split(' ').filter_map(|word| word.parse().ok());
        words.collect()
    };
    let lines = output.lines().filter(|line| line.starts_with("added "));
    lines.map(words).fold((0, 0), |sum, line| match line[..] {
        [added, refused] => (sum.0 + added, sum.1 + refused),
        _ => panic!("{line:?}"),
    })
}

/// Two kernels want the same locks and take each other's delegations away; one
/// is gone without a word, and what it held is the other's once its lease is
/// over, and not before.
#[needs(guest)]
#[test]
fn nfs_two_kernels() {
    two_kernels(&TCP, "nfs-two");
}

pub(crate) fn two_kernels(by: &Transport, name: &str) {
    let (address, dir, seed) = (free_address(), open_folder(), seed());
    let config = config(address, dir.path(), by.listener);
    let target = WeftProcess::serve(name, &config, address);
    let port = address.port().to_string();
    let first = one_of_two(by, &port, &seed, ["first", "second", "4.2", "holds"]);
    let other_seed = format!("{seed}1");
    let second = one_of_two(by, &port, &other_seed, ["second", "first", "4.1", "takes"]);
    let first = first.until("MARK holds");
    let second = second.until("MARK refused");
    let first_said = first.output();
    let logs = first.logs().to_path_buf();
    // Its emulator gets SIGKILL: nothing is closed, returned or said.
    drop(first);
    std::fs::write(dir.path().join("flags/killed"), "").expect("a flag");
    let second_said = second.finish().expect_success();
    let said = [&*first_said, &*second_said].map(counted);
    let counters = std::fs::read(dir.path().join("counters")).expect("what was counted");
    let counters = counters.as_chunks::<8>().0.iter();
    let stands: u64 = counters.map(|count| u64::from_le_bytes(*count)).sum();
    assert_eq!(stands, said[0].0 + said[1].0, "seed {seed}: {said:?}");
    assert!(said.iter().all(|said| said.0 > 100), "{said:?}");
    // They were there at the same time.
    assert!(said[0].1 + said[1].1 > 0, "seed {seed}: {said:?}");
    let kept = std::fs::read_to_string(dir.path().join("kept")).expect("a file");
    assert_eq!(kept, "taken\n");
    // Logs of a success are only in the way.
    let _ = std::fs::remove_dir_all(logs);
    target.expect_orderly_end();
}
