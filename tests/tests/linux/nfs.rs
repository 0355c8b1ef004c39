//! An unmodified Linux kernel as the client of files.

use interop::guest::{self, Config, Guest};
use interop::scripts::{MACHINE, NFS, NFS_CRASH, NFS_SESSION, script};
use interop::weft::{Target, free_address};
use interop::{is_ci, skip};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

/// A file system in memory as `/mem`, a directory as `/dir`, both for
/// everybody, root included.
fn config(address: SocketAddr, dir: &Path, io: &str) -> String {
    let dir = dir.display();
    format!(
        "[nfs]\nstate = \"state\"\nlease_ms = 10000\ngrace_ms = 10000\n\
         [[file_system]]\nname = \"mem\"\nkind = \"mem\"\nsize = \"512MiB\"\n\
         [[file_system]]\nname = \"dir\"\nkind = \"dir\"\npath = \"{dir}\"\n\
         [[export]]\npath = \"/mem\"\nfile_system = \"mem\"\nallow_any_client = true\nsquash = \"none\"\n\
         [[export]]\npath = \"/dir\"\nfile_system = \"dir\"\nallow_any_client = true\nsquash = \"none\"\n\
         [[listener]]\naddress = \"{address}\"\nprotocol = \"nfs\"\n\
         [policy]\nio = \"{io}\"\n"
    )
}

/// A folder that anybody may write, as an export's root.
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

/// Longer where nobody waits for it.
fn steps() -> &'static str {
    if is_ci() { "500" } else { "60" }
}

fn guest(name: &str, settings: &[(&str, &str)], pieces: &[&str]) -> Guest {
    let mut config = Config::new(name, &script(settings, pieces));
    config.cpus = 2;
    config.program = Some(env!("CARGO_BIN_EXE_exerciser").into());
    if is_ci() {
        config.limit = Duration::from_secs(900);
    }
    Guest::start(&config).expect("a guest, as everything for it is there")
}

/// Every version, one connection to sixteen, memory and a directory: what
/// programs do, against a model.
#[test]
fn nfs_session() {
    let name = "nfs";
    if let Err(why) = guest::prepare() {
        return skip(name, &why);
    }
    let (address, dir, seed) = (free_address(), open_folder(), seed());
    let target = Target::serve(name, &config(address, dir.path(), "auto"), address);
    let port = address.port().to_string();
    let settings = [
        ("ADDR", MACHINE),
        ("PORT", &port),
        ("STEPS", steps()),
        ("SEED", &seed),
        ("EXPORTS", "/dir /mem"),
        ("TRIED", if is_ci() { "/dir /mem" } else { "/mem" }),
    ];
    let output = guest(name, &settings, &[NFS, NFS_SESSION]).finish();
    let output = output.expect_success();
    let last = output.lines().rfind(|line| line.starts_with("STEP"));
    assert!(last.is_some_and(|line| line.ends_with(" end")), "{output}");
    target.expect_orderly_end();
}

/// The server dies twice, under load of clients of three versions and with
/// data that is written and not committed: no program notices.
#[test]
fn nfs_server_killed_under_load() {
    let name = "nfs-killed";
    if let Err(why) = guest::prepare() {
        return skip(name, &why);
    }
    let (address, dir, seed) = (free_address(), open_folder(), seed());
    let mut target = Target::serve(name, &config(address, dir.path(), "auto"), address);
    let port = address.port().to_string();
    let settings = [
        ("ADDR", MACHINE),
        ("PORT", &port),
        ("STEPS", steps()),
        ("SEED", &seed),
        ("EXPORT", "/dir"),
    ];
    let guest = guest(name, &settings, &[NFS, NFS_CRASH]);
    let kills = ["MARK under load", "MARK with dirty pages"];
    // Long enough for clients to find out.
    let guest = target.dies_at(guest, &kills, Duration::from_millis(500));
    guest.finish().expect_success();
    target.expect_orderly_end();
}
