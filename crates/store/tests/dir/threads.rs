//! Many at once.

use super::*;
use std::collections::HashMap;
use std::thread;
use std::time::Instant;
use store::fs::{Caller, Progress, Task};
use tree::{check_tree, remove_all};

#[test]
fn threads_that_change_the_same_names_leave_a_sound_tree() {
    let place = Place::new();
    let fs = place.open();
    thread::scope(|scope| {
        for seed in 0..4 {
            let fs = &fs;
            scope.spawn(move || {
                let (mut user, mut random) = (User::root(fs), Random::new(seed));
                let mut known = vec![user.top()];
                let names = [b"a", b"b", b"c", b"d"];
                for _ in 0..1000 {
                    let (dir, to) = (random.pick(&known), random.pick(&known));
                    let (name, other) = (random.pick(&names), random.pick(&names));
                    match random.below(8) {
                        0 | 1 => {
                            let made = user.create(dir, name, New::Directory, mode(0o755));
                            known.extend(made.map(|made| made.0.file));
                        }
                        2 => {
                            let made = user.create(dir, name, New::Unchecked, mode(0o644));
                            if let Ok((attr, ..)) = made {
                                known.push(attr.file);
                                let _ = user.write(attr.file, random.below(4000), b"bytes");
                            }
                        }
                        3 => drop(user.remove(dir, name)),
                        4 => {
                            let file = random.pick(&known);
                            let _ = user.run(FsOp::Link { file, dir, name });
                        }
                        5 => {
                            if let Ok(listing) = user.list(dir, 0, 10) {
                                known.extend(listing.iter().map(|(entry, _)| entry.file));
                            }
                        }
                        _ => drop(user.rename((dir, name), (to, other))),
                    }
                    if known.len() > 40 {
                        known.truncate(30);
                    }
                }
            });
        }
    });
    let mut user = User::root(&fs);
    let dirs = check_tree(&mut user).len();
    drop(user);
    drop(fs);
    // What the table says is what there is.
    let fs = place.open();
    let mut user = User::root(&fs);
    assert_eq!(check_tree(&mut user).len(), dirs);
    let top = user.top();
    remove_all(&mut user, top);
    assert_eq!(check_tree(&mut user).len(), 1);
}

/// Creates so many files with so many outstanding, and removes them.
fn many(place: &Place, files: u64, outstanding: u64) {
    let fs = place.open();
    let mut reactor = turns();
    let caller = Caller {
        uid: 0,
        gid: 0,
        gids: &[],
        now: at(1),
        is_open: false,
        from: store::fs::Asker::default(),
    };
    let dir = fs.root();
    for is_new in [true, false] {
        let start = Instant::now();
        let mut tasks: HashMap<Token, Task> = HashMap::new();
        let (mut begun, mut done) = (0, 0);
        while done < files {
            let mut progress = None;
            if begun < files && (tasks.len() as u64) < outstanding {
                let name = format!("file-{begun}").into_bytes();
                let (new, set) = (New::Guarded, mode(0o600));
                let op = match is_new {
                    true => FsOp::Create {
                        dir,
                        name: &name,
                        new,
                        set,
                    },
                    false => FsOp::Remove {
                        dir,
                        name: &name,
                        what: store::fs::Removable::Any,
                    },
                };
                let started = fs.start(&caller, op, reactor.io(), begun);
                progress = Some((begun, started));
                begun += 1;
            }
            let (token, progress) = progress.unwrap_or_else(|| {
                let (token, result) = reactor.completion();
                let task = tasks.remove(&token).expect("it is under way");
                (token, fs.resume(task, result, reactor.io(), token))
            });
            match progress {
                Progress::Pending(task) => drop(tasks.insert(token, task)),
                Progress::Done(result) => {
                    result.unwrap();
                    done += 1;
                }
            }
        }
        let each = start.elapsed() / files as u32;
        let what = if is_new { "created" } else { "removed" };
        eprintln!("{files} files {what} with {outstanding} outstanding: {each:?} each");
        let names = fs::read_dir(place.served.path()).unwrap().count() as u64;
        assert_eq!(names, if is_new { files } else { 0 });
    }
}

#[test]
fn many_operations_are_under_way_at_once() {
    many(&Place::new(), 300, 100);
}

/// To be run by itself, for its figures.
#[test]
#[ignore = "takes long on a disk"]
fn many_outstanding_operations_on_a_disk_are_answered() {
    for (files, outstanding) in [(500, 1), (5000, 8), (10_000, 64), (20_000, 256)] {
        many(&Place::on_disk(), files, outstanding);
    }
    many(&Place::new(), 50_000, 1);
    many(&Place::new(), 50_000, 64);
}
