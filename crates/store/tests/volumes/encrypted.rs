//! Encrypted volumes: what lies below, keys that are missing, wrong or changed, and what is left
//! where the power fails.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use auth::Secret;
use store::{
    EncryptionSettings, EraseError, Error, Io, KeyMedium, Kind, OpenError, Problem, Range, Spec,
    Volume, WrappingKey, encrypted, examine, open,
};

use crate::common::*;
use crate::compare::{compare, compare_and_write};
use crate::fake::*;
use crate::mirror::Once;
use crate::ranges::{Desk, meet, read_io, write_io};

const SIZE: u64 = 4 << 20;

pub fn key(byte: u8) -> WrappingKey {
    WrappingKey::Key(Secret::new([byte; 32]))
}

/// By the key of a byte.
pub fn by(byte: u8) -> EncryptionSettings {
    EncryptionSettings {
        key: Ok(key(byte)),
        former: None,
    }
}

/// By the key of the second byte from now on, and that of the first before.
fn from(former: u8, byte: u8) -> EncryptionSettings {
    EncryptionSettings {
        former: Some(Ok(key(former))),
        ..by(byte)
    }
}

/// By a key that is missing.
fn locked() -> EncryptionSettings {
    EncryptionSettings {
        key: Err("no such file".to_owned()),
        former: None,
    }
}

/// A file volume in `folder` that is encrypted so.
fn spec_in(folder: &Path, encryption: Option<EncryptionSettings>) -> Spec {
    Spec {
        encryption,
        ..file_spec(&folder.join("disk"), SIZE)
    }
}

fn open_in(folder: &Path, settings: EncryptionSettings) -> Result<Arc<dyn Volume>, OpenError> {
    open(&spec_in(folder, Some(settings)))
}

fn keys_of(folder: &Path) -> PathBuf {
    folder.join("disk.weft.keys")
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + at / 251) as u8 | 1).collect()
}

#[test]
fn volume_below_holds_ciphertext_and_zeros_where_nothing_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open_in(folder.path(), by(1)).unwrap();
    let mut files = Fake::default();
    let (bytes, given) = (pattern(300 << 10), buffer(300 << 10));
    mem::copy_in(given, &bytes);
    let write = Io::Write {
        offset: 1024,
        buf: given,
        durable: false,
    };
    run(&*volume, &mut files, write).unwrap();
    let mut after = vec![0; bytes.len()];
    mem::copy_out(given, &mut after);
    assert!(after == bytes, "the caller's memory stays");
    assert!(read(&*volume, &mut files, 1024, bytes.len()).unwrap() == bytes);
    assert_eq!(read(&*volume, &mut files, 0, 1024).unwrap(), vec![0; 1024]);
    let below = fs::read(folder.path().join("disk")).unwrap();
    assert!(below[..1024].iter().all(|byte| *byte == 0));
    for (at, block) in bytes.chunks(16).enumerate() {
        assert!(below[1024 + 16 * at..][..16] != *block, "plaintext");
    }
    let zero = Io::Zero {
        offset: 1024,
        len: 4096,
        deallocate: true,
        durable: false,
    };
    run(&*volume, &mut files, zero).unwrap();
    let found = read(&*volume, &mut files, 1024, 8192).unwrap();
    assert!(found[..4096].iter().all(|byte| *byte == 0));
    assert!(found[4096..] == bytes[4096..8192]);
    // The same bytes are others in each block.
    write_same(&*volume, &mut files);
    let below = fs::read(folder.path().join("disk")).unwrap();
    assert!(below[1 << 20..][..512] != below[(1 << 20) + 512..][..512]);
}

fn write_same(volume: &dyn Volume, files: &mut Fake) {
    write(volume, files, 1 << 20, &[7; 1024], true).unwrap();
}

#[test]
fn each_io_is_one_step_to_every_other() {
    for seed in 1..=15 {
        let folder = tempfile::tempdir().unwrap();
        let volume = open_in(folder.path(), by(1)).unwrap();
        meet(&*volume, seed);
    }
}

#[test]
fn volume_is_what_it_was_when_it_is_opened_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut files = Fake::default();
    let volume = open_in(folder.path(), by(1)).unwrap();
    let (info, stats) = (volume.info().clone(), volume.stats());
    write(&*volume, &mut files, 0, &pattern(8192), true).unwrap();
    run(&*volume, &mut files, compare(0, &pattern(4096))).unwrap();
    let change = compare_and_write(0, &pattern(512), &[9; 512], false);
    run(&*volume, &mut files, change).unwrap();
    let mark = Io::MarkUnreadable {
        offset: 4096,
        len: 512,
    };
    run(&*volume, &mut files, mark).unwrap();
    let after = volume.stats();
    assert_eq!((stats.reads, after.reads), (0, 0), "a compare is no read");
    assert_eq!((after.writes, after.compares, after.marks), (2, 2, 1));
    drop(volume);
    let volume = open_in(folder.path(), by(1)).unwrap();
    assert_eq!(*volume.info(), info);
    let found = read(&*volume, &mut files, 0, 4096).unwrap();
    assert!(found[..512] == [9; 512] && found[512..] == pattern(4096)[512..]);
    let unreadable = read(&*volume, &mut files, 4096, 512);
    assert_eq!(unreadable, Err(Error::Unreadable));
    let marks = volume.unreadable(0, SIZE, 9);
    assert_eq!(
        marks.iter().map(|range: &Range| range.len).sum::<u64>(),
        512
    );
}

#[test]
fn without_its_key_a_volume_is_locked_until_it_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let mut files = Fake::default();
    let volume = open_in(folder.path(), by(1)).unwrap();
    write(&*volume, &mut files, 0, &pattern(4096), true).unwrap();
    drop(volume);
    let note = examine(&spec_in(folder.path(), Some(locked())))
        .unwrap()
        .note;
    assert!(note.unwrap().contains("starts locked: no such file"));
    let volume = open_in(folder.path(), locked()).unwrap();
    let encryption = volume.encryption().expect("it is encrypted");
    assert!(encryption.is_locked());
    assert_eq!(read(&*volume, &mut files, 0, 512), Err(Error::Locked));
    for io in [
        write_io(0, 1, 512),
        Io::Deallocate {
            offset: 0,
            len: 512,
        },
        compare(0, &[0; 512]),
    ] {
        assert_eq!(run(&*volume, &mut files, io), Err(Error::Locked));
    }
    assert_eq!(volume.stats().errors.locked, 4);
    assert!(matches!(encryption.erase(), Err(EraseError::Locked)));
    encryption.follow(&locked()).unwrap();
    let told = encryption.follow(&by(2)).unwrap_err();
    assert!(matches!(told, Problem::WrongKey(_)), "{told}");
    assert!(encryption.is_locked());
    encryption.follow(&by(1)).unwrap();
    assert!(!encryption.is_locked());
    assert!(read(&*volume, &mut files, 0, 4096).unwrap() == pattern(4096));
    // What can no more be read is known still.
    encryption.follow(&locked()).unwrap();
    assert!(!encryption.is_locked());
}

/// Keys that the former key alone opens wait for it, and others are not held up.
#[test]
fn volume_whose_former_key_is_missing_is_locked_until_it_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let mut files = Fake::default();
    let volume = open_in(folder.path(), by(1)).unwrap();
    write(&*volume, &mut files, 0, &pattern(512), true).unwrap();
    drop(volume);
    let waits = EncryptionSettings {
        former: Some(Err("no such file".to_owned())),
        ..by(2)
    };
    let spec = spec_in(folder.path(), Some(waits.clone()));
    let note = examine(&spec).unwrap().note;
    assert!(note.unwrap().contains("starts locked: no such file"));
    let volume = open(&spec).unwrap();
    let encryption = volume.encryption().unwrap();
    assert!(encryption.is_locked());
    encryption.follow(&from(1, 2)).unwrap();
    assert_eq!(read(&*volume, &mut files, 0, 512).unwrap(), pattern(512));
    drop(volume);
    // It opens nothing any more, and is not missed.
    assert_eq!(examine(&spec).unwrap().note, None);
    let volume = open(&spec).unwrap();
    assert!(!volume.encryption().unwrap().is_locked());
}

#[test]
fn new_volume_without_a_key_gets_keys_when_it_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open_in(folder.path(), locked()).unwrap();
    assert!(!keys_of(folder.path()).exists());
    volume.encryption().unwrap().follow(&by(1)).unwrap();
    write(&*volume, &mut Fake::default(), 0, &pattern(512), true).unwrap();
    drop(volume);
    let volume = open_in(folder.path(), by(1)).unwrap();
    let found = read(&*volume, &mut Fake::default(), 0, 512).unwrap();
    assert!(found == pattern(512));
}

/// What opening it says.
fn refused(folder: &Path, encryption: Option<EncryptionSettings>) -> String {
    let spec = spec_in(folder, encryption);
    open(&spec).err().expect("refused").to_string()
}

#[test]
fn keys_that_do_not_belong_there_are_refused_and_never_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let volume = open_in(at, by(1)).unwrap();
    write(&*volume, &mut Fake::default(), 0, &pattern(512), true).unwrap();
    drop(volume);
    let (path, keys) = (keys_of(at), fs::read(keys_of(at)).unwrap());
    assert_eq!(mode_of(&path), 0o600);
    let told = refused(at, Some(by(2)));
    assert!(told.contains("the key is another one"), "{told}");
    let told = examine(&spec_in(at, Some(by(2)))).unwrap_err().to_string();
    assert!(told.contains("the key is another one"), "{told}");
    let phrase = WrappingKey::Passphrase(Secret::new(*b"correct horse"));
    let told = refused(
        at,
        Some(EncryptionSettings {
            key: Ok(phrase),
            ..by(1)
        }),
    );
    assert!(told.contains("the key is another one"), "{told}");
    let told = refused(at, None);
    assert!(told.contains("it is encrypted, with keys in"), "{told}");
    assert!(examine(&spec_in(at, None)).is_err());
    let large = Spec {
        block_bytes: 4096,
        ..spec_in(at, Some(by(1)))
    };
    let told = open(&large).err().expect("refused").to_string();
    assert!(told.contains("set block_bytes to 512"), "{told}");
    assert!(fs::read(&path).unwrap() == keys, "nothing was written");
    fs::rename(&path, at.join("away")).unwrap();
    let told = refused(at, Some(by(1)));
    assert!(told.contains("does not exist: bring it back"), "{told}");
    assert!(!path.exists());
    // What they lie in is not mounted.
    std::os::unix::fs::symlink("none", &path).unwrap();
    let told = refused(at, Some(by(1)));
    assert!(told.contains("a symbolic link to what does not"), "{told}");
    let told = refused(at, None);
    assert!(told.contains("it is encrypted, with keys in"), "{told}");
    fs::remove_file(&path).unwrap();
    let mut later = keys.clone();
    later[8] = 2;
    let sum = crc32c(&later[..4092]).to_le_bytes();
    later[4092..4096].copy_from_slice(&sum);
    fs::write(&path, &later).unwrap();
    let told = refused(at, Some(by(1)));
    assert!(told.contains("is of version 2, which"), "{told}");
    assert!(told.contains("start one that does"), "{told}");
    // Those of another volume.
    let other = tempfile::tempdir().unwrap();
    drop(open_in(other.path(), by(1)).unwrap());
    fs::copy(keys_of(other.path()), &path).unwrap();
    let told = refused(at, Some(by(1)));
    assert!(told.contains("belongs to the volume with UUID"), "{told}");
    fs::rename(at.join("away"), &path).unwrap();
    let volume = open_in(at, by(1)).unwrap();
    let found = read(&*volume, &mut Fake::default(), 0, 512).unwrap();
    assert!(found == pattern(512));
}

fn crc32c(bytes: &[u8]) -> u32 {
    let given = buffer(bytes.len());
    mem::copy_in(given, bytes);
    mem::crc32c(given, 0)
}

fn mode_of(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn volume_with_data_does_not_become_encrypted() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open(&spec_in(folder.path(), None)).unwrap();
    assert!(volume.encryption().is_none());
    write(&*volume, &mut Fake::default(), SIZE - 512, &[1; 512], true).unwrap();
    drop(volume);
    for settings in [by(1), locked()] {
        let told = refused(folder.path(), Some(settings.clone()));
        assert!(told.contains("encrypt another one, and copy"), "{told}");
        let examined = examine(&spec_in(folder.path(), Some(settings)));
        assert_eq!(examined.unwrap_err().to_string(), told);
    }
    assert!(!keys_of(folder.path()).exists());
}

#[test]
fn keys_have_a_place_beside_the_state_or_end_with_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let ram = Spec {
        encryption: Some(by(1)),
        ..spec(Kind::RAM, SIZE, 512)
    };
    let volume = open(&ram).unwrap();
    let mut files = Fake::default();
    write(&*volume, &mut files, 512, &pattern(512), false).unwrap();
    assert!(read(&*volume, &mut files, 512, 512).unwrap() == pattern(512));
    assert!(
        volume.lend(512, 512).is_none(),
        "nothing is lent that is no plaintext"
    );
    volume.encryption().unwrap().erase().unwrap();
    assert!(read(&*volume, &mut files, 512, 512).unwrap() != pattern(512));
    let state = folder.path().join("a.state");
    let file = Spec {
        state: Some(state.clone()),
        ..spec_in(folder.path(), Some(by(1)))
    };
    let volume = open(&file).unwrap();
    assert!(folder.path().join("a.state.keys").exists());
    assert!(store::state_files(&file).contains(&folder.path().join("a.state.keys")));
    // What lies over it may be encrypted as well.
    let slice = Spec {
        encryption: Some(by(2)),
        ..Spec::new("part", Kind::slice("disk", 1 << 20), 1 << 20, 512)
    };
    let told = store::open_over(&slice, vec![volume.clone()])
        .err()
        .expect("no state");
    assert!(matches!(told.problem, Problem::NoPlaceForKeys), "{told}");
    let slice = Spec {
        state: Some(folder.path().join("part.state")),
        ..slice
    };
    let part = store::open_over(&slice, vec![volume.clone()]).unwrap();
    write(&*part, &mut files, 0, &pattern(4096), false).unwrap();
    assert!(read(&*part, &mut files, 0, 4096).unwrap() == pattern(4096));
    assert!(read(&*volume, &mut files, 1 << 20, 4096).unwrap() != pattern(4096));
    let cut = volume.resize(1 << 20, true).unwrap_err().to_string();
    assert!(cut.contains("the volume \"part\" is made of it"), "{cut}");
}

#[test]
fn data_of_an_erased_volume_cannot_be_read_any_more() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open_in(folder.path(), by(1)).unwrap();
    let mut files = Fake::default();
    write(&*volume, &mut files, 0, &pattern(8192), true).unwrap();
    let before = fs::read(keys_of(folder.path())).unwrap();
    volume.encryption().unwrap().erase().unwrap();
    let after = fs::read(keys_of(folder.path())).unwrap();
    assert_eq!(before[..4096], before[4096..], "two copies");
    assert_eq!(after[..4096], after[4096..], "two copies");
    let wrapped = &before[96..176];
    assert!(
        !after.windows(80).any(|part| part == wrapped),
        "the old key"
    );
    let found = read(&*volume, &mut files, 0, 8192).unwrap();
    for (found, old) in found.chunks(16).zip(pattern(8192).chunks(16)) {
        assert!(found != old);
    }
    write(&*volume, &mut files, 0, &pattern(512), true).unwrap();
    drop(volume);
    let volume = open_in(folder.path(), by(1)).unwrap();
    let found = read(&*volume, &mut files, 0, 1024).unwrap();
    assert!(found[..512] == pattern(512) && found[512..] != pattern(1024)[512..]);
}

/// Whoever looks whether something changes is told before there is another key, and who began to
/// look after that when it is there.
#[test]
fn erase_of_a_volume_is_a_change_of_all_of_it_before_its_key_is_another() {
    let folder = tempfile::tempdir().unwrap();
    let disk = KeyDisk::new(Some(with_data(folder.path())), NO_LIMIT);
    let volume = on_disk(folder.path(), &by(1), &disk).unwrap();
    let all = || {
        vec![store::Range {
            offset: SIZE - 512,
            len: 512,
        }]
    };
    let watch = volume.base().watch(all());
    let later = Arc::new(Mutex::new(None));
    let (of, kept, before) = (volume.clone(), later.clone(), watch.clone());
    *disk.meanwhile.lock().unwrap() = Some(Box::new(move || {
        assert!(before.has_changed(), "the old key is there still");
        *kept.lock().unwrap() = Some(of.base().watch(all()));
    }));
    volume.encryption().unwrap().erase().unwrap();
    assert!(watch.has_changed());
    let later = later.lock().unwrap().take().expect("the key was written");
    assert!(later.has_changed(), "what was read before is gone");
}

/// A new key takes the place of the old one between two I/Os.
#[test]
fn erase_waits_for_io_that_is_under_way_and_io_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open_in(folder.path(), by(1)).unwrap();
    let mut desk = Desk::new(&*volume);
    let first = desk.start(write_io(0, 1, 512));
    std::thread::scope(|scope| {
        let erased = scope.spawn(|| volume.encryption().unwrap().erase());
        // Others wait from the moment when it waits for the write.
        let mut last = desk.start(read_io(4096, 512).0);
        while !desk.waits(last) {
            desk.step_at(1);
            std::thread::yield_now();
            last = desk.start(read_io(4096, 512).0);
        }
        assert!(!erased.is_finished());
        desk.finish_all();
        erased.join().unwrap().unwrap();
        while desk.results[last].is_none() {
            desk.calls();
            desk.finish_all();
        }
        assert_eq!(desk.results[first], Some(Ok(())));
        assert_eq!(desk.results[last], Some(Ok(())));
    });
    let found = read(&*volume, &mut Fake::default(), 0, 512).unwrap();
    assert!(found != [1; 512] && found != [0; 512]);
}

#[test]
fn writes_beyond_the_memory_for_them_wait_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open_in(folder.path(), by(1)).unwrap();
    let mut desk = Desk::new(&*volume);
    let count = 100;
    for at in 0..count {
        desk.start(write_io(at * 4096, at as u8 + 1, 4096));
    }
    assert_eq!(desk.files.pending(), 64, "parts of memory");
    // One that is not wanted any more takes nothing from those behind it.
    let token = token_of(70);
    let task = desk.tasks[70].as_mut().expect("it waits");
    assert!(!task.is_waiting(), "it is not to be dropped");
    task.cancel(&mut desk.files, token);
    desk.finish();
    for at in 0..count as usize {
        let is_done = desk.results[at] == Some(Ok(()));
        assert_eq!(is_done, at != 70, "{at}: {:?}", desk.results[at]);
    }
    let mut files = Fake::default();
    for at in (0..count).filter(|at| *at != 70) {
        let found = read(&*volume, &mut files, at * 4096, 4096).unwrap();
        assert_eq!(found, vec![at as u8 + 1; 4096]);
    }
    assert_eq!(
        read(&*volume, &mut files, 70 * 4096, 512).unwrap(),
        [0; 512]
    );
}

#[test]
fn large_write_of_which_a_piece_fails_reports_it() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open_in(folder.path(), by(1)).unwrap();
    let mut files = Fake::with(&[Fault::None, Fault::Errno(libc::EIO)]);
    let failed = write(&*volume, &mut files, 0, &pattern(1 << 20), false);
    assert_eq!(failed, Err(Error::WriteFailed(store::Errno::IO)));
    assert_eq!(files.log.len(), 2);
    let mut files = Fake::with(&[Fault::Short(1000), Fault::Errno(libc::EINTR)]);
    write(&*volume, &mut files, 0, &pattern(1 << 20), true).unwrap();
    let mut files = Fake::with(&[Fault::Short(777)]);
    assert!(read(&*volume, &mut files, 0, 1 << 20).unwrap() == pattern(1 << 20));
}

#[test]
fn size_follows_the_volume_below() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open_in(folder.path(), by(1)).unwrap();
    let mut files = Fake::default();
    volume.resize(2 * SIZE, false).unwrap();
    assert_eq!(volume.size_bytes(), 2 * SIZE);
    write(&*volume, &mut files, 2 * SIZE - 512, &pattern(512), false).unwrap();
    volume.resize(SIZE, true).unwrap();
    let beyond = write(&*volume, &mut files, SIZE, &[1; 512], false);
    assert_eq!(
        (volume.size_bytes(), beyond),
        (SIZE, Err(Error::OutOfRange))
    );
}

/// A disk for keys of which the power fails: so many bytes more are written.
#[derive(Clone)]
struct KeyDisk {
    bytes: Arc<Mutex<Option<Vec<u8>>>>,
    left: Arc<Mutex<usize>>,
    /// What is done when something is first written over.
    meanwhile: Arc<Mutex<Option<Once>>>,
}

impl KeyDisk {
    fn new(bytes: Option<Vec<u8>>, left: usize) -> KeyDisk {
        KeyDisk {
            bytes: Arc::new(Mutex::new(bytes)),
            left: Arc::new(Mutex::new(left)),
            meanwhile: Arc::default(),
        }
    }

    fn bytes(&self) -> Option<Vec<u8>> {
        self.bytes.lock().unwrap().clone()
    }

    fn take(&self, len: usize) -> (usize, io::Result<()>) {
        let mut left = self.left.lock().unwrap();
        let done = len.min(*left);
        *left -= done;
        match done == len {
            true => (done, Ok(())),
            false => (done, Err(io::Error::other("the power is off"))),
        }
    }
}

impl KeyMedium for KeyDisk {
    fn load(&self) -> io::Result<Option<Vec<u8>>> {
        Ok(self.bytes())
    }

    fn create(&self, bytes: &[u8]) -> io::Result<()> {
        let (_, written) = self.take(bytes.len());
        written?;
        *self.bytes.lock().unwrap() = Some(bytes.to_vec());
        Ok(())
    }

    fn write_over(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if let Some(meanwhile) = self.meanwhile.lock().unwrap().take() {
            meanwhile();
        }
        let (done, written) = self.take(bytes.len());
        let mut all = self.bytes.lock().unwrap();
        let all = all.as_mut().expect("it was created");
        all.resize(all.len().max(offset as usize + done), 0);
        all[offset as usize..][..done].copy_from_slice(&bytes[..done]);
        written
    }

    fn path(&self) -> &Path {
        Path::new("keys")
    }
}

/// A volume in `folder` with keys on such a disk.
fn on_disk(
    folder: &Path,
    settings: &EncryptionSettings,
    disk: &KeyDisk,
) -> Result<Arc<dyn Volume>, OpenError> {
    let below = open(&spec_in(folder, None)).unwrap();
    encrypted(below, settings, Some(Box::new(disk.clone())))
}

const NO_LIMIT: usize = usize::MAX;

/// Where the power fails: within each copy, and between them.
fn cuts() -> impl Iterator<Item = usize> {
    (0..2).flat_map(|copy| [0, 1, 20, 100, 170, 4000, 4095].map(|at| copy * 4096 + at))
}

/// A volume with `pattern`, and its keys.
fn with_data(folder: &Path) -> Vec<u8> {
    let disk = KeyDisk::new(None, NO_LIMIT);
    let volume = on_disk(folder, &by(1), &disk).unwrap();
    write(&*volume, &mut Fake::default(), 0, &pattern(4096), true).unwrap();
    disk.bytes().expect("keys")
}

fn holds_data(volume: &dyn Volume) -> bool {
    read(volume, &mut Fake::default(), 0, 4096).unwrap() == pattern(4096)
}

#[test]
fn power_that_fails_while_a_key_is_changed_leaves_the_old_one_or_the_new_one() {
    let folder = tempfile::tempdir().unwrap();
    let keys = with_data(folder.path());
    for cut in cuts().chain([8192]) {
        let disk = KeyDisk::new(Some(keys.clone()), cut);
        let volume = on_disk(folder.path(), &by(1), &disk).unwrap();
        let changed = volume.encryption().unwrap().follow(&from(1, 2));
        assert_eq!(changed.is_ok(), cut == 8192);
        assert!(holds_data(&*volume), "the data key is the same");
        drop(volume);
        let left = disk.bytes();
        let opens = |settings| {
            let disk = KeyDisk::new(left.clone(), NO_LIMIT);
            let volume = on_disk(folder.path(), &settings, &disk).ok()?;
            assert!(holds_data(&*volume));
            Some(disk.bytes().unwrap())
        };
        let by_one = [opens(by(1)), opens(by(2))];
        let found = by_one
            .iter()
            .flatten()
            .next()
            .expect("one of them opens it");
        assert_eq!(by_one.iter().flatten().count(), 1, "and no other, {cut}");
        assert_eq!(found[..4096], found[4096..], "both copies are mended");
        // Named together they open it whatever has happened, and it is wrapped anew.
        let both = opens(from(1, 2)).expect("both are named");
        let disk = KeyDisk::new(Some(both), NO_LIMIT);
        assert!(on_disk(folder.path(), &by(1), &disk).is_err());
        assert!(holds_data(&*on_disk(folder.path(), &by(2), &disk).unwrap()));
    }
}

/// What failed has left one copy whole: the next try keeps that one until the other is.
#[test]
fn power_that_fails_while_a_change_is_tried_again_leaves_a_copy_that_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    let keys = with_data(folder.path());
    let cuts = [100, 4096, 4096 + 100, 8191];
    for (first, second) in cuts
        .into_iter()
        .flat_map(|first| cuts.map(|second| (first, second)))
    {
        for erases in [false, true] {
            let disk = KeyDisk::new(Some(keys.clone()), first);
            let volume = on_disk(folder.path(), &by(1), &disk).unwrap();
            let encryption = volume.encryption().unwrap();
            encryption.follow(&from(1, 2)).unwrap_err();
            *disk.left.lock().unwrap() = second;
            match erases {
                true => assert!(encryption.erase().is_err()),
                false => drop(encryption.follow(&from(1, 2)).unwrap_err()),
            }
            drop(volume);
            let disk = KeyDisk::new(disk.bytes(), NO_LIMIT);
            let volume = on_disk(folder.path(), &from(1, 2), &disk);
            let volume = volume.unwrap_or_else(|told| panic!("{first}, {second}: {told}"));
            assert!(erases || holds_data(&*volume), "{first}, {second}");
        }
    }
}

#[test]
fn power_that_fails_while_a_volume_is_erased_leaves_all_data_or_none() {
    let folder = tempfile::tempdir().unwrap();
    let keys = with_data(folder.path());
    for cut in cuts().chain([8192]) {
        let disk = KeyDisk::new(Some(keys.clone()), cut);
        let volume = on_disk(folder.path(), &by(1), &disk).unwrap();
        let encryption = volume.encryption().unwrap();
        let erased = encryption.erase();
        assert_eq!(erased.is_ok(), cut == 8192, "{cut}");
        if erased.is_err() {
            assert!(matches!(erased, Err(EraseError::Unwritten(_))));
            assert!(encryption.is_locked(), "neither key is certain");
            let refused = write(&*volume, &mut Fake::default(), 0, &[1; 512], false);
            assert_eq!(refused, Err(Error::Locked));
        }
        drop(volume);
        let disk = KeyDisk::new(disk.bytes(), NO_LIMIT);
        let volume = on_disk(folder.path(), &by(1), &disk).expect("one copy is whole");
        // All of the second copy is there once the first is written over.
        assert_eq!(holds_data(&*volume), cut < 4096, "{cut}");
        let left = disk.bytes().unwrap();
        assert_eq!(left[..4096], left[4096..], "both copies are mended");
        assert_eq!(left[..4096] == keys[..4096], cut < 4096);
    }
}

/// A disk that can be written again unlocks a volume that a failed erase has locked.
#[test]
fn volume_that_was_not_erased_is_unlocked_by_what_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let disk = KeyDisk::new(Some(with_data(folder.path())), 100);
    let volume = on_disk(folder.path(), &by(1), &disk).unwrap();
    let encryption = volume.encryption().unwrap();
    assert!(encryption.erase().is_err());
    *disk.left.lock().unwrap() = NO_LIMIT;
    encryption.follow(&by(1)).unwrap();
    assert!(holds_data(&*volume));
    encryption.erase().unwrap();
    assert!(!holds_data(&*volume));
    // Keys that have gone meanwhile are missed, and no others are made.
    *disk.left.lock().unwrap() = 100;
    assert!(encryption.erase().is_err());
    *disk.bytes.lock().unwrap() = None;
    let missed = encryption.follow(&by(1)).unwrap_err();
    assert!(matches!(missed, Problem::KeysMissing(_)), "{missed}");
    let missed = encryption.follow(&by(1)).unwrap_err();
    assert!(matches!(missed, Problem::KeysMissing(_)), "{missed}");
}

/// A volume is taken for a new one while the places of its keys and its data are not there.
#[test]
fn keys_that_are_there_again_are_not_replaced_by_new_ones() {
    let folder = tempfile::tempdir().unwrap();
    let keys = with_data(folder.path());
    let (path, disk) = (folder.path().join("disk"), KeyDisk::new(None, NO_LIMIT));
    let image = fs::read(&path).unwrap();
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.set_len(0).unwrap();
    file.set_len(SIZE).unwrap();
    let volume = on_disk(folder.path(), &locked(), &disk).unwrap();
    *disk.bytes.lock().unwrap() = Some(keys.clone());
    fs::write(&path, image).unwrap();
    volume.encryption().unwrap().follow(&by(1)).unwrap();
    assert!(holds_data(&*volume));
    assert_eq!(disk.bytes(), Some(keys));
}

#[test]
fn power_that_fails_while_keys_are_made_leaves_none() {
    let folder = tempfile::tempdir().unwrap();
    let disk = KeyDisk::new(None, 5000);
    assert!(on_disk(folder.path(), &by(1), &disk).is_err());
    assert_eq!(disk.bytes(), None);
    let disk = KeyDisk::new(None, NO_LIMIT);
    on_disk(folder.path(), &by(1), &disk).expect("it is still new");
}

/// Every bit of the first copy and what is behind it, with the second one whole and not.
#[test]
fn keys_with_another_bit_give_the_right_data_or_none() {
    let folder = tempfile::tempdir().unwrap();
    let keys = with_data(folder.path());
    let bits = (0..180 * 8).chain((4090 * 8..4096 * 8).step_by(3));
    for bit in bits {
        let mut one = keys.clone();
        one[bit / 8] ^= 1 << (bit % 8);
        let disk = KeyDisk::new(Some(one.clone()), NO_LIMIT);
        let volume = on_disk(folder.path(), &by(1), &disk).expect("the other copy is whole");
        assert!(holds_data(&*volume), "bit {bit}");
        assert_eq!(disk.bytes(), Some(keys.clone()), "it is mended");
        drop(volume);
        one[4096 + bit / 8] ^= 1 << (bit % 8);
        let disk = KeyDisk::new(Some(one.clone()), NO_LIMIT);
        let told = on_disk(folder.path(), &by(1), &disk)
            .err()
            .expect("damaged");
        assert!(matches!(told.problem, Problem::Keys { .. }), "{told}");
        assert_eq!(disk.bytes(), Some(one), "nothing is written");
    }
}

#[test]
fn bit_of_the_image_changes_sixteen_bytes_and_no_others() {
    let folder = tempfile::tempdir().unwrap();
    let keys = KeyDisk::new(Some(with_data(folder.path())), NO_LIMIT);
    let image = fs::read(folder.path().join("disk")).unwrap();
    for bit in (0..4096 * 8).step_by(611) {
        let mut other = image.clone();
        other[bit / 8] ^= 1 << (bit % 8);
        fs::write(folder.path().join("disk"), &other).unwrap();
        let volume = on_disk(folder.path(), &by(1), &keys).unwrap();
        let found = read(&*volume, &mut Fake::default(), 0, 4096).unwrap();
        for (at, (found, old)) in found.chunks(16).zip(pattern(4096).chunks(16)).enumerate() {
            assert_eq!(found == old, at != bit / 8 / 16, "bit {bit}, unit {at}");
        }
    }
}

#[test]
fn passphrase_opens_what_it_has_wrapped() {
    let folder = tempfile::tempdir().unwrap();
    let phrase = |text: &[u8]| EncryptionSettings {
        key: Ok(WrappingKey::Passphrase(Secret::new(text))),
        former: None,
    };
    let volume = open_in(folder.path(), phrase(b"correct horse")).unwrap();
    write(&*volume, &mut Fake::default(), 0, &pattern(4096), true).unwrap();
    drop(volume);
    let told = refused(folder.path(), Some(phrase(b"correct hors3")));
    assert!(told.contains("the key is another one"), "{told}");
    let both = EncryptionSettings {
        former: Some(phrase(b"correct horse").key),
        ..by(7)
    };
    assert!(holds_data(&*open_in(folder.path(), both).unwrap()));
    assert!(holds_data(&*open_in(folder.path(), by(7)).unwrap()));
}
