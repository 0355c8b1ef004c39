//! What others on this machine do to the directory meanwhile.

use super::*;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use store::fs::LocalChange;

fn read(user: &mut User<'_>, file: FileId) -> Result<Vec<u8>, Error> {
    Ok(user.read_buf(file, 0, 100)?.0)
}

#[test]
fn file_that_a_local_process_renamed_is_found() {
    let place = Place::new();
    let fs = place.open();
    let mut user = User::root(&fs);
    let top = user.top();
    let (a, b) = (user.dir(top, b"a"), user.dir(top, b"b"));
    let deep = user.dir(a, b"deep");
    let file = user.file(deep, b"f");
    user.write(file, 0, b"content").unwrap();
    let find = |user: &mut User<'_>| {
        // Nothing is taken for granted any more.
        user.seconds += 10;
        assert_eq!(read(user, file), Ok(b"content".to_vec()));
        assert_eq!(user.attr(deep).unwrap().kind, ObjectKind::Directory);
    };
    find(&mut user);
    // In its directory.
    fs::rename(place.path("a/deep/f"), place.path("a/deep/g")).unwrap();
    find(&mut user);
    assert_eq!(user.lookup(deep, b"g"), Ok(file));
    // A directory on the way, and both.
    fs::rename(place.path("a"), place.path("elsewhere")).unwrap();
    find(&mut user);
    fs::rename(place.path("elsewhere/deep"), place.path("elsewhere/d")).unwrap();
    fs::rename(place.path("elsewhere/d/g"), place.path("elsewhere/d/h")).unwrap();
    find(&mut user);
    // To a directory above.
    fs::rename(place.path("elsewhere/d"), place.path("up")).unwrap();
    find(&mut user);
    assert_eq!(user.run(FsOp::Parent { dir: deep }), Ok(Output::File(top)));
    // Somewhere else: stale, until it is met.
    fs::rename(place.path("up"), place.path("b/there")).unwrap();
    user.seconds += 10;
    assert_eq!(read(&mut user, file), Err(Error::Stale));
    assert_eq!(user.attr(deep), Err(Error::Stale));
    assert_eq!(user.lookup(b, b"there"), Ok(deep));
    assert_eq!(user.lookup(deep, b"h"), Ok(file));
    find(&mut user);
    // And by a listing.
    fs::rename(place.path("b/there"), place.path("elsewhere/there")).unwrap();
    assert_eq!(user.attr(deep), Err(Error::Stale));
    let listing = user.list(a, 0, 10).unwrap();
    assert_eq!(listing.iter().next().unwrap().0.file, deep);
    assert_eq!(user.attr(deep).unwrap().kind, ObjectKind::Directory);
}

/// Never another file: not one of the same name, nor of the same inode number.
#[test]
fn file_replaced_by_one_of_the_same_name_is_stale() {
    replace_again_and_again(&Place::new());
}

#[needs(inode_reuse)]
#[test]
fn file_replaced_by_one_of_the_same_inode_number_is_stale() {
    assert!(replace_again_and_again(&Place::on_disk()) > 0);
}

/// How often the new file had the number of an older one.
fn replace_again_and_again(place: &Place) -> u32 {
    let fs = place.open();
    let mut user = User::root(&fs);
    let top = user.top();
    let (mut old, mut inos, mut reused) = (Vec::new(), Vec::new(), 0);
    for round in 0..50_u8 {
        // As fast as can be: within a tick of the clock.
        let _ = fs::remove_file(place.path("f"));
        fs::write(place.path("f"), [round]).unwrap();
        let ino = fs::metadata(place.path("f")).unwrap().ino();
        reused += u32::from(inos.contains(&ino));
        inos.push(ino);
        if let Some(&before) = old.last() {
            assert_eq!(user.attr(before), Err(Error::Stale), "round {round}");
            assert_eq!(read(&mut user, before), Err(Error::Stale));
        }
        let file = user.lookup(top, b"f").unwrap();
        assert!(!old.contains(&file), "round {round}");
        assert_eq!(user.read_buf(file, 0, 9).unwrap().0, [round]);
        user.seconds += 10;
        old.push(file);
    }
    drop(user);
    drop(fs);
    let fs = place.open();
    let mut user = User::root(&fs);
    let last = old.pop();
    for file in old {
        assert_eq!(user.attr(file), Err(Error::Stale));
    }
    assert_eq!(user.lookup(user.top(), b"f").ok(), last);
    reused
}

/// As editors save.
#[test]
fn file_replaced_by_rename_is_stale() {
    let place = Place::new();
    let fs = place.open();
    let mut user = User::root(&fs);
    let top = user.top();
    let file = user.file(top, b"f");
    user.write(file, 0, b"old").unwrap();
    fs::write(place.path("f~"), b"new").unwrap();
    fs::rename(place.path("f~"), place.path("f")).unwrap();
    user.seconds += 10;
    assert_eq!(read(&mut user, file), Err(Error::Stale));
    assert_eq!(user.write(file, 0, b"x"), Err(Error::Stale));
    assert_eq!(fs::read(place.path("f")).unwrap(), b"new");
    let new = user.lookup(top, b"f").unwrap();
    assert_ne!(new, file);
    assert_eq!(read(&mut user, new), Ok(b"new".to_vec()));
}

#[test]
fn open_file_stays_readable_when_a_local_process_removes_it() {
    let place = Place::new();
    let fs = place.open();
    let mut user = User::root(&fs);
    let top = user.top();
    let file = user.file(top, b"f");
    user.write(file, 0, b"content").unwrap();
    user.open(file).unwrap();
    fs::remove_file(place.path("f")).unwrap();
    fs::write(place.path("f"), b"another").unwrap();
    user.seconds += 10;
    assert_eq!(read(&mut user, file), Ok(b"content".to_vec()));
    assert_eq!(user.attr(file).unwrap().links, 0);
    user.write(file, 0, b"CONTENT").unwrap();
    assert_eq!(read(&mut user, file), Ok(b"CONTENT".to_vec()));
    user.run(FsOp::Close { file }).unwrap();
    user.seconds += 10;
    assert_eq!(user.attr(file), Err(Error::Stale));
    assert_eq!(fs::read(place.path("f")).unwrap(), b"another");
    // Through weft, and while it is open twice.
    let file = user.lookup(top, b"f").unwrap();
    user.open(file).unwrap();
    user.open(file).unwrap();
    user.remove(top, b"f").unwrap();
    user.run(FsOp::Close { file }).unwrap();
    assert_eq!(read(&mut user, file), Ok(b"another".to_vec()));
    let link = FsOp::Link {
        file,
        dir: top,
        name: b"g",
    };
    assert_eq!(user.run(link), Err(Error::NoEnt));
    user.run(FsOp::Close { file }).unwrap();
    assert_eq!(user.attr(file), Err(Error::Stale));
}

#[test]
fn a_file_is_found_by_each_of_its_names() {
    let place = Place::new();
    let fs = place.open();
    let mut user = User::root(&fs);
    let top = user.top();
    let dir = user.dir(top, b"d");
    let file = user.file(top, b"first");
    for i in 0..5 {
        let name = format!("name{i}").into_bytes();
        let link = FsOp::Link {
            file,
            dir: [top, dir][i % 2],
            name: &name,
        };
        user.run(link).unwrap();
    }
    fs::hard_link(place.path("first"), place.path("local")).unwrap();
    assert_eq!(user.lookup(top, b"local"), Ok(file));
    // Taken away by us and by others, one after the other.
    user.remove(top, b"first").unwrap();
    assert_eq!(user.attr(file).unwrap().links, 6);
    fs::remove_file(place.path("name4")).unwrap();
    fs::remove_file(place.path("d/name3")).unwrap();
    assert_eq!(user.attr(file).unwrap().links, 4);
    user.remove(top, b"name0").unwrap();
    user.rename((dir, b"name1"), (top, b"moved")).unwrap();
    fs::remove_file(place.path("local")).unwrap();
    fs::remove_file(place.path("name2")).unwrap();
    assert_eq!(user.attr(file).unwrap().links, 1);
    drop(user);
    drop(fs);
    let fs = place.open();
    let mut user = User::root(&fs);
    assert_eq!(user.attr(file).unwrap().links, 1);
    user.remove(top, b"moved").unwrap();
    assert_eq!(user.attr(file), Err(Error::Stale));
}

#[test]
fn changes_by_local_processes_are_seen() {
    let place = Place::new();
    let fs = place.open();
    let mut user = User::root(&fs);
    let top = user.top();
    let file = user.file(top, b"f");
    user.write(file, 0, b"12345").unwrap();
    let before = user.attr(file).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(20));
    fs::write(place.path("f"), b"123456789").unwrap();
    let after = user.attr(file).unwrap();
    assert!(after.change > before.change && after.size == 9);
    assert_eq!(
        user.read_buf(file, 0, 9).unwrap(),
        (b"123456789".to_vec(), true)
    );
    let before = user.attr(top).unwrap().change;
    std::thread::sleep(std::time::Duration::from_millis(20));
    fs::write(place.path("g"), b"").unwrap();
    assert!(user.attr(top).unwrap().change > before);
    fs::remove_file(place.path("g")).unwrap();
    assert_eq!(user.lookup(top, b"g"), Err(Error::NoEnt));
}

/// What is told of a file that is watched, once this is done to it.
fn told(fs: &Dir, local: impl FnOnce()) -> Option<LocalChange> {
    local();
    // Events come from a thread.
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(20) {
        if let Some((_, change)) = fs.take_local_change() {
            return Some(change);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    None
}

#[test]
fn change_of_a_watched_file_by_a_local_process_is_told() {
    let place = Place::new();
    let fs = place.open();
    let calls = Arc::new(AtomicUsize::new(0));
    let called = Arc::clone(&calls);
    fs.tell_local_changes(Box::new(move || {
        called.fetch_add(1, Ordering::Relaxed);
    }));
    let mut user = User::root(&fs);
    let top = user.top();
    let path = place.path("f");
    let file = user.file(top, b"f");
    user.open(file).unwrap();
    let watched = fs
        .watch(file, false)
        .unwrap()
        .expect("local programs reach it");
    // Clients may read it, and others of its directory change.
    user.write(file, 0, b"content").unwrap();
    assert_eq!(
        told(&fs, || {}),
        Some(LocalChange::Changed),
        "by weft itself"
    );
    let changes: [&dyn Fn(); 4] = [
        &|| fs::write(&path, b"other").unwrap(),
        &|| fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap(),
        &|| fs::hard_link(&path, place.path("second")).unwrap(),
        &|| fs::rename(place.path("second"), place.path("third")).unwrap(),
    ];
    for change in changes {
        let before = calls.load(Ordering::Relaxed);
        assert_eq!(told(&fs, change), Some(LocalChange::Changed));
        assert!(calls.load(Ordering::Relaxed) > before, "it is called");
        // A call may have brought several events.
        std::thread::sleep(Duration::from_millis(20));
        while fs.take_local_change().is_some() {}
    }
    // By two clients it is watched until neither has a delegation.
    let second = fs.watch(file, false).unwrap();
    drop(watched);
    let write = || fs::write(&path, b"more").unwrap();
    assert_eq!(told(&fs, write), Some(LocalChange::Changed));
    drop(second);
    // One that a client writes alone is told of when it is opened, not when it is written.
    let watched = fs.watch(file, true).unwrap();
    user.write(file, 0, b"content").unwrap();
    fs::metadata(&path).unwrap();
    // What its client has weft do is no use by a local program, nor are others that only read.
    let set = SetAttr {
        mode: Some(0o640),
        size: Some(3),
        ..SetAttr::default()
    };
    user.set(file, set).unwrap();
    drop(fs.watch(file, false).unwrap());
    user.write(file, 0, b"content").unwrap();
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(fs.take_local_change(), None);
    let read = || drop(fs::read(&path).unwrap());
    assert_eq!(told(&fs, read), Some(LocalChange::Opened));
    drop(watched);
    // Not any more.
    write();
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(fs.take_local_change(), None);
    user.run(FsOp::Close { file }).unwrap();
}
