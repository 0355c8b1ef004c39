//! Handles over restarts, kills and lost indexes.

use super::*;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

const CHILD: &str = "WEFT_TEST_DIR";

/// What is in the file of this number.
fn content(i: u64) -> Vec<u8> {
    format!("content of {i}").into_bytes()
}

fn check(user: &mut User<'_>, file: FileId, i: u64) {
    let (bytes, is_end) = user
        .read(file, 0, 100)
        .unwrap_or_else(|e| panic!("{i}: {e}"));
    assert!(is_end && bytes == content(i), "{i}");
}

#[test]
fn handles_hold_over_a_restart() {
    let place = Place::new();
    let (dir, inner, file, link, made, verifier, instance, key);
    {
        let fs = place.open();
        let mut user = User::root(&fs);
        let top = user.top();
        dir = user.dir(top, b"d");
        inner = user.dir(dir, &[b'n'; 255]);
        file = user.file(inner, b"f");
        user.write(file, 0, &content(1)).unwrap();
        let symlink = New::Symlink(b"../target");
        link = user.create(dir, b"l", symlink, mode(0o777)).unwrap().0.file;
        made = New::Exclusive(*b"verifier");
        user.create(dir, b"x", made, mode(0o600)).unwrap();
        (verifier, instance) = (fs.verifier(), fs.info().instance);
        key = fs.info().handle_key;
        assert_eq!(verifier, fs.info().verifier);
    }
    let fs = place.open();
    assert_eq!(fs.info().instance, instance);
    assert_eq!(fs.info().handle_key, key);
    assert_ne!(fs.verifier(), verifier);
    let mut user = User::root(&fs);
    // Without a lookup before.
    check(&mut user, file, 1);
    let top = user.top();
    assert_eq!(user.run(FsOp::Parent { dir: inner }), Ok(Output::File(dir)));
    assert_eq!(user.lookup(dir, &[b'n'; 255]), Ok(inner));
    assert_eq!(user.lookup(top, b"d"), Ok(dir));
    let text = user.run(FsOp::Readlink { file: link });
    assert_eq!(text, Ok(Output::Bytes((*b"../target").into())));
    let (_, is_new, _) = user.create(dir, b"x", made, mode(0o600)).unwrap();
    assert!(!is_new, "the verifier was forgotten");
    let other = user.create(dir, b"x", New::Exclusive(*b"another "), mode(0));
    assert_eq!(other.map(|_| ()), Err(Error::Exist));
    // Another directory with another state has another instance and another key.
    let other = Place::new().open();
    assert_ne!(other.info().instance, instance);
    assert_ne!(other.info().handle_key, key);
}

#[test]
fn numbers_are_not_used_again_after_a_restart() {
    let place = Place::new();
    let mut seen = std::collections::HashSet::new();
    let mut gone = Vec::new();
    for _ in 0..3 {
        let fs = place.open();
        let mut user = User::root(&fs);
        let top = user.top();
        for file in gone.drain(..) {
            assert_eq!(user.attr(file), Err(Error::Stale));
        }
        for _ in 0..50 {
            let file = user.file(top, b"x");
            assert!(seen.insert(file), "{file:?} was used before");
            gone.push(user.remove(top, b"x").unwrap());
            assert_eq!(user.attr(file), Err(Error::Stale));
        }
        for forged in [0, u64::MAX, 1 << 40, 4095] {
            assert_eq!(user.attr(FileId(forged)), Err(Error::Stale), "{forged}");
        }
    }
}

/// What was given out since the copy was made would be given out again.
#[test]
fn handles_are_those_of_no_other_file_after_a_backup_of_the_state_is_restored() {
    let place = Place::new();
    drop(place.open());
    let objects = place.state.path().join("objects");
    let backup = place.state.path().join("backup");
    fs::copy(&objects, &backup).unwrap();
    let (first, first_info) = {
        let fs = place.open();
        let mut user = User::root(&fs);
        let top = user.top();
        (user.file(top, b"first"), fs.info().clone())
    };
    fs::rename(&backup, &objects).unwrap();
    let (second, second_info) = {
        let fs = place.open();
        let mut user = User::root(&fs);
        let top = user.top();
        (user.file(top, b"second"), fs.info().clone())
    };
    assert_eq!(first, second, "it is about one number for two files");
    assert_ne!(first_info.instance, second_info.instance);
    assert_ne!(first_info.handle_key, second_info.handle_key);
    // From here on it is the table of this directory.
    let fs = place.open();
    assert_eq!(fs.info().instance, second_info.instance);
    assert_eq!(fs.info().handle_key, second_info.handle_key);
    let mut user = User::root(&fs);
    let top = user.top();
    assert_eq!(user.lookup(top, b"second"), Ok(second));
}

/// A crash of the machine may leave any index.
#[test]
fn a_lost_index_is_made_anew() {
    let place = Place::new();
    let files: Vec<FileId> = {
        let fs = place.open();
        let mut user = User::root(&fs);
        let top = user.top();
        let name = |i| format!("f{i}").into_bytes();
        let file = |i| user.file(top, &name(i));
        (0..100).map(file).collect()
    };
    let state = place.state.path();
    fs::write(state.join("index"), [0x55; 4096]).unwrap();
    // Not closed as it should be: as after a crash.
    let mut options = fs::OpenOptions::new();
    let objects = options.read(true).write(true).open(state.join("objects"));
    unclean(&objects.unwrap());
    let fs = place.open();
    let mut user = User::root(&fs);
    let top = user.top();
    for (i, file) in files.iter().enumerate() {
        assert_eq!(user.lookup(top, format!("f{i}").as_bytes()), Ok(*file));
    }
    assert!(user.file(top, b"new") > files[99]);
}

/// Takes away the word that all is well, and mends the checksum.
fn unclean(objects: &fs::File) {
    use std::os::unix::fs::FileExt;
    let mut header = [0; 128];
    objects.read_exact_at(&mut header, 0).unwrap();
    header[48] &= !2;
    let algorithm = crc_fast::CrcAlgorithm::Crc32Iscsi;
    let sum = crc_fast::checksum(algorithm, &header[4..]) as u32;
    header[..4].copy_from_slice(&sum.to_le_bytes());
    objects.write_all_at(&header, 0).unwrap();
}

/// Not a test of its own: makes and moves files until it is killed, and says
/// what is done.
#[test]
#[ignore = "run by another test in a process of its own"]
fn child() {
    let Some(paths) = std::env::var_os(CHILD) else {
        return;
    };
    let paths = paths.into_string().unwrap();
    let (served, state) = paths.split_once(':').unwrap();
    let spec = DirSpec {
        name: "files".into(),
        path: served.into(),
        state: state.into(),
        read_only: false,
        owners: None,
        acls: None,
        direct: false,
    };
    let fs = Dir::open(&spec).unwrap();
    let mut user = User::root(&fs);
    let top = user.top();
    let dirs = [user.dir(top, b"a"), user.dir(top, b"b")];
    println!();
    for i in 0.. {
        let name = format!("f{i}").into_bytes();
        let new = New::Exclusive(u64::to_be_bytes(i));
        let made = user.create(dirs[0], &name, new, mode(0o600));
        let file = made.unwrap().0.file;
        user.write(file, 0, &content(i)).unwrap();
        println!("file {i} {}", file.0);
        match i % 4 {
            0 => drop(user.rename((dirs[0], &name), (dirs[1], &name)).unwrap()),
            1 => {
                let link = FsOp::Link {
                    file,
                    dir: top,
                    name: &name,
                };
                user.run(link).unwrap();
                user.remove(dirs[0], &name).unwrap();
            }
            2 => {
                user.remove(dirs[0], &name).unwrap();
                println!("gone {i} {}", file.0);
            }
            _ => {}
        }
        // The directory itself moves, too.
        if i % 16 == 15 {
            let (from, to) = if i % 32 == 15 {
                (b"b", b"c")
            } else {
                (b"c", b"b")
            };
            user.rename((top, from), (top, to)).unwrap();
        }
    }
}

/// A child process that does not outlive its test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn handles_are_valid_after_the_process_is_killed() {
    for round in 0..5_usize {
        let place = Place::new();
        let paths = [place.served.path(), place.state.path()].map(Path::to_str);
        let paths = paths.map(Option::unwrap).join(":");
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "restart::child", "--nocapture"])
            .env(CHILD, paths)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let server = Server(child);
        let mut lines = lines.map_while(Result::ok);
        let said: Vec<String> = lines.by_ref().take(300 + 37 * round).collect();
        // SIGKILL, at any point of what it is doing; then what it had said.
        drop(server);
        let said: Vec<String> = said.into_iter().chain(lines).collect();
        look(&place, &said);
    }
}

fn look(place: &Place, said: &[String]) {
    let fs = place.open();
    let mut user = User::root(&fs);
    let mut last = None;
    let mut checked = 0;
    let numbers = |line: &str| {
        let mut words = line.split(' ').skip(1).map(|word| word.parse().ok());
        Some((words.next()??, FileId(words.next()??)))
    };
    let mut gone = std::collections::HashSet::new();
    for line in said.iter().filter(|line| line.starts_with("gone")) {
        gone.extend(numbers(line));
    }
    for line in said.iter().filter(|line| line.starts_with("file")) {
        // The last line may be cut off.
        let Some((i, file)) = numbers(line) else {
            continue;
        };
        let _ = last.insert(i);
        if gone.contains(&(i, file)) {
            assert_eq!(user.attr(file), Err(Error::Stale), "{i}");
            continue;
        }
        match user.attr(file) {
            // It was being removed.
            Err(Error::Stale) if i % 4 == 2 => {}
            found => {
                found.unwrap_or_else(|error| panic!("{i}: {error}"));
                check(&mut user, file, i);
                checked += 1;
            }
        }
    }
    assert!(checked > 100, "{checked} of {said:?}");
    // The last CREATE, sent again, finds its own file or makes one.
    let (top, next) = (user.top(), last.unwrap() + 1);
    let dir = user.lookup(top, b"a").unwrap();
    let again = New::Exclusive(u64::to_be_bytes(next));
    let name = format!("f{next}").into_bytes();
    let made = user.create(dir, &name, again, mode(0o600));
    made.expect("there is none, or its own");
}
