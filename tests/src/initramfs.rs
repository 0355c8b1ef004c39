//! A guest's kernel and initial file system, made from unpacked packages.

use crate::Unavailable;
use crate::child::output;
use crate::packages::{Sysroot, cache_dir, key};
use crate::systems::System;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// Kernel modules that the guest's init loads, in this order, before those of the system.
const LOADED: &[&str] = &[
    "virtio_pci",
    "virtio_console",
    "virtio_net",
    "virtio_rng",
    "qemu_fw_cfg",
    "nvme_tcp",
];

/// Kernel modules that the guest's init loads first where the kernel has them:
/// from 6.14 on, CRC-32C is part of the kernel.
const LOADED_IF_PRESENT: &[&str] = &["crc32c_generic", "crc32c_intel"];

/// The guest's first program: mounts, loads, configures, then runs the script
/// and says how it ended on the second serial line.
const INIT: &str = r#"#!/bin/dash
export PATH=/usr/sbin:/usr/bin:/sbin:/bin:/applets HOME=/ LC_ALL=C
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
exec </dev/null >/dev/ttyS0 2>&1
modprobe -a @LOADED_IF_PRESENT@
modprobe -a @LOADED@
mkdir -p /dev/shm /run /mnt
ip link set lo up
ip addr add 10.0.2.15/24 dev eth0
ip link set eth0 up
ip route add default via 10.0.2.2
given=/sys/firmware/qemu_fw_cfg/by_name/opt/weft
cat $given/script/raw >/script
sleep "$(cat $given/limit_s/raw)" && poweroff -f &
echo up >/dev/ttyS1
for port in /dev/vport*; do
    dash /script >$port 2>&1
done
echo "exit $?" >/dev/ttyS1
poweroff -f
"#;

/// The same host in every guest: what a target remembers of it stays true
/// when the guest comes again.
pub const HOST_NQN: &str = "nqn.2014-08.org.nvmexpress:uuid:6d1f0a5e-5f0c-4a2b-9c57-3f2f6f6b7e01";

/// What QEMU boots.
#[derive(Clone, Debug)]
pub struct Image {
    /// The uncompressed kernel: one that unpacks itself costs seconds.
    pub kernel: PathBuf,
    /// The initial file system.
    pub initramfs: PathBuf,
}

impl Image {
    /// The image of `system` from `sysroot`, built unless the cache has it.
    /// The caller holds the cache's lock.
    pub fn build(sysroot: &Sysroot, system: &System) -> Result<Image, Unavailable> {
        let tables = (system.programs, system.files, system.loaded, system.modules);
        let inputs = (tables, LOADED_IF_PRESENT, LOADED, INIT, HOST_NQN);
        let key = key(&(inputs, &sysroot.root));
        let image = Image {
            kernel: cache_dir().join(format!("vmlinux-{key}")),
            initramfs: cache_dir().join(format!("initramfs-{key}.cpio")),
        };
        if !image.initramfs.exists() {
            let version = kernel_version(sysroot)?;
            let work = cache_dir().join(format!("image-{key}"));
            let made = unpack_kernel(sysroot, &version, &work)
                .and_then(|()| fs::rename(&work, &image.kernel).map_err(Unavailable::from))
                .and_then(|()| write_initramfs(sysroot, system, &version, &work))
                .and_then(|()| fs::rename(&work, &image.initramfs).map_err(Unavailable::from));
            made.map_err(|e| Unavailable::wrap("making the guest's image", e))?;
        }
        Ok(image)
    }
}

impl From<io::Error> for Unavailable {
    fn from(e: io::Error) -> Self {
        Unavailable(e.to_string())
    }
}

/// The one kernel that was unpacked.
pub(crate) fn kernel_version(sysroot: &Sysroot) -> Result<String, Unavailable> {
    let modules = sysroot.root.join("lib/modules");
    let listed = fs::read_dir(&modules).map_err(|e| Unavailable::wrap(modules.display(), e))?;
    let names: Vec<String> = listed
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    match names.as_slice() {
        [one] => Ok(one.clone()),
        _ => Err(Unavailable(format!("kernels unpacked: {names:?}"))),
    }
}

/// Finds the compressed kernel inside the boot image (x86 boot protocol 2.08
/// and later) and decompresses it to `to`.
fn unpack_kernel(sysroot: &Sysroot, version: &str, to: &Path) -> Result<(), Unavailable> {
    let boot = sysroot.root.join(format!("boot/vmlinuz-{version}"));
    let beside_modules = sysroot.root.join(format!("lib/modules/{version}/vmlinuz"));
    let path = if boot.exists() { boot } else { beside_modules };
    let image = fs::read(&path).map_err(|e| Unavailable::wrap(path.display(), e))?;
    let u32_at = |at: usize| {
        let bytes = image.get(at..at + 4)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?) as usize)
    };
    let payload = (|| {
        let setup = (usize::from(*image.get(0x1f1)?) + 1) * 512;
        let start = setup + u32_at(0x248)?;
        // The last four bytes are the uncompressed size.
        image.get(start..start + u32_at(0x24c)?.checked_sub(4)?)
    })()
    .ok_or_else(|| Unavailable(format!("{}: not a boot image", path.display())))?;
    let program = match payload {
        [0xfd, b'7', b'z', b'X', b'Z', ..] => "usr/bin/xz",
        [0x28, 0xb5, 0x2f, 0xfd, ..] => "usr/bin/zstd",
        _ => return Err(Unavailable("the kernel is compressed in a new way".into())),
    };
    let mut packed = tempfile::tempfile()?;
    packed.write_all(payload)?;
    io::Seek::rewind(&mut packed)?;
    let mut unpack = sysroot.command(program);
    unpack.arg("-dc").stdin(packed);
    let unpacked = unpack.stdout(File::create(to)?).stderr(Stdio::piped());
    output(unpacked).map(drop).map_err(Unavailable)
}

/// Writes the initial file system.
fn write_initramfs(
    sysroot: &Sysroot,
    system: &System,
    version: &str,
    to: &Path,
) -> Result<(), Unavailable> {
    let mut tree = Tree::default();
    for dir in ["proc", "sys", "dev", "tmp"] {
        tree.dir(Path::new(dir));
    }
    tree.add("dev/console", ArchiveEntry::Console);
    tree.add(
        "init",
        ArchiveEntry::Program(
            INIT.replace("@LOADED_IF_PRESENT@", &LOADED_IF_PRESENT.join(" "))
                .replace("@LOADED@", &[LOADED, system.loaded].concat().join(" "))
                .into(),
        ),
    );
    tree.add("bin/sh", ArchiveEntry::Link("dash".into()));
    tree.add("sbin/modprobe", ArchiveEntry::Link("/bin/busybox".into()));
    let host_id = HOST_NQN.rsplit(':').next().unwrap_or_default();
    for (file, text) in [("hostid", host_id), ("hostnqn", HOST_NQN)] {
        let text = ArchiveEntry::Text(format!("{text}\n").into());
        tree.add(&format!("etc/nvme/{file}"), text);
    }

    tree.copy(sysroot, Path::new("bin/busybox"), true)?;
    let mut busybox = sysroot.command("bin/busybox");
    // Static: it runs without the packages' loader.
    let mut list = std::process::Command::new(sysroot.root.join("bin/busybox"));
    let applets = output(list.arg("--list")).or_else(|_| output(busybox.arg("--list")));
    let applets = applets.map_err(Unavailable)?;
    for applet in String::from_utf8_lossy(&applets).lines() {
        let at = format!("applets/{applet}");
        tree.add(&at, ArchiveEntry::Link("/bin/busybox".into()));
    }

    let mut libraries = BTreeSet::new();
    for program in system.programs {
        tree.copy(sysroot, Path::new(program), true)?;
        libraries.extend(sysroot.libraries_of(program)?);
    }
    for library in &libraries {
        tree.copy(sysroot, library, true)?;
    }
    let loader = "../lib/x86_64-linux-gnu/ld-linux-x86-64.so.2";
    tree.add(
        "lib64/ld-linux-x86-64.so.2",
        ArchiveEntry::Link(loader.into()),
    );
    for file in system.files {
        tree.copy(sysroot, Path::new(file), false)?;
    }
    add_modules(sysroot, system, version, &mut tree)?;
    let mut out = BufWriter::with_capacity(1 << 20, File::create(to)?);
    tree.write(&mut out)?;
    out.flush().map_err(Unavailable::from)
}

/// Adds the modules, those they need, and the table from which `modprobe`
/// knows what these are.
fn add_modules(
    sysroot: &Sysroot,
    system: &System,
    version: &str,
    tree: &mut Tree,
) -> Result<(), Unavailable> {
    let mut depmod = sysroot.command_as("depmod", "bin/kmod");
    depmod.arg("-b").arg(&sysroot.root).arg(version);
    output(&mut depmod).map_err(Unavailable)?;
    let folder = PathBuf::from("lib/modules").join(version);
    let table = fs::read_to_string(sysroot.root.join(&folder).join("modules.dep"))?;
    let builtin = fs::read_to_string(sysroot.root.join(&folder).join("modules.builtin"))?;
    let known: BTreeMap<String, (&str, &str)> = table
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(path, needs)| (module_name(path), (path, needs)))
        .collect();
    let built: BTreeSet<String> = builtin.lines().map(module_name).collect();

    let mut paths = BTreeSet::new();
    let asked = [LOADED_IF_PRESENT, LOADED, system.loaded, system.modules].concat();
    for name in &asked {
        match known.get(*name) {
            Some((path, needs)) => {
                paths.insert(*path);
                paths.extend(needs.split_whitespace());
            }
            None if built.contains(*name) || LOADED_IF_PRESENT.contains(name) => {}
            None => return Err(Unavailable(format!("no kernel module {name}"))),
        }
    }
    let mut needs_table = String::new();
    for path in paths {
        let (_, needs) = known[&module_name(path)];
        // Unpacked here once, not in the guest each time.
        let bare = |path: &str| path.trim_end_matches(".xz").to_string();
        let needs: Vec<String> = needs.split_whitespace().map(bare).collect();
        needs_table += &format!("{}: {}\n", bare(path), needs.join(" "));
        let source = sysroot.root.join(&folder).join(path);
        let bytes = if path.ends_with(".xz") {
            let mut unpack = sysroot.command("usr/bin/xz");
            output(unpack.arg("-dc").arg(source)).map_err(Unavailable)?
        } else {
            fs::read(source)?
        };
        let at = folder.join(bare(path));
        tree.add(&at.to_string_lossy(), ArchiveEntry::Text(bytes));
    }
    let at = folder.join("modules.dep");
    tree.add(
        &at.to_string_lossy(),
        ArchiveEntry::Text(needs_table.into()),
    );
    Ok(())
}

/// The name of the module in the file at `path`.
fn module_name(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    let name = file.split(".ko").next().unwrap_or(file);
    name.replace('-', "_")
}

/// What lies at one path of the initial file system.
enum ArchiveEntry {
    Dir,
    Program(Vec<u8>),
    Text(Vec<u8>),
    Link(String),
    /// The character device that init's standard streams are.
    Console,
}

/// The initial file system by path; a folder sorts before what it holds.
#[derive(Default)]
struct Tree(BTreeMap<PathBuf, ArchiveEntry>);

impl Tree {
    fn dir(&mut self, path: &Path) {
        for at in path.ancestors().filter(|at| !at.as_os_str().is_empty()) {
            self.0.entry(at.to_path_buf()).or_insert(ArchiveEntry::Dir);
        }
    }

    fn add(&mut self, path: &str, entry: ArchiveEntry) {
        let path = PathBuf::from(path);
        if let Some(parent) = path.parent() {
            self.dir(parent);
        }
        self.0.insert(path, entry);
    }

    fn copy(&mut self, sysroot: &Sysroot, path: &Path, run: bool) -> Result<(), Unavailable> {
        let from = sysroot.root.join(path);
        let bytes = fs::read(&from).map_err(|e| Unavailable::wrap(from.display(), e))?;
        let kind = if run {
            ArchiveEntry::Program
        } else {
            ArchiveEntry::Text
        };
        self.add(&path.to_string_lossy(), kind(bytes));
        Ok(())
    }

    /// Writes the archive: the `newc` format of cpio, which the kernel reads
    /// (Documentation/driver-api/early-userspace/buffer-format).
    fn write(&self, out: &mut impl Write) -> io::Result<()> {
        for (number, (path, entry)) in self.0.iter().enumerate() {
            let (mode, rdev, bytes): (u32, (u32, u32), &[u8]) = match entry {
                ArchiveEntry::Dir => (0o040_755, (0, 0), &[]),
                ArchiveEntry::Program(bytes) => (0o100_755, (0, 0), bytes),
                ArchiveEntry::Text(bytes) => (0o100_644, (0, 0), bytes),
                ArchiveEntry::Link(to) => (0o120_777, (0, 0), to.as_bytes()),
                ArchiveEntry::Console => (0o020_600, (5, 1), &[]),
            };
            record(out, number + 1, &path.to_string_lossy(), mode, rdev, bytes)?;
        }
        record(out, 0, "TRAILER!!!", 0, (0, 0), &[])
    }
}

/// One record of the archive: 13 fields of 8 hexadecimal digits, the name, the
/// content; name and content each end on a multiple of 4.
fn record(
    out: &mut impl Write,
    inode: usize,
    name: &str,
    mode: u32,
    rdev: (u32, u32),
    bytes: &[u8],
) -> io::Result<()> {
    let size = u32::try_from(bytes.len()).map_err(io::Error::other)?;
    let name_size = name.len() + 1;
    write!(
        out,
        "070701{inode:08x}{mode:08x}{:08x}{:08x}{:08x}{:08x}",
        0, 0, 1, 0
    )?;
    write!(
        out,
        "{size:08x}{:08x}{:08x}{:08x}{:08x}",
        0, 0, rdev.0, rdev.1
    )?;
    write!(out, "{name_size:08x}{:08x}{name}\0", 0)?;
    let pad = |len: usize| &[0u8; 3][..(4 - len % 4) % 4];
    out.write_all(pad(110 + name_size))?;
    out.write_all(bytes)?;
    out.write_all(pad(bytes.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archive_records_are_aligned_and_ordered() {
        let mut tree = Tree::default();
        tree.add("a/b", ArchiveEntry::Text(b"12345".to_vec()));
        tree.add("c", ArchiveEntry::Link("a/b".into()));
        let mut out = Vec::new();
        tree.write(&mut out).unwrap();
        assert_eq!(out.len() % 4, 0);
        let starts: Vec<usize> = (0..out.len() - 6)
            .filter(|&at| &out[at..at + 6] == b"070701")
            .collect();
        assert_eq!(starts.len(), 4, "a, a/b, c and the trailer");
        assert!(starts.iter().all(|at| at % 4 == 0));
        let file = &out[starts[1]..starts[2]];
        assert_eq!(&file[14..22], b"000081a4", "a plain file, 0644");
        assert_eq!(&file[54..62], b"00000005", "5 bytes");
        assert_eq!(&file[94..102], b"00000004", "a name of 3 and its end");
        assert_eq!(&file[110..114], b"a/b\0");
        assert_eq!(&file[116..], b"12345\0\0\0");
    }

    #[test]
    fn module_names_have_one_spelling() {
        assert_eq!(
            module_name("kernel/drivers/nvme/host/nvme-tcp.ko.xz"),
            "nvme_tcp"
        );
        assert_eq!(module_name("kernel/fs/ext4/ext4.ko"), "ext4");
    }
}
