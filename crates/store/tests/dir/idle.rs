//! Without requests a file system keeps no thread, timer or spare descriptor.

use super::*;
use std::process::Command;
use std::time::{Duration, Instant};

const CHILD: &str = "WEFT_TEST_DIR_IDLE";

fn threads() -> usize {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    // One that ends meanwhile is none.
    let name = |task: io::Result<fs::DirEntry>| {
        let comm = task.ok()?.path().join("comm");
        fs::read_to_string(comm).ok()
    };
    let names = tasks.filter_map(name);
    names.filter(|name| name.trim() == "weft-dir").count()
}

/// Descriptors beneath the directory, but for its own.
fn descriptors(place: &Place) -> usize {
    let fds = fs::read_dir("/proc/self/fd").unwrap();
    let targets = fds.filter_map(|fd| fs::read_link(fd.ok()?.path()).ok());
    let inside = |target: &PathBuf| target.starts_with(place.path("d"));
    targets.filter(inside).count()
}

/// Not a test of its own: counts need a process of their own.
#[test]
#[ignore = "run by another test in a process of its own"]
fn child() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let place = Place::new();
    let fs = place.open();
    assert_eq!(threads(), 0, "none before there is work");
    let mut user = User::root(&fs);
    let top = user.top();
    let dir = user.dir(top, b"d");
    let files: Vec<FileId> = (0..20)
        .map(|i| {
            let file = user.file(dir, format!("f{i}").as_bytes());
            user.write(file, 0, b"x").unwrap();
            file
        })
        .collect();
    user.list(dir, 0, 5).unwrap();
    user.open(files[0]).unwrap();
    let change = user.attr(files[3]).unwrap().change;
    assert!(threads() > 0 && descriptors(&place) > 1);
    let give_up = Instant::now() + Duration::from_secs(30);
    while threads() > 0 || descriptors(&place) > 1 {
        assert!(
            Instant::now() < give_up,
            "{} {}",
            threads(),
            descriptors(&place)
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    // What is open stays so, and all goes on as before.
    assert_eq!(descriptors(&place), 1);
    assert_eq!(user.attr(files[3]).unwrap().change, change);
    assert_eq!(user.read(files[7], 0, 9).unwrap().0, b"x");
    println!("\nALL WELL");
}

#[test]
fn idle_file_system_ends_its_threads_and_closes_its_descriptors() {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "idle::child", "--nocapture"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("ALL WELL"), "{said}\n{errors}");
}
