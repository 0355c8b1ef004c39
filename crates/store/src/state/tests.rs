use super::*;
use crate::Kind;
use crate::reservation::{Registrant, ReservationRequest};
use crate::spec::beside;

const VOLUME: Uuid = Uuid::from_u128(7);

fn open(path: &Path) -> Result<State, Problem> {
    State::in_file(&spec(Some(path)), VOLUME, None, None)
}

fn spec(state: Option<&Path>) -> Spec {
    Spec {
        state: state.map(Path::to_owned),
        ..Spec::new("disk", Kind::RAM, 4096, 512)
    }
}

/// A state file with something of everything, and its bytes.
fn filled(folder: &Path) -> (PathBuf, Vec<u8>) {
    let path = beside(&folder.join("disk"));
    let state = open(&path).expect("nothing there is no damage");
    assert!(!path.exists(), "nothing is written before it must be");
    let register = ReservationRequest::Register {
        key: u64::MAX,
        persist: Some(true),
    };
    let host = Registrant::NvmeHost([0xab; 16]);
    state.reservations().change(&host, &register).unwrap();
    state.protect_permanently().unwrap();
    let ranges = [
        Range {
            offset: 0,
            len: 512,
        },
        Range {
            offset: u64::MAX - 511,
            len: 511,
        },
    ];
    state.set_unreadable(&ranges).unwrap();
    let bytes = fs::read(&path).unwrap();
    (path, bytes)
}

/// What bytes of a state file say, whichever file they are in.
fn content(bytes: &[u8]) -> Document {
    Document {
        file: None,
        ..parse(bytes).unwrap()
    }
}

fn is_damage(path: &Path) -> bool {
    match open(path) {
        Err(Problem::State { path: named, .. }) => named == path,
        _ => false,
    }
}

#[test]
fn state_of_every_kind_is_there_after_opening_again() {
    let folder = tempfile::tempdir().unwrap();
    let (path, _) = filled(folder.path());
    assert_eq!(path, folder.path().join("disk.weft"));
    let state = open(&path).unwrap();
    assert!(state.is_write_protected() && state.can_persist());
    assert_eq!(state.unreadable().len(), 2);
    assert_eq!(state.unreadable()[1].offset, u64::MAX - 511);
    let report = state.reservations().report();
    let host = Registrant::NvmeHost([0xab; 16]);
    assert_eq!(report.registrants, [(host, u64::MAX, false)]);
    assert!(report.persist);
}

#[test]
fn a_file_cut_off_anywhere_or_changed_anywhere_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (path, bytes) = filled(folder.path());
    for len in 0..bytes.len() {
        fs::write(&path, &bytes[..len]).unwrap();
        assert!(is_damage(&path), "cut off after {len} bytes");
    }
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        fs::write(&path, &changed).unwrap();
        assert!(is_damage(&path), "byte {at} changed");
    }
    fs::write(&path, &bytes).unwrap();
    assert!(open(&path).is_ok());
}

fn make_pipe(path: &Path) {
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
}

/// What is in the way is left as it is.
#[test]
fn anything_but_a_file_in_the_place_of_the_new_state_or_the_lock_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let nowhere = |path: &Path| std::os::unix::fs::symlink("nowhere", path).unwrap();
    let socket = |path: &Path| drop(std::os::unix::net::UnixListener::bind(path).unwrap());
    type Make<'a> = &'a dyn Fn(&Path);
    let makes: [(&str, Make<'_>); 4] = [
        ("folder", &|path| fs::create_dir(path).unwrap()),
        ("pipe", &make_pipe),
        ("socket", &socket),
        ("link", &nowhere),
    ];
    for (name, make) in makes {
        for suffix in [".new", ".lock"] {
            let path = folder.path().join(format!("{name}{suffix}"));
            let beside = with_suffix(&path, suffix);
            make(&beside);
            let spec = spec(Some(&path));
            for problem in [examine(&spec, VOLUME, None).err(), open(&path).err()] {
                let text = problem.expect("refused").to_string();
                for part in [&*beside.display().to_string(), "move it away"] {
                    assert!(text.contains(part), "{text}");
                }
            }
            assert!(fs::symlink_metadata(&beside).is_ok(), "it is not ours");
        }
    }
}

#[test]
fn link_in_the_place_of_the_new_state_is_refused_and_what_it_leads_to_stays() {
    let folder = tempfile::tempdir().unwrap();
    let [path, other] = ["state", "other"].map(|name| folder.path().join(name));
    fs::write(&other, "text").unwrap();
    std::os::unix::fs::symlink(&other, with_suffix(&path, ".new")).unwrap();
    for problem in [
        examine(&spec(Some(&path)), VOLUME, None).err(),
        open(&path).err(),
    ] {
        let text = problem.expect("refused").to_string();
        assert!(text.contains("symbolic link"), "{text}");
    }
    assert_eq!(fs::read(&other).unwrap(), b"text");
}

/// It may lie on a file system of which nothing can be moved away.
#[test]
fn read_only_volume_is_opened_whatever_is_in_the_place_of_the_new_state() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state");
    make_pipe(&with_suffix(&path, ".new"));
    let spec = Spec {
        read_only: true,
        ..spec(Some(&path))
    };
    examine(&spec, VOLUME, None).expect("nothing is written");
    let state = State::in_file(&spec, VOLUME, None, None).expect("nothing is written");
    assert!(matches!(
        state.protect_permanently(),
        Err(StateError::Unsaved(_))
    ));
}

/// It is bound to its file at the first start that can write it.
#[test]
fn state_file_of_an_earlier_version_is_used_where_it_cannot_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let (path, bytes) = filled(folder.path());
    fs::write(&path, render(&content(&bytes))).unwrap();
    let spec = spec(Some(&path));
    for step in [SaveStep::SyncFile, SaveStep::Rename, SaveStep::SyncFolder] {
        fault::NEXT.set(Some(step));
        let state = State::in_file(&spec, VOLUME, None, None).expect("with a warning");
        assert_eq!(fault::NEXT.take(), None, "it was met");
        assert_eq!(state.reservations().report().registrants.len(), 1);
        let held = held(&spec).expect("it is there");
        assert_eq!((held.volume, held.copy), (VOLUME, None), "{step:?}");
    }
    drop(open(&path).expect("there is room again"));
    assert!(held(&spec).is_some_and(|held| held.is_bound));
}

/// Else the next start took it for the original.
#[test]
fn copy_that_is_put_back_is_a_copy_still() {
    let folder = tempfile::tempdir().unwrap();
    let (path, _) = filled(folder.path());
    let copy = folder.path().join("copy");
    fs::copy(&path, &copy).unwrap();
    let spec = spec(Some(&copy));
    for _ in 0..2 {
        let Some(StateOwner {
            copy: Some(uuid), ..
        }) = held(&spec)
        else {
            panic!("taken for the original");
        };
        fault::NEXT.set(Some(SaveStep::SyncFolder));
        let former = Some(Former::Original(VOLUME));
        drop(State::in_file(&spec, uuid, former, None));
        assert_eq!(fault::NEXT.take(), None, "it was met");
    }
}

#[test]
fn state_behind_a_link_is_kept_where_the_link_leads() {
    let folder = tempfile::tempdir().unwrap();
    let there = folder.path().join("there");
    fs::create_dir(&there).unwrap();
    let (path, before) = filled(&there);
    let link = folder.path().join("link");
    std::os::unix::fs::symlink("there/disk.weft", &link).unwrap();
    let state = open(&link).expect("led to it");
    // By both ways it is one file.
    for other in [&path, &link] {
        assert!(matches!(open(other), Err(Problem::InUse { .. })));
        let examined = examine(&spec(Some(other)), VOLUME, None);
        assert!(matches!(examined, Err(Problem::InUse { .. })));
    }
    state.set_unreadable(&[]).unwrap();
    assert!(link.is_symlink(), "it leads there still");
    assert_ne!(fs::read(&path).unwrap(), before);
    assert!(held(&spec(Some(&link))).is_some_and(|held| held.is_bound));
    drop(state);
    assert!(open(&path).unwrap().unreadable().is_empty());
}

/// Both read as zeros, and yet they are two disks.
#[test]
fn two_volumes_in_memory_share_no_state_file_even_if_read_only() {
    let folder = tempfile::tempdir().unwrap();
    let spec = Spec {
        read_only: true,
        ..spec(Some(&folder.path().join("state")))
    };
    let _first = State::in_file(&spec, VOLUME, None, None).unwrap();
    let second = State::in_file(&spec, VOLUME, None, None).err();
    assert!(matches!(second, Some(Problem::InUse { .. })));
    let examined = examine(&spec, VOLUME, None).err();
    assert!(matches!(examined, Some(Problem::InUse { .. })));
}

/// Opening a pipe would wait for a process that writes into it.
#[test]
fn pipe_or_folder_as_a_state_file_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    make_pipe(&pipe);
    // The pipe comes last: the others fail where no type is looked at.
    for path in [Path::new("/dev/null"), folder.path(), &pipe] {
        let spec = spec(Some(path));
        let examined = examine(&spec, VOLUME, None);
        for problem in [examined.err(), open(path).err()] {
            let text = problem.expect("refused").to_string();
            assert!(text.contains("is not a regular file"), "{text}");
            assert!(text.contains(&path.display().to_string()), "{text}");
        }
        assert_eq!(volume(&spec), None);
    }
}

#[test]
fn half_written_new_state_file_is_ignored_and_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let (path, bytes) = filled(folder.path());
    let half = with_suffix(&path, ".new");
    fs::write(&half, &bytes[..9]).unwrap();
    let state = open(&path).expect("the old one is whole");
    state.set_unreadable(&[]).unwrap();
    assert!(!half.exists(), "the next change takes its place");
    drop(state);
    assert!(open(&path).unwrap().unreadable().is_empty());
}

#[test]
fn another_volumes_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (path, _) = filled(folder.path());
    let other = State::in_file(&spec(Some(&path)), Uuid::from_u128(8), None, None);
    let Err(problem @ Problem::State { .. }) = other else {
        panic!("taken for its own");
    };
    let text = problem.to_string();
    assert!(text.contains(&VOLUME.to_string()) && text.contains("disk.weft"));
}

/// Reservations of a stranger would keep hosts out, and its own would be lost.
#[test]
fn only_the_former_volume_hands_its_state_on() {
    let (next, stranger) = (Uuid::from_u128(8), Uuid::from_u128(9));
    for former in [Former::Own as fn(Uuid) -> Former, Former::Original] {
        let folder = tempfile::tempdir().unwrap();
        let (path, bytes) = filled(folder.path());
        let open_as = |read_only, uuid, former| {
            let spec = Spec {
                read_only,
                ..spec(Some(&path))
            };
            State::in_file(&spec, uuid, former, None)
        };
        let refused = open_as(false, next, Some(former(stranger)));
        assert!(matches!(refused, Err(Problem::State { .. })));
        let found = open_as(true, next, Some(former(VOLUME))).expect("handed on");
        assert!(found.is_write_protected());
        assert_eq!(fs::read(&path).unwrap(), bytes, "it was only looked at");
        drop(found);
        drop(open_as(false, next, Some(former(VOLUME))).expect("handed on"));
        let again = open_as(false, next, None).expect("it is its own now");
        assert!(again.is_write_protected());
        // A volume that changes its UUID keeps them, a copy of it has none.
        let registrants = again.reservations().report().registrants.len();
        let is_own = former(VOLUME) == Former::Own(VOLUME);
        assert_eq!(registrants, usize::from(is_own));
    }
}

/// Its file would be of another volume than the state beside it.
#[test]
fn state_of_the_former_volume_that_cannot_be_saved_keeps_a_file_from_being_opened() {
    let folder = tempfile::tempdir().unwrap();
    let (path, bytes) = filled(folder.path());
    let spec = |kind| Spec {
        kind,
        ..spec(Some(&path))
    };
    let file = Kind::file(folder.path().join("disk"));
    let former = Some(Former::Original(VOLUME));
    for (kind, is_opened) in [(file, false), (Kind::RAM, true)] {
        fault::NEXT.set(Some(SaveStep::Rename));
        let opened = State::in_file(&spec(kind), Uuid::from_u128(8), former, None);
        assert_eq!(opened.is_ok(), is_opened);
        assert_eq!(fs::read(&path).unwrap(), bytes);
    }
}

#[test]
fn files_of_a_state_are_the_state_the_new_one_and_the_lock() {
    let path = Path::new("/folder/state");
    let expected = ["", ".new", ".lock"].map(|suffix| with_suffix(path, suffix));
    assert_eq!(files(&spec(Some(path))), expected);
}

#[test]
fn state_as_large_as_may_be_is_kept_and_a_larger_one_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = beside(&folder.path().join("disk"));
    let state = open(&path).unwrap();
    let ranges = |count, digits: u64| {
        let mut ranges = vec![Range { offset: 0, len: 0 }; count];
        // Each digit more of a number is a byte more.
        for at in 0..digits as usize {
            ranges[at / 18].offset = 10_u64.pow((at % 18 + 1) as u32);
        }
        ranges
    };
    let bytes = |count| {
        state.set_unreadable(&ranges(count, 0)).unwrap();
        fs::metadata(&path).unwrap().len()
    };
    let of_one = bytes(1002) - bytes(1001);
    let of_none = bytes(1001) - 1001 * of_one;
    let count = (BYTES_MAX - of_none) / of_one;
    let digits = BYTES_MAX - of_none - count * of_one;
    let full = ranges(count as usize, digits);
    state.set_unreadable(&full).unwrap();
    let kept = fs::read(&path).unwrap();
    assert_eq!(kept.len() as u64, BYTES_MAX);
    let refused = state.set_unreadable(&ranges(count as usize, digits + 1));
    assert!(
        matches!(refused, Err(StateError::Unsaved(error)) if error.kind() == io::ErrorKind::FileTooLarge)
    );
    drop(state);
    assert_eq!(open(&path).unwrap().unreadable(), full);
    fs::write(&path, [kept, vec![b' ']].concat()).unwrap();
    let refused = open(&path).err().expect("refused").to_string();
    assert!(refused.contains("has more than"), "{refused}");
}

/// A link to itself stands for whatever cannot be looked at: it is not known that
/// nothing is there.
#[test]
fn state_or_lock_that_cannot_be_looked_at_keeps_the_volume_from_being_opened() {
    for (name, to, action) in [
        ("state", "state", "read the state file"),
        ("state.lock", "state.lock", "lock the state file"),
        ("state.lock", "missing/lock", "lock the state file"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(to, folder.path().join(name)).unwrap();
        let spec = spec(Some(&folder.path().join("state")));
        let opened = State::in_file(&spec, VOLUME, None, None).err();
        let examined = examine(&spec, VOLUME, None).err();
        for problem in [opened, examined] {
            let problem = problem.expect("refused");
            assert!(
                matches!(problem, Problem::System { action: found, .. } if found == action),
                "{name}: {problem}"
            );
        }
    }
}

#[test]
fn examining_makes_no_lock_and_opening_does() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state");
    let lock = folder.path().join("state.lock");
    assert!(examine(&spec(Some(&path)), VOLUME, None).is_ok());
    assert!(!lock.exists());
    let state = open(&path).unwrap();
    assert!(lock.exists());
    assert!(open(&path).is_err(), "it is taken");
    drop(state);
}

#[test]
fn lock_that_cannot_be_made_for_another_reason_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("missing/state");
    let locked = lock(&spec(Some(&path)), &path, true);
    assert!(matches!(locked, Err(Problem::System { .. })));
}

/// In `/sys` no process can make a file.
#[test]
fn folder_that_takes_no_lock_takes_no_state_either() {
    let state = open(Path::new("/sys/weft-state")).expect("nothing is there");
    let refused = state.protect_permanently();
    assert!(matches!(refused, Err(StateError::Unsaved(_))));
    assert!(!state.is_write_protected());
}

#[test]
fn state_file_of_an_open_volume_is_refused_to_another_by_any_path() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("x")).unwrap();
    let path = folder.path().join("state");
    let other_path = folder.path().join("x/../state");
    let kind = Kind::file(folder.path().join("disk"));
    let open_as = |path: &Path, read_only| {
        let spec = Spec {
            read_only,
            kind: kind.clone(),
            ..spec(Some(path))
        };
        let examined = examine(&spec, VOLUME, None).is_ok();
        let opened = State::in_file(&spec, VOLUME, None, None);
        assert_eq!(opened.is_ok(), examined);
        opened
    };
    let first = open_as(&path, false).expect("no volume has it");
    for read_only in [false, true] {
        let second = open_as(&other_path, read_only).err().expect("refused");
        let holder = Some(std::process::id());
        assert!(matches!(second, Problem::InUse { holder: found, .. } if found == holder));
        assert!(
            second.to_string().contains("x/../state is already"),
            "{second}"
        );
    }
    first.protect_permanently().unwrap();
    assert!(
        open_as(&other_path, false).is_err(),
        "after it was replaced"
    );
    drop(first);
    let second = open_as(&other_path, true).expect("it was let go");
    let third = open_as(&path, true).expect("neither takes it for itself");
    assert!(second.is_write_protected() && third.is_write_protected());
    assert!(open_as(&path, false).is_err());
}

#[test]
fn state_without_a_file_refuses_what_must_last() {
    let state = State::in_file(&spec(None), VOLUME, None, None).unwrap();
    assert!(!state.can_persist() && !state.is_write_protected());
    let refused = state.protect_permanently().unwrap_err();
    assert!(matches!(refused, StateError::Volatile));
    assert!(
        refused.to_string().contains("give it a `state` path"),
        "{refused}"
    );
    assert!(matches!(
        state.set_unreadable(&[]),
        Err(StateError::Volatile)
    ));
}

#[test]
fn a_folder_that_cannot_be_written_keeps_the_old_state() {
    let folder = tempfile::tempdir().unwrap();
    let (path, bytes) = filled(folder.path());
    let state = open(&path).unwrap();
    // A folder in the place of the temporary file: no one can write there.
    fs::create_dir(with_suffix(&path, ".new")).unwrap();
    assert!(matches!(
        state.set_unreadable(&[]),
        Err(StateError::Unsaved(_))
    ));
    assert_eq!(state.unreadable().len(), 2, "as on the disk");
    assert_eq!(fs::read(&path).unwrap(), bytes);
}

/// The record of the volume's file never names a state file that is not there.
#[test]
fn first_state_that_is_not_written_leaves_the_volume_to_be_opened() {
    for step in [SaveStep::SyncFile, SaveStep::Rename, SaveStep::SyncFolder] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        let kind = Kind::file(path.clone());
        let spec = Spec::new("disk", kind, 4096, 512);
        let open = || crate::regular::open(&spec, &path);
        let (file, uuid, state) = open().unwrap();
        fault::NEXT.set(Some(step));
        assert!(state.protect_permanently().is_err(), "{step:?}");
        drop((file, state));
        let (file, again, state) = open().expect("nothing was kept, nothing is missed");
        assert_eq!((again, state.is_write_protected()), (uuid, false));
        state.protect_permanently().unwrap();
        drop((file, state));
        assert!(open().unwrap().2.is_write_protected());
    }
}

/// Whatever fails: after the answer that a change was not kept, the old state is
/// there, in this process and in the next.
#[test]
fn a_step_of_writing_that_fails_leaves_the_old_state_now_and_after_a_restart() {
    for is_first in [true, false] {
        for step in [SaveStep::SyncFile, SaveStep::Rename, SaveStep::SyncFolder] {
            let folder = tempfile::tempdir().unwrap();
            let path = match is_first {
                true => beside(&folder.path().join("disk")),
                false => filled(folder.path()).0,
            };
            let held = || fs::read(&path).ok().map(|bytes| content(&bytes));
            let before = held();
            let state = open(&path).unwrap();
            let was = (state.unreadable(), state.reservations().report());
            let one = Range {
                offset: 4096,
                len: 512,
            };
            fault::NEXT.set(Some(step));
            let refused = state.set_unreadable(&[one]);
            assert!(matches!(refused, Err(StateError::Unsaved(_))), "{step:?}");
            assert_eq!((state.unreadable(), state.reservations().report()), was);
            assert_eq!(held(), before, "{step:?}, first: {is_first}");
            // What is put back is no copy: that would have another identity.
            let owner = super::held(&spec(Some(&path)));
            assert_eq!(owner.map(|owner| owner.is_bound), before.map(|_| true));
            // The next change is kept, with nothing of the one that was refused.
            state.protect_permanently().unwrap();
            drop(state);
            let again = open(&path).unwrap();
            assert!(again.is_write_protected());
            assert_eq!(again.unreadable(), was.0);
        }
    }
}
