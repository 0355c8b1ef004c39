//! Local users who can change the directory try to lead clients out of it.

use super::*;
use std::os::unix::fs::symlink;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

const SECRET: &[u8] = b"secret";

/// A place with files outside that clients must not see.
fn place_and_outside() -> (Place, TempDir) {
    let place = Place::new();
    let outside = tempfile::tempdir_in(place.served.path().parent().unwrap()).unwrap();
    fs::create_dir(outside.path().join("in")).unwrap();
    fs::write(outside.path().join("f"), SECRET).unwrap();
    fs::write(outside.path().join("in/f"), SECRET).unwrap();
    (place, outside)
}

#[test]
fn symbolic_links_are_listed_and_not_followed() {
    let (place, outside) = place_and_outside();
    let fs = place.open();
    let mut user = User::root(&fs);
    let top = user.top();
    symlink(outside.path(), place.path("dir")).unwrap();
    symlink(outside.path().join("f"), place.path("file")).unwrap();
    symlink("/proc/self/root", place.path("magic")).unwrap();
    for name in ["dir", "file", "magic"] {
        let link = user.lookup(top, name.as_bytes()).unwrap();
        assert_eq!(user.attr(link).unwrap().kind, ObjectKind::Symlink);
        assert_eq!(user.lookup(link, b"f"), Err(Error::Symlink));
        assert_eq!(user.read(link, 0, 9), Err(Error::Symlink));
        assert_eq!(user.write(link, 0, b"x"), Err(Error::Symlink));
        assert_eq!(user.open(link), Err(Error::Symlink));
        assert_eq!(user.set(link, size(0)), Err(Error::Inval));
        assert_eq!(user.list(link, 0, 9), Err(Error::Symlink));
        let made = user.create(link, b"x", New::Guarded, mode(0o600));
        assert_eq!(made.map(|_| ()), Err(Error::Symlink));
        let taken = user.create(top, name.as_bytes(), New::Unchecked, size(0));
        assert_eq!(taken.map(|_| ()), Err(Error::Symlink));
    }
    // Names that are ways are no names.
    for name in ["..", "../f", "/etc", "dir/f", "."] {
        let found = user.lookup(top, name.as_bytes());
        assert!(
            matches!(found, Err(Error::BadName | Error::BadChar)),
            "{name}"
        );
    }
    assert_eq!(user.run(FsOp::Parent { dir: top }), Err(Error::NoEnt));
    assert_eq!(fs::read(outside.path().join("f")).unwrap(), SECRET);
}

#[test]
fn directory_replaced_by_a_link_to_the_outside_is_stale() {
    let (place, outside) = place_and_outside();
    let fs = place.open();
    let mut user = User::root(&fs);
    let top = user.top();
    let dir = user.dir(top, b"in");
    let file = user.file(dir, b"f");
    fs::remove_file(place.path("in/f")).unwrap();
    fs::remove_dir(place.path("in")).unwrap();
    symlink(outside.path().join("in"), place.path("in")).unwrap();
    user.seconds += 10;
    assert_eq!(user.read(file, 0, 9), Err(Error::Stale));
    assert_eq!(user.lookup(dir, b"f"), Err(Error::Stale));
    assert_eq!(user.list(dir, 0, 9), Err(Error::Stale));
    let made = user.create(dir, b"x", New::Guarded, mode(0o600));
    assert_eq!(made.map(|_| ()), Err(Error::Stale));
    assert!(!outside.path().join("in/x").exists());
}

#[test]
fn directory_moved_out_of_the_tree_is_stale() {
    let (place, outside) = place_and_outside();
    let fs = place.open();
    let mut user = User::root(&fs);
    let top = user.top();
    let dir = user.dir(top, b"d");
    let file = user.file(dir, b"f");
    fs::rename(place.path("d"), outside.path().join("d")).unwrap();
    user.seconds += 10;
    assert_eq!(user.attr(dir), Err(Error::Stale));
    assert_eq!(user.attr(file), Err(Error::Stale));
    assert_eq!(user.read(file, 0, 9), Err(Error::Stale));
    assert_eq!(user.run(FsOp::Parent { dir }), Err(Error::Stale));
    assert_eq!(user.remove(dir, b"f"), Err(Error::Stale));
    assert!(outside.path().join("d/f").exists());
    // Back again it is what it was.
    fs::rename(outside.path().join("d"), place.path("back")).unwrap();
    assert_eq!(user.lookup(top, b"back"), Ok(dir));
    assert_eq!(user.attr(file).unwrap().kind, ObjectKind::Regular);
}

/// A directory and a link to the outside change places all the time.
#[test]
fn directory_and_link_that_change_places_give_no_access_to_the_outside() {
    const ROUNDS: usize = 3000;
    let (place, outside) = place_and_outside();
    let fs = place.open();
    let mut user = User::root(&fs);
    let top = user.top();
    let dir = user.dir(top, b"in");
    let deep = user.dir(dir, b"in");
    let file = user.file(deep, b"f");
    user.write(file, 0, b"ours").unwrap();
    fs::create_dir(outside.path().join("in/in")).unwrap();
    fs::write(outside.path().join("in/in/f"), SECRET).unwrap();
    symlink(outside.path().join("in"), place.path("link")).unwrap();
    let is_over = AtomicBool::new(false);
    let (mut found, mut refused) = (0, 0);
    std::thread::scope(|scope| {
        let (place, outside, is_over) = (&place, &outside, &is_over);
        scope.spawn(move || {
            let names = ["in", "link", "aside"].map(|name| place.path(name));
            let out = outside.path().join("moved");
            for round in 0.. {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                // In place of the directory there is the link, or nothing.
                fs::rename(&names[0], &names[2]).unwrap();
                fs::rename(&names[1], &names[0]).unwrap();
                fs::rename(&names[0], &names[1]).unwrap();
                if round % 2 == 0 {
                    fs::rename(&names[2], &out).unwrap();
                    fs::rename(&out, &names[2]).unwrap();
                }
                fs::rename(&names[2], &names[0]).unwrap();
            }
        });
        for round in 0..ROUNDS {
            user.seconds += 10;
            let outcome = match round % 6 {
                0 => read_by_name(&mut user, top),
                1 => user.read_buf(file, 0, 9).map(|(bytes, _)| bytes),
                2 => user.attr(file).map(|_| b"ours".to_vec()),
                3 => user.write(file, 0, b"ours").map(|_| b"ours".to_vec()),
                4 => {
                    let made = user.create(deep, b"new", New::Unchecked, mode(0o600));
                    let _ = user.remove(deep, b"new");
                    made.map(|_| b"ours".to_vec())
                }
                _ => user.list(deep, 0, 9).map(|_| b"ours".to_vec()),
            };
            match outcome {
                Ok(bytes) => {
                    assert_eq!(bytes, b"ours", "round {round}");
                    found += 1;
                }
                Err(error) => {
                    let known = [Error::Stale, Error::NoEnt, Error::Symlink];
                    assert!(known.contains(&error), "round {round}: {error}");
                    refused += 1;
                    // It may have been given up as lost.
                    let _ = user.lookup(top, b"in");
                }
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(found > 0, "{refused} refused");
    assert_eq!(fs::read(outside.path().join("in/in/f")).unwrap(), SECRET);
    assert!(!outside.path().join("in/in/new").exists());
}

fn read_by_name(user: &mut User<'_>, top: FileId) -> Result<Vec<u8>, Error> {
    let dir = user.lookup(top, b"in")?;
    let deep = user.lookup(dir, b"in")?;
    let file = user.lookup(deep, b"f")?;
    Ok(user.read_buf(file, 0, 9)?.0)
}

/// A mount that goes away with the test.
struct Mount(PathBuf);

impl Mount {
    fn tmpfs(at: &Path) -> Mount {
        let mut command = Command::new("mount");
        let done = command.args(["-t", "tmpfs", "weft-test"]).arg(at).status();
        let done = done.expect("mount runs");
        assert!(done.success(), "mount: {done}");
        Mount(at.into())
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[needs(mount)]
#[test]
fn mounts_are_not_entered() {
    let place = Place::new();
    let fs = place.open();
    let mut user = User::root(&fs);
    let top = user.top();
    let dir = user.dir(top, b"mount");
    let file = user.file(dir, b"below");
    user.file(top, b"beside");
    let mount = Mount::tmpfs(&place.path("mount"));
    fs::write(place.path("mount/f"), SECRET).unwrap();
    assert_eq!(user.lookup(top, b"mount"), Err(Error::Access));
    assert_eq!(user.names(top), [b"beside"]);
    user.seconds += 10;
    assert_eq!(user.attr(dir), Err(Error::Stale));
    assert_eq!(user.attr(file), Err(Error::Stale));
    assert_eq!(user.remove(top, b"mount"), Err(Error::Access));
    let made = user.create(top, b"mount", New::Directory, mode(0o755));
    assert_eq!(made.map(|_| ()), Err(Error::Access));
    drop(mount);
    assert_eq!(user.lookup(top, b"mount"), Ok(dir));
    assert_eq!(user.attr(file).unwrap().kind, ObjectKind::Regular);
}
