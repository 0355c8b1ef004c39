//! What else of the machine uses a file or a block device: file systems that are
//! mounted, swap, and devices that are made of others.
//!
//! The kernel refuses to open a device that is in use; this finds what uses it.
//! The kernel lets every process write a file that is in use.

use std::fs::{self, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{major, minor};

/// What uses a block device, or a part of it, as far as that can be seen: "is
/// mounted on /data".
pub(crate) fn user_of_device(path: &Path) -> Option<String> {
    let found = fs::metadata(path).ok()?;
    let device = Machine::this_machine().device(found.rdev());
    Machine::this_machine().user_of_device(&device)
}

/// What uses a regular file as a disk.
pub(crate) fn user_of_file(path: &Path) -> Option<String> {
    Machine::this_machine().user_of_file(&fs::metadata(path).ok()?)
}

/// What the kernel tells, in files below a folder.
struct Machine {
    root: PathBuf,
}

impl Machine {
    fn this_machine() -> Machine {
        Machine { root: "/".into() }
    }

    fn lines(&self, path: &str) -> Vec<String> {
        let text = fs::read_to_string(self.root.join(path)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    fn device(&self, number: u64) -> PathBuf {
        let number = format!("{}:{}", major(number), minor(number));
        self.root.join("sys/dev/block").join(number)
    }

    /// Of the device with this folder in sysfs.
    fn user_of_device(&self, device: &Path) -> Option<String> {
        let number = fs::read_to_string(device.join("dev")).ok()?;
        let number = number.trim();
        if let Some(on) = self.mounted_on(number) {
            return Some(format!("is mounted on {on}"));
        }
        if self.is_swap(|found| found.file_type().is_block_device() && named(found) == number) {
            return Some("is swap space".to_owned());
        }
        let holders = fs::read_dir(device.join("holders"));
        if let Some(holder) = holders.ok().and_then(|mut list| list.next()?.ok()) {
            return Some(format!("is a part of {}", self.called(&holder.path())));
        }
        // Its partitions.
        let mut parts: Vec<PathBuf> = fs::read_dir(device)
            .ok()?
            .flatten()
            .map(|e| e.path())
            .collect();
        parts.retain(|part| part.join("partition").exists());
        parts.sort();
        parts.iter().find_map(|part| {
            let name = part.file_name()?.to_string_lossy().into_owned();
            Some(format!(
                "has the partition {name}, which {}",
                self.user_of_device(part)?
            ))
        })
    }

    /// A device-mapper device by its own name too.
    fn called(&self, device: &Path) -> String {
        let kernel = device.file_name().unwrap_or_default().to_string_lossy();
        match fs::read_to_string(device.join("dm/name")) {
            Ok(name) => format!("{kernel} ({})", name.trim()),
            Err(_) => kernel.into_owned(),
        }
    }

    /// proc_pid_mountinfo(5): the third word is the device, the fifth the place,
    /// with spaces as `\040`. Of several devices of one file system only its
    /// source is told, by name.
    fn mounted_on(&self, number: &str) -> Option<String> {
        let lines = self.lines("proc/self/mountinfo");
        let found = lines.iter().find(|line| {
            let source = line
                .split(" - ")
                .nth(1)
                .and_then(|rest| rest.split(' ').nth(1));
            let is_source = || {
                let source = source.filter(|source| source.starts_with('/'))?;
                let found = fs::metadata(source).ok()?;
                Some(found.file_type().is_block_device() && named(&found) == number)
            };
            line.split(' ').nth(2) == Some(number) || is_source() == Some(true)
        })?;
        Some(found.split(' ').nth(4)?.replace("\\040", " "))
    }

    /// Whether something that is swapped to is what is asked for.
    fn is_swap(&self, is_it: impl Fn(&Metadata) -> bool) -> bool {
        let lines = self.lines("proc/swaps");
        let mut paths = lines
            .iter()
            .skip(1)
            .filter_map(|line| line.split_whitespace().next());
        paths.any(|path| fs::metadata(path.replace("\\040", " ")).is_ok_and(|found| is_it(&found)))
    }

    fn user_of_file(&self, file: &Metadata) -> Option<String> {
        let is_it = |found: &Metadata| (found.dev(), found.ino()) == (file.dev(), file.ino());
        if self.is_swap(is_it) {
            return Some("is swap space".to_owned());
        }
        let devices = fs::read_dir(self.root.join("sys/block")).ok()?.flatten();
        let mut loops = devices.filter(|device| {
            let backing = fs::read_to_string(device.path().join("loop/backing_file"));
            backing.is_ok_and(|path| {
                fs::metadata(path.trim_end_matches('\n')).is_ok_and(|f| is_it(&f))
            })
        });
        let device = loops.next()?.path();
        Some(format!(
            "lies under the block device {}",
            self.called(&device)
        ))
    }
}

/// A device's number as the kernel writes it.
fn named(device: &Metadata) -> String {
    format!("{}:{}", major(device.rdev()), minor(device.rdev()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, Machine) {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let root = folder.path().to_owned();
        (folder, Machine { root })
    }

    const DISK: (&str, &str) = ("sys/dev/block/8:16/dev", "8:16\n");

    #[track_caller]
    fn expect(files: &[(&str, &str)], user: Option<&str>) {
        let (_folder, machine) = machine(files);
        let device = machine.root.join("sys/dev/block/8:16");
        assert_eq!(machine.user_of_device(&device).as_deref(), user);
    }

    #[test]
    fn device_that_is_mounted_is_told_with_the_place() {
        let mounts = "1 0 8:17 / /other rw - ext4 /dev/none rw\n\
                      2 1 8:16 / /a\\040b rw,relatime shared:1 - ext4 /dev/none rw\n";
        expect(
            &[DISK, ("proc/self/mountinfo", mounts)],
            Some("is mounted on /a b"),
        );
        expect(&[DISK, ("proc/self/mountinfo", &mounts[..40])], None);
        expect(&[DISK], None);
    }

    #[test]
    fn device_that_is_part_of_another_is_told_with_its_name() {
        let holders = "sys/dev/block/8:16/holders";
        let name = (format!("{holders}/dm-3/dm/name"), "vg-root\n");
        expect(
            &[DISK, (&name.0, name.1)],
            Some("is a part of dm-3 (vg-root)"),
        );
        expect(
            &[DISK, (&format!("{holders}/md0/x"), "")],
            Some("is a part of md0"),
        );
    }

    #[test]
    fn disk_whose_partition_is_mounted_is_told_with_the_partition() {
        let part = "sys/dev/block/8:16/sdb2";
        let files = [
            DISK,
            (&format!("{part}/partition"), "2\n"),
            (&format!("{part}/dev"), "8:18\n"),
            (
                "proc/self/mountinfo",
                "1 0 8:18 / /home rw - xfs /dev/sdb2 rw\n",
            ),
        ];
        expect(
            &files,
            Some("has the partition sdb2, which is mounted on /home"),
        );
    }

    #[test]
    fn file_under_a_loop_device_or_swap_is_told_and_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let (used, free) = (folder.path().join("used"), folder.path().join("free"));
        fs::write(&used, "").unwrap();
        fs::write(&free, "").unwrap();
        let backing = format!("{}\n", used.display());
        let swaps = format!(
            "Filename Type Size Used Priority\n{} file 8 0 -2\n",
            used.display()
        );
        for (path, text, user) in [
            (
                "sys/block/loop7/loop/backing_file",
                &backing,
                "lies under the block device loop7",
            ),
            ("proc/swaps", &swaps, "is swap space"),
        ] {
            let (_root, machine) = machine(&[(path, text), ("sys/block/sda/size", "1\n")]);
            let user_of = |path: &Path| machine.user_of_file(&fs::metadata(path).unwrap());
            assert_eq!(user_of(&used).as_deref(), Some(user));
            assert_eq!(user_of(&free), None);
        }
    }
}
