//! What `check` finds before a start, a start refuses with the same words.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use needs::needs;
use rustix::fs::{CWD, FileType, Mode, XattrFlags, mknodat, setxattr};

use crate::serving::{end_of, file, free_port, good, serve, serve_by, text, weft};
use crate::told::end_in_order;

const SIZE: u64 = 8 << 20;

/// A configuration with these lines of its volume, in a folder that `prepare` fills,
/// is refused by `check` and at a start with all of `parts`.
#[track_caller]
fn assert_refused(lines: &str, parts: &[&str], prepare: impl FnOnce(&Path)) {
    let size = "path = \"disk0.img\"\nsize = \"8MiB\"\n";
    let text_of = good(free_port()).replacen(size, lines, 1);
    let file = file(&text_of);
    prepare(file.path.parent().expect("a folder"));
    for command in ["check", "serve"] {
        let mut weft = Command::new(env!("CARGO_BIN_EXE_weft"));
        let weft = weft.arg(command).arg("-c").arg(&file.path);
        let output = end_of(weft.stdout(Stdio::null()));
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{command}: {told}");
        for part in parts {
            assert!(
                told.contains(part),
                "{command}: {part:?} is not in:\n{told}"
            );
        }
    }
}

const DISK: &str = "path = \"disk0.img\"\nsize = \"8MiB\"\n";

#[test]
fn link_that_leads_nowhere_is_refused_with_its_end() {
    let parts = ["disk0.img is a symbolic link to nowhere", "mount what"];
    assert_refused(DISK, &parts, |folder| {
        symlink("nowhere", folder.join("disk0.img")).expect("a link");
    });
}

/// ramfs has nothing below its page cache.
#[needs(mount, mount_namespace)]
#[test]
fn file_system_without_direct_io_is_refused_or_goes_through_the_cache() {
    let file_of = |direct: &str| {
        let lines = format!("path = \"disks/disk0.img\"\nsize = \"8MiB\"\ndirect = {direct}\n");
        file(&good(free_port()).replacen(DISK, &lines, 1))
    };
    let mounted = |config: &Path| {
        let disks = config.with_file_name("disks");
        fs::create_dir(&disks).expect("a folder");
        let script = format!(
            "mount -t ramfs none {0}\ntruncate -s 8M {0}/disk0.img\nexec \"$0\" \"$@\"",
            disks.display()
        );
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-ec", &script, env!("CARGO_BIN_EXE_weft")]);
        command
    };
    let refused = file_of("true");
    let mut check = mounted(&refused.path);
    let output = end_of(
        check
            .arg("check")
            .arg("-c")
            .arg(&refused.path)
            .stdout(Stdio::null()),
    );
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(
        told.contains("past the page cache") && told.contains("\"auto\""),
        "{told}"
    );
    let taken = file_of("\"auto\"");
    let mut serving = serve_by(mounted(&taken.path), &taken.path, Stdio::piped());
    let line = serving.log_line("data goes through the page cache");
    assert!(line.contains("disk0.img"), "{line}");
    end_in_order(serving);
}

/// Twins by what is kept beside their data, which the configuration does not show.
#[test]
fn two_files_that_keep_one_uuid_are_refused_by_name() {
    let lines = format!(
        "{DISK}[[volume]]\nname = \"twin\"\nkind = \"file\"\npath = \"twin.img\"\nsize = \"8MiB\"\n"
    );
    let parts = [
        "volume \"twin\" has the UUID of the volume \"disk0\"",
        "`uuid`",
    ];
    assert_refused(&lines, &parts, |folder| {
        for name in ["disk0.img", "twin.img"] {
            let path = folder.join(name);
            File::create(&path)
                .and_then(|f| f.set_len(SIZE))
                .expect("a file");
            let uuid = b"01234567-89ab-4def-8123-456789abcdef";
            let set = setxattr(&path, "user.weft.uuid", uuid, XattrFlags::empty());
            set.expect("ext4, xfs, btrfs and tmpfs have attributes");
        }
    });
}

/// The state file of another volume, which this one may not take for its own.
#[test]
fn state_file_of_another_volume_is_refused_with_both_uuids() {
    let other = "f81d4fae-7dec-11d0-a765-00a0c91e6bf6";
    let own = "01234567-89ab-4def-8123-456789abcdef";
    let lines = format!("{DISK}uuid = \"{own}\"\nstate = \"other\"\n");
    let parts = ["belongs to the volume with UUID", other, own, "set uuid ="];
    assert_refused(&lines, &parts, |folder| {
        let spec = store::Spec {
            state: Some(folder.join("other")),
            uuid: uuid::Uuid::parse_str(other).ok(),
            ..store::Spec::new("o", store::Kind::RAM, SIZE, 512)
        };
        let volume = store::open(&spec).expect("memory");
        volume.state().protect_permanently().expect("kept");
    });
}

#[needs(file_size_limit)]
#[test]
fn size_that_the_file_system_does_not_allow_is_refused() {
    let lines = DISK.replace("8MiB", "1PiB");
    let parts = ["disk0.img", "allows no file of that size"];
    assert_refused(&lines, &parts, |_| {});
}

#[test]
fn size_that_the_limit_of_the_process_does_not_allow_is_refused() {
    let mut limited = Command::new("sh");
    let script = "ulimit -f 1024 && exec \"$0\" check -c \"$1\"";
    limited.args(["-c", script, env!("CARGO_BIN_EXE_weft")]);
    let small = file(&good(free_port()));
    let output = end_of(limited.arg(&small.path).stdout(Stdio::null()));
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{:?}: {told}", output.status);
    assert!(told.contains("'ulimit -f'"), "{told}");
}

/// A thin volume may be larger than the room that there is.
#[test]
fn size_beyond_the_free_space_is_told_and_served() {
    let file = file(&good(free_port()));
    let below = rustix::fs::statvfs(file.path.parent().expect("a folder")).expect("a disk");
    let mib = ((below.f_bavail * below.f_frsize) >> 20) + 4096;
    let text_of = fs::read_to_string(&file.path).expect("ours");
    fs::write(&file.path, text_of.replace("8MiB", &format!("{mib}MiB"))).expect("ours");
    let output = weft(&["check", "-c", file.path.to_str().expect("UTF-8")]);
    let told = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let part = "may come to need";
    assert!(
        told.contains("  note: volume 'disk0': ") && told.contains(part),
        "{told}"
    );
    let mut serving = serve(&file.path);
    serving.log_line(part);
    serving.signal("TERM");
    assert_eq!(serving.end().0, Some(0));
}

#[test]
fn pipe_or_folder_beside_the_state_file_is_refused_and_left_alone() {
    let lines = format!("{DISK}state = \"kept\"\n");
    for beside in ["kept.new", "kept.lock"] {
        let parts = [beside, "is not a regular file", "move it away"];
        assert_refused(&lines, &parts, |folder| {
            let mode = Mode::RUSR | Mode::WUSR;
            mknodat(CWD, folder.join(beside), FileType::Fifo, mode, 0).expect("a pipe");
        });
        assert_refused(&lines, &parts, |folder| {
            fs::create_dir(folder.join(beside)).expect("a folder");
        });
    }
    let parts = ["kept", "symbolic link to what does not exist"];
    assert_refused(&lines, &parts, |folder| {
        symlink("nowhere", folder.join("kept")).expect("a link");
    });
}

/// Whatever kind they are, volumes say alike where their state is.
#[test]
fn every_volume_says_where_its_state_is_kept() {
    let ram = "[[volume]]\nname = \"r\"\nkind = \"ram\"\nsize = \"8MiB\"\nstate = \"r.state\"\n\
               [[volume]]\nname = \"n\"\nkind = \"ram\"\nsize = \"8MiB\"\n\
               [[nvme.subsystem]]";
    let namespaces = "[[nvme.subsystem.namespace]]\nnsid = 2\nvolume = \"r\"\n\
                      [[nvme.subsystem.namespace]]\nnsid = 3\nvolume = \"n\"\n[[listener]]";
    let text_of = good(free_port()).replacen("[[nvme.subsystem]]", ram, 1);
    let file = file(&text_of.replacen("[[listener]]", namespaces, 1));
    let output = weft(&["check", "-c", file.path.to_str().expect("UTF-8")]);
    let told = text(&output.stdout);
    let at = |name: &str| file.path.with_file_name(name).display().to_string();
    for line in [
        format!(
            "disk0, file {0}, 8MiB, blocks of 4096, state kept in {0}.weft\n",
            at("disk0.img")
        ),
        format!(
            "r, ram, 8MiB, blocks of 4096, state kept in {}\n",
            at("r.state")
        ),
        "n, ram, 8MiB, blocks of 4096, no state kept\n".to_owned(),
    ] {
        assert!(told.contains(&line), "{line:?} is not in:\n{told}");
    }
}
