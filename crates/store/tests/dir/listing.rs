//! Directories, small and large.

use super::*;
use std::collections::HashSet;
use std::time::Instant;

/// All of a directory in pieces; `between` is done after each.
fn walk(
    user: &mut User<'_>,
    dir: FileId,
    entries_max: u32,
    mut between: impl FnMut(&mut User<'_>, u64),
) -> Vec<(u64, FileId, Vec<u8>)> {
    let (mut cookie, mut seen) = (0, Vec::new());
    loop {
        let listing = user.list(dir, cookie, entries_max).unwrap();
        for (entry, name) in listing.iter() {
            assert!(entry.cookie >= 3);
            assert_eq!(entry.attr.as_ref().unwrap().file, entry.file);
            cookie = entry.cookie;
            seen.push((cookie, entry.file, name.to_vec()));
        }
        if listing.is_end {
            return seen;
        }
        assert!(!listing.is_empty());
        between(user, cookie);
    }
}

/// A listing has each entry that stays exactly once, whatever is made and
/// removed meanwhile.
#[test]
fn cookies_hold_while_entries_come_and_go() {
    for place in [Place::new(), Place::on_disk()] {
        let fs = place.open();
        let mut user = User::root(&fs);
        let top = user.top();
        let dir = user.dir(top, b"d");
        for i in 0..300 {
            fs::write(place.path(&format!("d/stays{i}")), b"").unwrap();
            fs::write(place.path(&format!("d/goes{i}")), b"").unwrap();
        }
        let (mut round, mut last) = (0, Vec::new());
        let seen = walk(&mut user, dir, 7, |user, _| {
            // By us and by others; also the entry of the cookie that is next.
            let _ = user.remove(dir, format!("goes{round}").as_bytes());
            let _ = fs::remove_file(place.path(&format!("d/goes{}", 299 - round)));
            let _ = user.create(dir, format!("new{round}").as_bytes(), New::Guarded, mode(0));
            let listing = user.list(dir, 0, 1).unwrap();
            last.push(listing.last().unwrap());
            if round % 5 == 0 {
                let name = listing.iter().next().unwrap().1;
                if name.starts_with(b"goes") {
                    user.remove(dir, name).unwrap();
                }
            }
            round += 1;
        });
        for i in 0..300 {
            let name = format!("stays{i}").into_bytes();
            let count = seen.iter().filter(|(_, _, seen)| *seen == name).count();
            assert_eq!(count, 1, "{i}");
        }
        let cookies: HashSet<u64> = seen.iter().map(|&(cookie, ..)| cookie).collect();
        assert_eq!(cookies.len(), seen.len());
        // They hold over a restart, and are checked.
        let (cookie, ..) = seen[seen.len() / 2];
        let rest = user.list(dir, cookie, 10_000).unwrap();
        drop(user);
        drop(fs);
        let fs = place.open();
        let mut user = User::root(&fs);
        assert_eq!(user.list(dir, cookie, 10_000).unwrap().len(), rest.len());
        for cookie in [1, 2] {
            assert_eq!(user.list(dir, cookie, 10), Err(Error::BadCookie));
        }
        let readdir = |cookie, verifier, name_bytes_max| FsOp::Readdir {
            dir,
            cookie,
            verifier,
            entries_max: 10,
            name_bytes_max,
            with_attrs: false,
        };
        let verifier = fs.info().instance;
        assert_eq!(
            user.run(readdir(cookie, verifier ^ 1, 1000)),
            Err(Error::NotSame)
        );
        assert_eq!(user.run(readdir(0, 0, 3)), Err(Error::TooSmall));
    }
}

trait Last {
    fn last(&self) -> Option<u64>;
}

impl Last for store::fs::Listing {
    fn last(&self) -> Option<u64> {
        self.iter().last().map(|(entry, _)| entry.cookie)
    }
}

fn large(files: usize) {
    let place = Place::new();
    let fs = place.open();
    let mut user = User::root(&fs);
    let top = user.top();
    for i in 0..files {
        fs::write(place.path(&format!("file-{i}")), b"").unwrap();
    }
    let mut numbers = Vec::new();
    for _ in 0..2 {
        let start = Instant::now();
        let seen = walk(&mut user, top, 1000, |_, _| {});
        eprintln!("{files} entries listed in {:?}", start.elapsed());
        let names: HashSet<&[u8]> = seen.iter().map(|(.., name)| &name[..]).collect();
        assert_eq!((seen.len(), names.len()), (files, files));
        numbers.push(
            seen.iter()
                .map(|&(_, file, _)| file)
                .collect::<HashSet<_>>(),
        );
    }
    assert_eq!(numbers[0].len(), files);
    assert_eq!(numbers[0], numbers[1], "the same numbers each time");
    drop(user);
    drop(fs);
    let start = Instant::now();
    let fs = place.open();
    eprintln!("opened again in {:?}", start.elapsed());
    let mut user = User::root(&fs);
    let top = user.top();
    for i in (0..files).step_by(files / 100) {
        let file = user.lookup(top, format!("file-{i}").as_bytes()).unwrap();
        assert!(numbers[0].contains(&file));
    }
}

#[test]
fn listing_of_a_large_directory_has_every_name_once() {
    large(20_000);
}

/// To be run by itself, for its figures.
#[test]
#[ignore = "takes a million files"]
fn listing_of_a_million_files_has_every_name_once() {
    large(1_000_000);
}
