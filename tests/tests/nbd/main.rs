//! Other people's NBD clients on this machine: libnbd's programs, QEMU's block driver and fio.

#![forbid(unsafe_code)]

mod tls;

use interop::child::output;
use interop::guest;
use interop::packages::Sysroot;
use interop::systems::RELEASE;
use interop::weft::{WeftProcess, free_address};
use needs::needs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use testkit::Mounted;

const MIB: usize = 1 << 20;

/// Exports of each kind of volume: a sparse file of 512 byte blocks, memory of 4096 byte blocks,
/// and memory that may not be written; and one for another network.
fn config(address: SocketAddr, io: &str) -> String {
    format!(
        r#"
[policy]
io = "{io}"
[[volume]]
name = "file"
kind = "file"
path = "file.img"
size = "64MiB"
block_bytes = 512
[[volume]]
name = "ram"
kind = "ram"
size = "64MiB"
block_bytes = 4096
[[nbd_export]]
volume = "file"
description = "a sparse file"
allow_any_client = true
[[nbd_export]]
volume = "ram"
clients = ["127.0.0.0/8"]
[[nbd_export]]
name = "fixed"
volume = "ram"
read_only = true
allow_any_client = true
[[nbd_export]]
name = "elsewhere"
volume = "ram"
clients = ["192.0.2.0/24"]
[[listener]]
address = "{address}"
protocol = "nbd"
[admin]
socket = "admin.sock"
"#
    )
}

struct Served {
    sysroot: Sysroot,
    target: WeftProcess,
    address: SocketAddr,
    folder: tempfile::TempDir,
}

impl Served {
    fn new(name: &str, io: &str) -> Served {
        let address = free_address();
        let folder = tempfile::tempdir().expect("a folder");
        Served::by(name, &config(address, io), address, folder)
    }

    /// With a configuration in which a listener has `address`, and a folder for what clients use.
    fn by(name: &str, config: &str, address: SocketAddr, folder: tempfile::TempDir) -> Served {
        let (sysroot, _) = guest::prepare(&RELEASE).expect("what the clients are made of");
        Served {
            sysroot,
            target: WeftProcess::serve(name, config, address),
            address,
            folder,
        }
    }

    fn url(&self, export: &str) -> String {
        format!("nbd://{}/{export}", self.address)
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// What a program says that succeeds.
    fn run(&self, program: &str, arguments: &[&str]) -> String {
        let mut command = self.sysroot.command(&format!("usr/bin/{program}"));
        let said = output(command.args(arguments));
        let said = said.unwrap_or_else(|e| panic!("{program} {arguments:?}: {e}"));
        String::from_utf8_lossy(&said).into_owned()
    }

    /// What a program says that fails.
    fn fail(&self, program: &str, arguments: &[&str]) -> String {
        let mut command = self.sysroot.command(&format!("usr/bin/{program}"));
        let ended = command.args(arguments).output().expect("it runs");
        let said = [ended.stdout, ended.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        assert!(!ended.status.success(), "{program} {arguments:?}: {said}");
        said
    }

    /// What qemu-io says, whether its steps succeed or not.
    fn qemu_io(&self, export: &str, options: &[&str], steps: &[&str]) -> String {
        let mut command = self.sysroot.command("usr/bin/qemu-io");
        command.args(["-f", "raw", "-d", "unmap"]).args(options);
        for step in steps {
            command.args(["-c", step]);
        }
        let said = command.arg(self.url(export)).output().expect("it runs");
        let said = [said.stdout, said.stderr].concat();
        String::from_utf8_lossy(&said).into_owned()
    }
}

/// An image of which each third part is a hole: few, as making one takes some file systems long.
fn image(path: &str) -> Vec<u8> {
    let mut bytes = vec![0; 64 * MIB];
    for (at, part) in (0u8..).zip(bytes.chunks_mut(MIB)) {
        part.fill(at % 3);
    }
    std::fs::write(path, &bytes).expect("an image");
    bytes
}

fn libnbd(io: &str) {
    let served = Served::new("libnbd", io);
    let listed = served.run("nbdinfo", &["--list", &served.url("")]);
    for name in ["file", "ram", "fixed"] {
        assert!(listed.contains(&format!("export=\"{name}\"")), "{listed}");
    }
    assert!(!listed.contains("elsewhere"), "{listed}");
    let info = served.run("nbdinfo", &[&served.url("file")]);
    for words in [
        "export-size: 67108864",
        "a sparse file",
        "can_multi_conn: true",
        "can_fast_zero: true",
        "is_read_only: false",
        "block_size_minimum: 512",
        "base:allocation",
    ] {
        assert!(info.contains(words), "no {words} in {info}");
    }
    let fixed = served.run("nbdinfo", &[&served.url("fixed")]);
    assert!(fixed.contains("is_read_only: true"), "{fixed}");
    let there = served.path("there.img");
    let bytes = image(&there);
    for export in ["file", "ram"] {
        let (url, back) = (served.url(export), served.path("back.img"));
        served.run("nbdcopy", &["--flush", &there, &url]);
        served.run("nbdcopy", &[&url, &back]);
        assert!(std::fs::read(Path::new(&back)).expect("what came back") == bytes);
        let map = served.run("nbdinfo", &["--map", &url]);
        assert!(map.contains("data"), "{map}");
    }
    // What is not written is a hole, of the one and of the other.
    served.qemu_io("ram", &[], &["discard 0 64M"]);
    let map = served.run("nbdinfo", &["--map", &served.url("ram")]);
    assert!(map.contains("hole,zero") && !map.contains("data"), "{map}");
    served.target.expect_orderly_end();
}

#[needs(guest)]
#[test]
fn libnbd_lists_copies_and_maps_over_epoll() {
    libnbd("epoll");
}

#[needs(guest, io_uring)]
#[test]
fn libnbd_lists_copies_and_maps_over_io_uring() {
    libnbd("io_uring");
}

/// A volume on a file system that can share blocks, and a snapshot of it.
#[needs(guest, loop_device, mount, program("mkfs.xfs"))]
#[test]
fn snapshot_is_exported_as_it_was_and_may_not_be_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let mounted = Mounted::made_by("mkfs.xfs", folder.path());
    let at = mounted.path().display();
    let address = free_address();
    let config = format!(
        "[[volume]]\nname = \"disk\"\nkind = \"file\"\npath = \"{at}/disk\"\nsize = \"64MiB\"\n\
         [[nbd_export]]\nvolume = \"disk\"\nallow_any_client = true\n\
         [[listener]]\naddress = \"{address}\"\nprotocol = \"nbd\"\n\
         [admin]\nsocket = \"admin.sock\"\n"
    );
    let of_clients = tempfile::tempdir().expect("a folder");
    let served = Served::by("nbd-snapshot", &config, address, of_clients);
    let (there, back) = (served.path("there.img"), served.path("back.img"));
    let bytes = image(&there);
    served.run("nbdcopy", &["--flush", &there, &served.url("disk")]);
    served.target.run(&["snapshot", "create", "was", "disk"]);
    served.qemu_io("disk", &[], &["write -P 7 0 64M", "flush"]);
    let path = format!("path={at}/disk.snapshots/was");
    let add = ["add", "volume", "was", "kind=snapshot", &path];
    served.target.run(&add);
    let add = [
        "add",
        "nbd_export",
        "was",
        "volume=was",
        "allow_any_client=true",
    ];
    served.target.run(&add);
    let url = served.url("was");
    let info = served.run("nbdinfo", &[&url]);
    for words in ["export-size: 67108864", "is_read_only: true"] {
        assert!(info.contains(words), "no {words} in {info}");
    }
    served.run("nbdcopy", &[&url, &back]);
    assert!(std::fs::read(&back).expect("what came back") == bytes);
    let said = served.qemu_io("was", &[], &["write -P 9 0 4k"]);
    assert!(said.contains("Permission denied"), "{said}");
    served.target.expect_orderly_end();
}

/// The parts that a backup program reads: those that have changed since a snapshot.
#[needs(guest, loop_device, mount, program("mkfs.xfs"))]
#[test]
fn clients_map_what_has_changed_since_a_snapshot() {
    let folder = tempfile::tempdir().expect("a folder");
    let mounted = Mounted::made_by("mkfs.xfs", folder.path());
    let at = mounted.path().display();
    let address = free_address();
    let config = format!(
        "[[volume]]\nname = \"disk\"\nkind = \"file\"\npath = \"{at}/disk\"\nsize = \"64MiB\"\n\
         [[nbd_export]]\nvolume = \"disk\"\nallow_any_client = true\n\
         [[listener]]\naddress = \"{address}\"\nprotocol = \"nbd\"\n\
         [admin]\nsocket = \"admin.sock\"\n"
    );
    let of_clients = tempfile::tempdir().expect("a folder");
    let served = Served::by("nbd-dirty-bitmap", &config, address, of_clients);
    served.qemu_io("disk", &[], &["write -P 7 0 64M", "flush"]);
    served.target.run(&["snapshot", "create", "was", "disk"]);
    served.qemu_io("disk", &[], &["write -P 8 16M 1M"]);
    let url = served.url("disk");
    let info = served.run("nbdinfo", &[&url]);
    assert!(info.contains("qemu:dirty-bitmap:was"), "{info}");
    let map = served.run("nbdinfo", &["--map=qemu:dirty-bitmap:was", &url]);
    let lines: Vec<Vec<&str>> = map
        .lines()
        .map(|line| line.split_whitespace().take(3).collect())
        .collect();
    let wanted = [
        ["0", "16777216", "0"],
        ["16777216", "1048576", "1"],
        ["17825792", "49283072", "0"],
    ];
    assert_eq!(lines, wanted, "{map}");
    let (host, port) = (address.ip(), address.port());
    let options = format!(
        "driver=nbd,server.type=inet,server.host={host},server.port={port},export=disk,\
         x-dirty-bitmap=qemu:dirty-bitmap:was"
    );
    // QEMU shows what is dirty as what has no data.
    let map = served.run(
        "qemu-img",
        &["map", "--output=json", "--image-opts", &options],
    );
    let dirty = map
        .lines()
        .find(|line| line.contains("\"start\": 16777216"));
    let dirty = dirty.unwrap_or_else(|| panic!("no such part: {map}"));
    for words in ["\"length\": 1048576", "\"data\": false"] {
        assert!(dirty.contains(words), "{map}");
    }
    served.target.expect_orderly_end();
}

#[needs(guest)]
#[test]
fn qemu_converts_compares_and_writes_in_all_ways() {
    let served = Served::new("qemu-nbd", "auto");
    let (there, back) = (served.path("there.img"), served.path("back.img"));
    let bytes = image(&there);
    for export in ["file", "ram"] {
        let url = served.url(export);
        let info = served.run("qemu-img", &["info", &url]);
        assert!(info.contains("64 MiB"), "{info}");
        let raw = ["-f", "raw"];
        served.run(
            "qemu-img",
            &["convert", "-n", raw[0], raw[1], "-O", "raw", &there, &url],
        );
        let compared = served.run(
            "qemu-img",
            &["compare", "-f", "raw", "-F", "raw", &there, &url],
        );
        assert!(compared.contains("identical"), "{compared}");
        served.run(
            "qemu-img",
            &["convert", "-f", "raw", "-O", "raw", &url, &back],
        );
        assert!(std::fs::read(&back).expect("what came back") == bytes);
        served.run(
            "qemu-img",
            &["bench", "-f", "raw", "-c", "2000", "-d", "16", "-w", &url],
        );
        let said = served.qemu_io(
            export,
            &[],
            &[
                "write -P 1 0 1M",
                "write -f -P 2 1M 64k",
                "write -z 4M 1M",
                "write -z -u 8M 1M",
                "discard 16M 16M",
                "flush",
                "read -P 1 0 1M",
                "read -P 2 1M 64k",
                "read -P 0 4M 1M",
                "read -P 0 8M 1M",
                "read -P 0 16M 1M",
            ],
        );
        assert!(!said.contains("failed") && !said.contains("rror"), "{said}");
    }
    let said = served.qemu_io("fixed", &["-r"], &["read 0 1M"]);
    assert!(said.contains("1 MiB, 1 ops"), "{said}");
    let said = served.qemu_io("elsewhere", &[], &["read 0 1M"]);
    assert!(
        said.contains("not available") || said.contains("no such export"),
        "{said}"
    );
    served.target.expect_orderly_end();
}

/// `weft volume` with QEMU's programs of the packages.
fn weft_volume(served: &Served, arguments: &[&str]) -> (bool, String) {
    let programs = served.folder.path().join("programs");
    std::fs::create_dir_all(&programs).expect("a folder");
    for name in ["qemu-img", "qemu-io"] {
        let command = served.sysroot.command(&format!("usr/bin/{name}"));
        let words = [command.get_program()]
            .into_iter()
            .chain(command.get_args());
        let words: Vec<_> = words.map(|word| word.to_str().expect("UTF-8")).collect();
        let script = format!("#!/bin/sh\nexec {} \"$@\"\n", words.join(" "));
        let path = programs.join(name);
        std::fs::write(&path, script).expect("a script");
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&path, mode).expect("it is ours");
    }
    let path = std::env::var("PATH").expect("a path");
    let mut command = served.target.command(&[&["volume"], arguments].concat());
    command.env("PATH", format!("{}:{path}", programs.display()));
    let said = command.output().expect("it runs");
    let text = String::from_utf8_lossy(&[said.stdout, said.stderr].concat()).into_owned();
    (said.status.success(), text)
}

#[needs(guest)]
#[test]
fn disk_images_go_into_volumes_and_out_of_them() {
    let served = Served::new("volume-images", "auto");
    let there = served.path("there.img");
    image(&there);
    let formats = ["raw", "qcow2", "vhdx", "vmdk"];
    for (format, volume) in formats.into_iter().zip(["file", "ram", "file", "ram"]) {
        let (of, back) = (format!("there.{format}"), format!("back.{format}"));
        let (of, back) = (served.path(&of), served.path(&back));
        let convert = ["convert", "-f", "raw", "-O", format, &there, &of];
        served.run("qemu-img", &convert);
        served.qemu_io(volume, &[], &["write -P 9 0 32M"]);
        for arguments in [["import", volume, &of], ["export", volume, &back]] {
            let (is_done, said) = weft_volume(&served, &arguments);
            assert!(is_done, "{arguments:?}: {said}");
        }
        let compare = ["compare", "-f", "raw", "-F", format, &there, &back];
        let compared = served.run("qemu-img", &compare);
        assert!(compared.contains("identical"), "{format}: {compared}");
        let (is_done, said) = weft_volume(&served, &["export", volume, &back]);
        assert!(!is_done && said.contains("is there"), "{said}");
    }
    served.target.expect_orderly_end();
}

#[needs(guest)]
#[test]
fn image_that_is_smaller_has_zeros_behind_it_and_others_change_nothing() {
    let served = Served::new("volume-images-refused", "auto");
    let path = |name: &str| served.path(name);
    let create = |options: &[&str]| {
        served.run("qemu-img", &[&["create", "-q"], options].concat());
    };
    create(&["-f", "qcow2", &path("small.qcow2"), "1M"]);
    create(&["-f", "qcow2", &path("large.qcow2"), "65M"]);
    let backing = path("small.qcow2");
    create(&[
        "-f",
        "qcow2",
        "-F",
        "qcow2",
        "-b",
        &backing,
        &path("on.qcow2"),
    ]);
    let flat = ["-f", "vmdk", "-o", "subformat=monolithicFlat"];
    create(&[&flat[..], &[&path("flat.vmdk"), "1M"]].concat());
    served.qemu_io("ram", &[], &["write -P 9 0 64M"]);
    for (volume, name, why) in [
        ("ram", "large.qcow2", "size=65MiB"),
        ("ram", "on.qcow2", "needs another file"),
        ("ram", "flat.vmdk", "needs another file"),
        ("ram", "missing.qcow2", "No such file"),
        ("ram", "image", "--format"),
        ("other", "small.qcow2", "weft add nbd_export volume=other"),
    ] {
        let (is_done, said) = weft_volume(&served, &["import", volume, &path(name)]);
        assert!(!is_done && said.contains(why), "{name}: {said}");
    }
    let said = served.qemu_io("ram", &["-r"], &["read -P 9 0 64M"]);
    assert!(said.contains("1 ops") && !said.contains("rror"), "{said}");
    let (is_done, said) = weft_volume(&served, &["import", "ram", &path("small.qcow2")]);
    assert!(is_done, "{said}");
    let said = served.qemu_io("ram", &["-r"], &["read -P 0 0 64M"]);
    assert!(said.contains("1 ops") && !said.contains("rror"), "{said}");
    served.target.expect_orderly_end();
}

#[needs(guest)]
#[test]
fn fio_verifies_what_it_wrote() {
    let served = Served::new("fio-nbd", "auto");
    for export in ["file", "ram"] {
        let url = format!("--uri={}", served.url(export));
        let said = served.run(
            "fio",
            &[
                "--name=nbd",
                "--ioengine=nbd",
                &url,
                "--rw=randwrite",
                "--bs=4k-64k",
                "--blockalign=4k",
                "--iodepth=32",
                "--size=48m",
                "--verify=crc32c",
                "--verify_fatal=1",
                "--verify_state_save=0",
            ],
        );
        assert!(said.contains("err= 0"), "{said}");
    }
    served.target.expect_orderly_end();
}
