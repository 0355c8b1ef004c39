//! Block devices, where the machine lets us make some: loop devices over files.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use common::*;
use needs::{each_driver, needs};
use reactor::Choice;
use store::{Error, Io, Kind, Problem, ResizeError, Spec, open};

const SIZE: u64 = 8 << 20;

/// One test at a time: loop devices are few.
static TURN: Mutex<()> = Mutex::new(());

/// A loop device that goes away with the test.
struct Loop {
    device: PathBuf,
    file: tempfile::NamedTempFile,
}

impl Loop {
    fn attach(size: u64, options: &[&str]) -> Loop {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(size).unwrap();
        let mut command = Command::new("losetup");
        command.args(["--find", "--show"]).args(options);
        let output = command.arg(file.path()).output().expect("losetup runs");
        assert!(output.status.success(), "{output:?}");
        let path = String::from_utf8(output.stdout).unwrap();
        let device = PathBuf::from(path.trim());
        Loop { device, file }
    }

    fn losetup(&self, option: &str) {
        let mut command = Command::new("losetup");
        let status = command.arg(option).arg(&self.device).status();
        assert!(status.unwrap().success(), "losetup {option}");
    }

    fn spec(&self, size_bytes: u64) -> Spec {
        block_spec(&self.device, size_bytes)
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let mut command = Command::new("losetup");
        let _ = command.arg("--detach").arg(&self.device).status();
    }
}

fn block_spec(path: &Path, size_bytes: u64) -> Spec {
    let path = path.to_owned();
    spec(Kind::block(path), size_bytes, 512)
}

fn problem(spec: &Spec) -> (Problem, String) {
    let error = open(spec).err().expect("it was opened");
    let text = error.to_string();
    (error.problem, text)
}

#[each_driver(loop_device)]
fn a_device_holds_what_was_written(choice: Choice) {
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    let mut files = Real::open(choice);
    let device = Loop::attach(SIZE, &[]);
    let volume = open(&device.spec(0)).unwrap();
    assert_eq!(volume.size_bytes(), SIZE);
    let info = volume.info().clone();
    assert_eq!((info.kind, info.volatile_cache), ("block", true));
    let files = &mut files;
    write(&*volume, files, 0, &[1; 8192], false).unwrap();
    write(&*volume, files, SIZE - 512, &[2; 512], true).unwrap();
    let (offset, len) = (4096, 4096);
    let zero = |deallocate| Io::Zero {
        offset,
        len,
        deallocate,
        durable: true,
    };
    for deallocate in [false, true] {
        write(&*volume, files, 4096, &[1; 4096], false).unwrap();
        run(&*volume, files, zero(deallocate)).unwrap();
        assert_eq!(read(&*volume, files, 4096, 4096).unwrap(), [0; 4096]);
    }
    write(&*volume, files, 4096, &[3; 512], false).unwrap();
    run(&*volume, files, Io::Deallocate { offset, len }).unwrap();
    run(&*volume, files, Io::Flush).unwrap();
    let beyond = read(&*volume, files, SIZE - 512, 1024);
    assert_eq!(beyond, Err(Error::OutOfRange));
    assert_eq!(volume.stats().errors.total(), 1);
    // Flushed data has reached what is below the device.
    let bytes = fs::read(device.file.path()).unwrap();
    assert!(bytes[..4096].iter().all(|&b| b == 1));
    assert!(bytes[4096..8192].iter().all(|&b| b == 0));
    assert_eq!(bytes[SIZE as usize - 512..], [2; 512]);
    drop(volume);
    let volume = open(&device.spec(0)).unwrap();
    assert_eq!(volume.info(), &info, "after a restart");
    assert_eq!(read(&*volume, files, 0, 512).unwrap(), [1; 512]);
}

#[needs(loop_device)]
#[test]
fn a_device_is_served_once_and_not_while_it_is_in_use() {
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    let device = Loop::attach(SIZE, &[]);
    let volume = open(&device.spec(0)).unwrap();
    let (found, text) = problem(&device.spec(0));
    assert!(matches!(found, Problem::DeviceInUse(..)), "{found:?}");
    assert!(text.contains("lsblk"), "{text}");
    drop(volume);
    open(&device.spec(0)).unwrap();
}

/// A program that the machine has and that does what it is asked, without a word.
fn runs(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    let command = command.args(arguments).stdout(Stdio::null());
    command
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

#[needs(loop_device, mount, program("mkfs.ext4"))]
#[test]
fn device_with_a_mounted_file_system_is_refused_with_the_place() {
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    let device = Loop::attach(SIZE, &[]);
    let folder = tempfile::tempdir().unwrap();
    let path = device.device.to_str().unwrap();
    let place = folder.path().to_str().unwrap();
    assert!(runs("mkfs.ext4", &["-q", path]) && runs("mount", &[path, place]));
    let (found, text) = problem(&device.spec(0));
    let mut read_only = device.spec(0);
    read_only.read_only = true;
    let (also, _) = problem(&read_only);
    // And the file below the device is no volume beside it.
    let (file, told) = problem(&file_spec(device.file.path(), SIZE));
    assert!(runs("umount", &[place]), "what was mounted");
    assert!(matches!(found, Problem::DeviceInUse(..)), "{found:?}");
    assert!(matches!(also, Problem::DeviceInUse(..)), "{also:?}");
    for part in [path, "is mounted on", place, "unmount it"] {
        assert!(text.contains(part), "{part} is not in: {text}");
    }
    assert!(matches!(file, Problem::FileInUse(..)), "{file:?}");
    let name = device.device.file_name().unwrap().to_str().unwrap();
    assert!(told.contains(name) && told.contains("losetup -d"), "{told}");
    open(&device.spec(0)).unwrap();
}

#[needs(loop_device)]
#[test]
fn sizes_and_blocks_must_fit_the_device() {
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    let device = Loop::attach(SIZE, &["--sector-size", "4096"]);
    let (found, text) = problem(&device.spec(0));
    assert!(matches!(found, Problem::DeviceBlock { .. }), "{found:?}");
    assert!(text.contains("block_bytes to 4096"), "{text}");
    let mut spec = device.spec(2 * SIZE);
    spec.block_bytes = 4096;
    let (found, text) = problem(&spec);
    assert!(matches!(found, Problem::DeviceSize { .. }), "{found:?}");
    assert!(text.contains(&SIZE.to_string()), "{text}");
    spec.size_bytes = SIZE / 2;
    let volume = open(&spec).unwrap();
    assert_eq!(volume.size_bytes(), SIZE / 2);
    let more = volume.resize(2 * SIZE, false).unwrap_err();
    assert!(matches!(more, ResizeError::Device { .. }), "{more}");
    volume.resize(0, false).unwrap();
    assert_eq!(volume.size_bytes(), SIZE);
}

#[needs(loop_device)]
#[test]
fn a_read_only_device_is_read() {
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    let device = Loop::attach(SIZE, &["--read-only"]);
    let mut spec = device.spec(0);
    let (found, text) = problem(&spec);
    assert!(matches!(found, Problem::ReadOnlyDevice(_)), "{found:?}");
    assert!(text.contains("read_only"), "{text}");
    spec.read_only = true;
    let volume = open(&spec).unwrap();
    let mut files = Real::open(Choice::Epoll);
    read(&*volume, &mut files, 0, 4096).unwrap();
    run(&*volume, &mut files, Io::Flush).unwrap();
    let refused = write(&*volume, &mut files, 0, &[1; 512], false);
    assert_eq!(refused, Err(Error::ReadOnly));
}

#[each_driver(loop_device)]
fn a_device_that_grows_or_shrinks_is_followed(choice: Choice) {
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    let mut files = Real::open(choice);
    let device = Loop::attach(SIZE, &[]);
    let files = &mut files;
    let volume = open(&device.spec(0)).unwrap();
    device.file.as_file().set_len(2 * SIZE).unwrap();
    device.losetup("--set-capacity");
    assert_eq!(volume.size_bytes(), SIZE, "not before it is told");
    volume.resize(0, false).unwrap();
    assert_eq!(volume.size_bytes(), 2 * SIZE);
    write(&*volume, files, 2 * SIZE - 512, &[1; 512], true).unwrap();
    // It shrinks behind our back: errors, no panic, and the rest goes on.
    device.file.as_file().set_len(SIZE).unwrap();
    device.losetup("--set-capacity");
    let gone = read(&*volume, files, SIZE + 4096, 4096).unwrap_err();
    assert_eq!(gone, Error::EndsEarly);
    let lost = write(&*volume, files, SIZE + 4096, &[1; 512], false).unwrap_err();
    let kinds = [lost].map(|e| matches!(e, Error::WriteFailed(_) | Error::OutOfSpace(_)));
    assert_eq!(kinds, [true], "{lost}");
    write(&*volume, files, 0, &[2; 512], false).unwrap();
    assert_eq!(read(&*volume, files, 0, 512).unwrap(), [2; 512]);
    let refused = volume.resize(0, false).unwrap_err();
    assert!(matches!(refused, ResizeError::Shrink { .. }), "{refused}");
    volume.resize(0, true).unwrap();
    assert_eq!(volume.size_bytes(), SIZE);
}

#[test]
fn path_that_is_no_block_device_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    fs::write(&path, [0; 4096]).unwrap();
    for other in [path.as_path(), folder.path(), Path::new("/dev/null")] {
        let (found, text) = problem(&block_spec(other, 0));
        assert!(matches!(found, Problem::NotADevice(_)), "{found:?}");
        assert!(text.contains("kind \"file\""), "{text}");
    }
    let (found, text) = problem(&block_spec(&folder.path().join("none"), 0));
    assert!(matches!(found, Problem::System { .. }), "{found:?}");
    assert!(text.contains("none"), "{text}");
    // The whole of a thing has a size only where the thing has.
    let (found, _) = problem(&file_spec(&path, 0));
    assert!(matches!(found, Problem::Size { .. }), "{found:?}");
}
