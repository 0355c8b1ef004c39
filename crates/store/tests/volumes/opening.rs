//! Opening: what is refused and how, identity, and locks.
//!
//! No test here starts a process: until it has become another program, it would
//! hold the locks of its neighbours.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::common::*;
use crate::fake::*;
use crate::file_volume;
use needs::needs;
use store::{Io, Kind, Problem, Spec, open};
use uuid::Uuid;

const SIZE: u64 = 64 << 10;

pub fn problem(spec: &Spec) -> (Problem, String) {
    let Err(error) = open(spec) else {
        panic!("{spec:?} was opened");
    };
    let text = error.to_string();
    assert!(text.starts_with("volume 'disk': "), "{text}");
    (error.problem, text)
}

#[track_caller]
pub fn assert_says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "'{part}' is missing in: {text}");
    }
}

#[test]
fn impossible_sizes_are_refused() {
    for block_bytes in [0, 511, 1024, 8192] {
        let (problem, text) = problem(&spec(Kind::NULL, SIZE, block_bytes));
        assert!(matches!(problem, Problem::BlockSize(b) if b == block_bytes));
        assert_says(&text, &["512 or 4096"]);
    }
    for size_bytes in [0, 4095, 4096 + 512, (1 << 50) + 4096, u64::MAX] {
        let (problem, text) = problem(&spec(Kind::NULL, size_bytes, 4096));
        assert!(matches!(problem, Problem::Size { .. }), "{size_bytes}");
        assert_says(&text, &[&size_bytes.to_string(), "multiple", "4096"]);
    }
    open(&spec(Kind::NULL, 1 << 50, 4096)).unwrap();
    let (problem, text) = problem(&spec(Kind::RAM, 1 << 50, 4096));
    assert!(matches!(problem, Problem::Memory { .. }));
    assert_says(&text, &["smaller", "file volume"]);
}

#[test]
fn a_path_that_cannot_be_served_is_refused_with_the_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);

    let (found, text) = problem(&file_spec(&at("no/disk"), SIZE));
    assert!(matches!(found, Problem::NoFolder(p) if p == at("no")));
    assert_says(&text, &["mkdir -p", at("no").to_str().unwrap()]);

    let (found, text) = problem(&file_spec(folder.path(), SIZE));
    assert!(matches!(found, Problem::NotAFile(_)));
    assert_says(&text, &["not a regular file"]);

    let (found, _) = problem(&file_spec(Path::new("/dev/null"), SIZE));
    assert!(matches!(found, Problem::NotAFile(_)));

    let mut read_only = file_spec(&at("disk"), SIZE);
    read_only.read_only = true;
    let (found, text) = problem(&read_only);
    assert!(matches!(found, Problem::NoFile(_)));
    assert_says(&text, &["read_only"]);
    assert!(!at("disk").exists());

    let (found, text) = problem(&file_spec(Path::new("/proc/weft"), SIZE));
    assert!(matches!(found, Problem::System { .. }), "{found:?}");
    assert_says(&text, &["/proc/weft", "create"]);
}

#[needs(block_device)]
#[test]
fn a_block_device_is_refused() {
    let device = fs::read_dir("/dev").unwrap().flatten().find(|entry| {
        use std::os::unix::fs::FileTypeExt;
        entry.file_type().is_ok_and(|t| t.is_block_device())
    });
    let device = device.expect("a block device");
    let (found, text) = problem(&file_spec(&device.path(), SIZE));
    assert!(matches!(found, Problem::BlockDevice(_)));
    assert_says(&text, &["kind \"block\"", device.path().to_str().unwrap()]);
}

#[test]
fn files_grow_but_never_shrink() {
    let (_folder, path, volume) = file_volume(SIZE);
    let mut files = Fake::default();
    write(&*volume, &mut files, SIZE - 512, &[7; 512], false).unwrap();
    drop(volume);

    let mut larger = file_spec(&path, 2 * SIZE);
    larger.read_only = true;
    let (found, text) = problem(&larger);
    assert!(matches!(found, Problem::FileSize { .. }));
    assert_says(&text, &["read-only", &SIZE.to_string()]);
    larger.read_only = false;

    let volume = open(&larger).unwrap();
    let bytes = read(&*volume, &mut files, SIZE - 512, 1024).unwrap();
    assert_eq!(bytes[..512], [7; 512]);
    assert_eq!(bytes[512..], [0; 512]);
    drop(volume);

    let (found, text) = problem(&file_spec(&path, SIZE));
    let expected = (2 * SIZE, SIZE);
    assert!(matches!(
        found,
        Problem::FileSize { file_bytes, size_bytes, .. } if (file_bytes, size_bytes) == expected
    ));
    assert_says(&text, &["never shrunk", &(2 * SIZE).to_string()]);
    assert_eq!(fs::metadata(&path).unwrap().len(), 2 * SIZE);
}

#[test]
fn a_created_file_belongs_to_its_user_alone() {
    let (_folder, path, _volume) = file_volume(SIZE);
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777 & !0o600, 0);
}

#[test]
fn one_file_is_served_once() {
    let (_folder, path, volume) = file_volume(SIZE);
    let (found, text) = problem(&file_spec(&path, SIZE));
    let me = std::process::id();
    assert!(matches!(found, Problem::InUse { holder, .. } if holder.is_none_or(|p| p == me)));
    assert_says(&text, &["already served", path.to_str().unwrap()]);
    let mut read_only = file_spec(&path, SIZE);
    read_only.read_only = true;
    assert!(matches!(problem(&read_only).0, Problem::InUse { .. }));
    drop(volume);
    // Readers share it with each other, not with a writer.
    let _first = open(&read_only).unwrap();
    let _second = open(&read_only).unwrap();
    assert!(matches!(
        problem(&file_spec(&path, SIZE)).0,
        Problem::InUse { .. }
    ));
}

/// An operation under way keeps the file, and with it the lock.
#[test]
fn the_lock_lasts_as_long_as_the_last_operation() {
    let (_folder, path, volume) = file_volume(SIZE);
    let mut files = Fake::default();
    let _ = volume.start(Io::Flush, &mut files, 1);
    drop(volume);
    assert!(matches!(
        problem(&file_spec(&path, SIZE)).0,
        Problem::InUse { .. }
    ));
    files.complete(0).1.unwrap();
    open(&file_spec(&path, SIZE)).unwrap();
}

#[test]
fn identity_of_memory_follows_from_the_name_and_can_be_given() {
    let mut spec = spec(Kind::RAM, SIZE, 512);
    let first = open(&spec).unwrap().info().clone();
    assert_eq!(open(&spec).unwrap().info(), &first, "after a restart");
    spec.name = "other".into();
    let other = open(&spec).unwrap().info().clone();
    assert_ne!(other.uuid, first.uuid);
    assert_ne!(other.nguid, first.nguid);
    assert_ne!(other.serial, first.serial);
    let uuid = Uuid::from_u128(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
    spec.uuid = Some(uuid);
    let given = open(&spec).unwrap().info().clone();
    assert_eq!(given.uuid, uuid);
    assert_eq!(given.serial, "0123456789abcdef0123");
    assert!(!given.volatile_cache);
}

#[needs(user_attributes)]
#[test]
fn identity_of_a_file_stays_with_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = (folder.path().join("old"), folder.path().join("new"));
    let first = open(&file_spec(&old, SIZE)).unwrap().info().clone();
    assert!(first.volatile_cache);
    fs::rename(&old, &new).unwrap();
    let mut moved = file_spec(&new, SIZE);
    moved.name = "renamed".into();
    moved.read_only = true;
    assert_eq!(open(&moved).unwrap().info().uuid, first.uuid);
    // A new file of the old name is another volume.
    let second = open(&file_spec(&old, SIZE)).unwrap().info().clone();
    assert_ne!(second.uuid, first.uuid);

    let file = fs::File::open(&new).unwrap();
    let flags = rustix::fs::XattrFlags::REPLACE;
    rustix::fs::fsetxattr(&file, "user.weft.uuid", b"nonsense", flags).unwrap();
    let mut spoilt = file_spec(&new, SIZE);
    let (_, text) = problem(&spoilt);
    assert_says(&text, &["user.weft.uuid", "nonsense"]);
    spoilt.uuid = Some(first.uuid);
    assert_eq!(open(&spoilt).unwrap().info().uuid, first.uuid);
}

#[needs(user_attributes)]
#[test]
fn a_file_without_identity_gets_one_that_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("restored");
    fs::write(&path, vec![1; SIZE as usize]).unwrap();
    let mut spec = file_spec(&path, SIZE);
    spec.read_only = true;
    let derived = open(&spec).unwrap().info().uuid;
    spec.read_only = false;
    assert_eq!(open(&spec).unwrap().info().uuid, derived);
    spec.name = "other".into();
    assert_eq!(open(&spec).unwrap().info().uuid, derived);
}

/// A configuration file named by mistake must not become a disk.
#[test]
fn smaller_file_that_weft_did_not_make_is_not_grown() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weft.toml");
    let text = "[policy]\n";
    fs::write(&path, text).unwrap();
    let (found, told) = problem(&file_spec(&path, SIZE));
    assert!(matches!(found, Problem::NotOurs { .. }), "{found:?}");
    assert_says(
        &told,
        &[path.to_str().unwrap(), "adopt = true", &SIZE.to_string()],
    );
    assert_eq!(fs::read(&path).unwrap(), text.as_bytes(), "as it was");
    assert_says(&problem(&file_spec(&path, SIZE)).1, &["adopt = true"]);
}

#[test]
fn file_that_is_adopted_is_grown() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("found");
    fs::write(&path, vec![1; 4096]).unwrap();
    let mut spec = file_spec(&path, SIZE);
    spec.adopt = true;
    assert_eq!(open(&spec).unwrap().size_bytes(), SIZE);
    assert_eq!(fs::metadata(&path).unwrap().len(), SIZE);
    assert_eq!(fs::read(&path).unwrap()[..4096], [1; 4096]);
    // That it was adopted once does not make it one of weft's.
    let (found, _) = problem(&file_spec(&path, 2 * SIZE));
    assert!(matches!(found, Problem::NotOurs { .. }), "{found:?}");
}

#[needs(user_attributes)]
#[test]
fn file_that_weft_made_is_grown() {
    let folder = tempfile::tempdir().unwrap();
    // One that it made may grow under any name, also if its UUID was configured.
    let made = folder.path().join("made");
    let mut spec = file_spec(&made, SIZE);
    spec.uuid = Some(Uuid::from_u128(7));
    open(&spec).unwrap();
    let moved = folder.path().join("moved");
    fs::rename(&made, &moved).unwrap();
    open(&file_spec(&moved, 2 * SIZE)).unwrap();
    assert_eq!(fs::metadata(&moved).unwrap().len(), 2 * SIZE);
}

#[test]
fn file_that_could_not_be_made_whole_is_not_left() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    fs::write(folder.path().join("disk.weft"), "nonsense").unwrap();
    let (found, _) = problem(&file_spec(&path, SIZE));
    assert!(matches!(found, Problem::State { .. }), "{found:?}");
    assert!(!path.exists());
}

#[needs(user_attributes)]
#[test]
fn image_in_a_known_format_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    let mut image = vec![0; SIZE as usize];
    image[..4].copy_from_slice(b"QFI\xfb");
    fs::write(&path, &image).unwrap();
    for (size_bytes, read_only) in [(SIZE, false), (SIZE, true), (2 * SIZE, false), (512, false)] {
        let mut spec = file_spec(&path, size_bytes);
        spec.read_only = read_only;
        let (found, told) = problem(&spec);
        assert!(matches!(found, Problem::Format { .. }), "{found:?}");
        assert_says(
            &told,
            &["qcow2", path.to_str().unwrap(), "qemu-img convert"],
        );
    }
    assert_eq!(fs::read(&path).unwrap(), image);
    let mut spec = file_spec(&path, SIZE);
    spec.adopt = true;
    open(&spec).unwrap();
}

/// A host may begin its disk with whatever it likes, and finds it again.
#[needs(user_attributes)]
#[test]
fn volume_that_hosts_began_with_a_signature_is_served_again() {
    let (_folder, path, volume) = file_volume(SIZE);
    let mut files = Fake::default();
    let mut block = [0; 512];
    block[..4].copy_from_slice(b"QFI\xfb");
    write(&*volume, &mut files, 0, &block, true).unwrap();
    drop(volume);
    let volume = open(&file_spec(&path, SIZE)).unwrap();
    assert_eq!(read(&*volume, &mut files, 0, 512).unwrap(), block);
}

#[test]
fn file_of_the_very_size_in_no_known_format_is_served_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("raw");
    fs::write(&path, vec![3; SIZE as usize]).unwrap();
    let volume = open(&file_spec(&path, SIZE)).unwrap();
    let mut files = Fake::default();
    assert_eq!(read(&*volume, &mut files, 0, 512).unwrap(), [3; 512]);
}

#[test]
fn state_file_in_a_folder_that_is_missing_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("no");
    for kind in [Kind::RAM, Kind::file(folder.path().join("disk"))] {
        let mut spec = spec(kind, SIZE, 512);
        spec.state = Some(missing.join("state"));
        let (found, told) = problem(&spec);
        assert!(
            matches!(found, Problem::NoFolder(ref p) if *p == missing),
            "{found:?}"
        );
        assert_says(&told, &["mkdir -p"]);
    }
}

/// What is looked at before a start says what the start would say, and leaves
/// everything as it was.
#[test]
fn examining_tells_what_opening_would_and_makes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("small"), "text").unwrap();
    fs::write(at("image"), b"vhdxfile").unwrap();
    fs::write(at("large"), vec![0; 2 * SIZE as usize]).unwrap();
    fs::write(at("whole"), vec![0; SIZE as usize]).unwrap();
    fs::write(at("whole.weft"), "nonsense").unwrap();
    let mut stateless = spec(Kind::RAM, SIZE, 512);
    stateless.state = Some(at("no/state"));
    let mut refused = vec![stateless, spec(Kind::RAM, 1 << 50, 512)];
    refused
        .extend(["small", "image", "large", "whole", "no/disk"].map(|n| file_spec(&at(n), SIZE)));
    refused.push(file_spec(folder.path(), SIZE));
    let path = at("none");
    refused.push(spec(Kind::block(path), 0, 512));
    for spec in refused {
        let Err(told) = store::examine(&spec) else {
            panic!("{spec:?}");
        };
        assert_eq!(told.to_string(), problem(&spec).1);
    }
    let new = file_spec(&at("new"), SIZE);
    store::examine(&new).unwrap();
    assert!(!at("new").exists());
    let volume = open(&new).unwrap();
    let served = store::examine(&new).unwrap_err();
    assert!(matches!(served.problem, Problem::InUse { .. }));
    drop(volume);
    store::examine(&new).unwrap();
}
