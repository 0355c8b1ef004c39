//! The identity of a file volume: what is kept with the file names that very file.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

use crate::common::*;
use crate::fake::*;
use crate::opening::{assert_says, problem};
use needs::needs;
use rustix::fs::{XattrFlags, fgetxattr, fsetxattr};
use store::reservation::{Registrant, ReservationRequest};
use store::{Info, Io, Problem, Spec, Volume, open};
use uuid::Uuid;

const SIZE: u64 = 64 << 10;
const ATTRIBUTE: &str = "user.weft.uuid";

fn attribute(path: &Path) -> String {
    let mut text = [0; 1024];
    let len = fgetxattr(File::open(path).unwrap(), ATTRIBUTE, &mut text).unwrap();
    String::from_utf8(text[..len].to_vec()).unwrap()
}

fn set_attribute(path: &Path, text: &str) {
    let flags = XattrFlags::empty();
    fsetxattr(File::open(path).unwrap(), ATTRIBUTE, text.as_bytes(), flags).unwrap();
}

/// What `cp -a` does. No process is started here: it would hold locks.
fn copy(from: &Path, to: &Path) {
    fs::copy(from, to).unwrap();
    set_attribute(to, &attribute(from));
}

fn info(path: &Path, read_only: bool) -> Info {
    let mut spec = file_spec(path, SIZE);
    spec.read_only = read_only;
    open(&spec).unwrap().info().clone()
}

#[needs(user_attributes)]
#[test]
fn copy_with_its_attributes_gets_an_identity_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let first = info(&at("first"), false);
    copy(&at("first"), &at("second"));
    let unwritten = info(&at("second"), true);
    let second = info(&at("second"), false);
    assert_ne!(second.uuid, first.uuid);
    assert_ne!(second.nguid, first.nguid);
    assert_ne!(second.serial, first.serial);
    assert_eq!(
        unwritten,
        Info {
            read_only: true,
            ..second.clone()
        }
    );
    assert_eq!(info(&at("second"), false), second, "after a restart");
    assert_eq!(
        info(&at("first"), false),
        first,
        "the original keeps its own"
    );
    // A copy of the copy is neither.
    copy(&at("second"), &at("third"));
    let third = info(&at("third"), false);
    assert!(third.uuid != second.uuid && third.uuid != first.uuid);
}

#[needs(user_attributes)]
#[test]
fn identity_of_an_earlier_version_is_kept_and_bound_at_first_open() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let uuid = Uuid::from_u128(0x0123_4567_89ab_4def_8123_4567_89ab_cdef);
    fs::write(at("old"), vec![0; SIZE as usize]).unwrap();
    set_attribute(&at("old"), &uuid.to_string());
    assert_eq!(info(&at("old"), true).uuid, uuid, "and nothing is written");
    assert_eq!(attribute(&at("old")), uuid.to_string());
    assert_eq!(info(&at("old"), false).uuid, uuid);
    assert_ne!(attribute(&at("old")), uuid.to_string());
    copy(&at("old"), &at("new"));
    assert_ne!(info(&at("new"), false).uuid, uuid);
    assert_eq!(info(&at("old"), false).uuid, uuid);
}

#[needs(user_attributes)]
#[test]
fn attribute_that_cannot_be_understood_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    let uuid = info(&path, false).uuid;
    let good = attribute(&path);
    let long = "x".repeat(900);
    for text in [
        "",
        "nonsense",
        &long,
        &format!("{good} more"),
        &format!("{uuid} 1"),
    ] {
        set_attribute(&path, text);
        let (_, told) = problem(&file_spec(&path, SIZE));
        assert_says(&told, &[ATTRIBUTE]);
    }
    set_attribute(&path, &good);
    assert_eq!(info(&path, false).uuid, uuid);
}

/// Marks of unreadable data come with a copy; reservations do not.
#[needs(user_attributes)]
#[test]
fn copied_state_keeps_what_is_about_the_data_and_no_reservation() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let mut files = Fake::default();
    let volume = open(&file_spec(&at("first"), SIZE)).unwrap();
    let (offset, len) = (4096, 512);
    run(&*volume, &mut files, Io::MarkUnreadable { offset, len }).unwrap();
    let register = ReservationRequest::Register {
        key: 7,
        persist: Some(true),
    };
    let host = Registrant::NvmeHost([1; 16]);
    volume.reservations().change(&host, &register).unwrap();
    copy(&at("first"), &at("second"));
    fs::copy(at("first.weft"), at("second.weft")).unwrap();
    for read_only in [true, false, false] {
        let mut spec = file_spec(&at("second"), SIZE);
        spec.read_only = read_only;
        let copied = open(&spec).unwrap();
        assert_eq!(copied.unreadable(0, SIZE, 9), volume.unreadable(0, SIZE, 9));
        assert_eq!(copied.reservations().report().registrants, []);
        assert_ne!(copied.info().uuid, volume.info().uuid);
    }
    drop(volume);
    let volume = open(&file_spec(&at("first"), SIZE)).unwrap();
    assert_eq!(volume.reservations().report().registrants.len(), 1);
    // The state of a third volume is refused for another volume.
    drop(volume);
    open(&file_spec(&at("third"), SIZE)).unwrap();
    fs::copy(at("second.weft"), at("third.weft")).unwrap();
    let (found, _) = problem(&file_spec(&at("third"), SIZE));
    assert!(matches!(found, Problem::State { .. }), "{found:?}");
}

const HOST: Registrant = Registrant::NvmeHost([1; 16]);

/// A volume with a reservation of `HOST` that persists, and a copy of it with
/// its attributes and its state file.
fn reserved_and_copied(folder: &Path) -> Info {
    let (first, second) = (folder.join("first"), folder.join("second"));
    let volume = open(&file_spec(&first, SIZE)).unwrap();
    let register = ReservationRequest::Register {
        key: 7,
        persist: Some(true),
    };
    volume.reservations().change(&HOST, &register).unwrap();
    copy(&first, &second);
    fs::copy(folder.join("first.weft"), folder.join("second.weft")).unwrap();
    volume.info().clone()
}

#[needs(user_attributes)]
#[test]
fn copy_that_is_configured_to_be_the_original_keeps_its_reservations() {
    let folder = tempfile::tempdir().unwrap();
    let original = reserved_and_copied(folder.path());
    let path = folder.path().join("second");
    let mut spec = file_spec(&path, SIZE);
    spec.uuid = Some(original.uuid);
    for _ in 0..2 {
        let volume = open(&spec).unwrap();
        assert_eq!(*volume.info(), original_named(&original, &volume));
        let registrants = volume.reservations().report().registrants;
        assert_eq!(registrants, [(HOST, 7, false)]);
    }
    // It is that volume from now on.
    assert_eq!(info(&path, false).uuid, original.uuid);
}

/// What `volume` would tell if it were the original.
fn original_named(original: &Info, volume: &Arc<dyn Volume>) -> Info {
    Info {
        name: volume.info().name.clone(),
        ..original.clone()
    }
}

#[needs(user_attributes)]
#[test]
fn copy_that_was_served_as_itself_can_still_become_the_original_and_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let original = reserved_and_copied(folder.path());
    let path = folder.path().join("second");
    let spec = file_spec(&path, SIZE);
    let volume = open(&spec).unwrap();
    let own = volume.info().uuid;
    assert_eq!(volume.reservations().report().registrants, []);
    let register = ReservationRequest::Register {
        key: 9,
        persist: Some(true),
    };
    volume.reservations().change(&HOST, &register).unwrap();
    let mut files = Fake::default();
    let (offset, len) = (4096, 512);
    run(&*volume, &mut files, Io::MarkUnreadable { offset, len }).unwrap();
    drop(volume);
    // There and back: each identity has its reservations, the data its marks.
    for (uuid, key) in [(original.uuid, 7), (own, 9), (original.uuid, 7)] {
        let mut spec = spec.clone();
        spec.uuid = Some(uuid);
        let volume = open(&spec).unwrap();
        let registrants = volume.reservations().report().registrants;
        assert_eq!(registrants, [(HOST, key, false)], "{uuid}");
        assert!(!volume.unreadable(0, SIZE, 9).is_empty(), "{uuid}");
    }
    // A UUID that it never had is another volume's.
    let mut other = spec;
    other.uuid = Some(Uuid::from_u128(7));
    assert!(matches!(problem(&other).0, Problem::State { .. }));
}

/// A volume with a reservation of `HOST` that persists, closed again; its UUID.
fn reserved(spec: &Spec) -> Uuid {
    let volume = open(spec).unwrap();
    let register = ReservationRequest::Register {
        key: 7,
        persist: Some(true),
    };
    volume.reservations().change(&HOST, &register).unwrap();
    volume.info().uuid
}

fn registrants(spec: &Spec) -> usize {
    let volume = open(spec).unwrap();
    volume.reservations().report().registrants.len()
}

/// `check` and `serve` say so, of a volume that may change and of a read-only one.
fn assert_state_is_missed(spec: &Spec, state: &Path) {
    for read_only in [false, true] {
        let spec = Spec {
            read_only,
            ..spec.clone()
        };
        let (found, told) = problem(&spec);
        assert!(
            matches!(found, Problem::StateMissing { .. }),
            "{read_only}: {found:?}"
        );
        assert_says(
            &told,
            &[&state.display().to_string(), "setfattr", ATTRIBUTE],
        );
        assert_eq!(store::examine(&spec).unwrap_err().to_string(), told);
    }
}

/// Examined before it is made again, it is the volume that it will be.
#[test]
fn file_that_is_lost_is_made_again_with_the_state_of_its_configured_uuid() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    let spec = Spec {
        uuid: Some(Uuid::from_u128(7)),
        ..file_spec(&path, SIZE)
    };
    reserved(&spec);
    fs::remove_file(&path).unwrap();
    store::examine(&spec).unwrap();
    assert!(!path.exists());
    assert_eq!(registrants(&spec), 1);
}

#[needs(user_attributes)]
#[test]
fn volume_whose_state_file_was_left_behind_is_refused_until_it_is_there_or_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let (first, renamed) = (
        file_spec(&at("first"), SIZE),
        file_spec(&at("renamed"), SIZE),
    );
    let uuid = info(&at("first"), false).uuid;
    assert!(
        !attribute(&at("first")).ends_with(" state"),
        "none is written yet"
    );
    assert_eq!(reserved(&first), uuid);
    fs::rename(at("first"), at("renamed")).unwrap();
    assert_state_is_missed(&renamed, &at("renamed.weft"));
    std::os::unix::fs::symlink(at("renamed"), at("link")).unwrap();
    assert_state_is_missed(&file_spec(&at("link"), SIZE), &at("link.weft"));
    let mut elsewhere = renamed.clone();
    elsewhere.state = Some(at("not mounted/state"));
    assert_state_is_missed(&elsewhere, &at("not mounted/state"));
    // Brought along.
    fs::rename(at("first.weft"), at("renamed.weft")).unwrap();
    assert_eq!(registrants(&renamed), 1);
    // Given up, by what the refusal says.
    fs::remove_file(at("renamed.weft")).unwrap();
    let (_, told) = problem(&renamed);
    let plain = attribute(&at("renamed")).replace(" state", "");
    assert_says(&told, &[&format!("-v '{plain}'")]);
    set_attribute(&at("renamed"), &plain);
    assert_eq!(registrants(&renamed), 0);
    assert_eq!(info(&at("renamed"), false).uuid, uuid);
}

#[needs(user_attributes)]
#[test]
fn record_of_an_earlier_version_says_from_the_first_open_on_that_there_is_a_state_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    let spec = file_spec(&path, SIZE);
    let uuid = reserved(&spec);
    let old = attribute(&path).replace(" state", "");
    for old in [old, uuid.to_string()] {
        set_attribute(&path, &old);
        assert_eq!(registrants(&spec), 1);
        assert_eq!(
            attribute(&path),
            format!("{} state", attribute(&path).replace(" state", ""))
        );
    }
    fs::remove_file(folder.path().join("disk.weft")).unwrap();
    assert_state_is_missed(&spec, &folder.path().join("disk.weft"));
}

/// A copy is another volume; in the place of the original it is to have what
/// that remembered.
#[needs(user_attributes)]
#[test]
fn copy_without_the_state_file_is_served_unless_it_takes_the_place_of_the_original() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let uuid = reserved(&file_spec(&at("first"), SIZE));
    copy(&at("first"), &at("second"));
    let mut second = file_spec(&at("second"), SIZE);
    second.uuid = Some(uuid);
    assert_state_is_missed(&second, &at("second.weft"));
    second.uuid = None;
    assert_eq!(registrants(&second), 0);
}

/// A process that ended between making the file and its first sync.
#[needs(user_attributes)]
#[test]
fn empty_file_without_a_record_is_one_that_weft_made_and_grows() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    File::create(&path).unwrap();
    assert_eq!(open(&file_spec(&path, SIZE)).unwrap().size_bytes(), SIZE);
    assert_eq!(fs::metadata(&path).unwrap().len(), SIZE);
    open(&file_spec(&path, 2 * SIZE)).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), 2 * SIZE);
}
