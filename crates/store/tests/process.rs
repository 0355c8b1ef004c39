//! What only other processes and mounts can show: data outlives a kill, and a
//! full disk.

mod common;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use common::*;
use needs::each_driver;
use reactor::Choice;
use store::{Error, Io, Problem, open};

const SIZE: u64 = 64 << 10;

const CHILD_PATH: &str = "WEFT_TEST_CHILD_PATH";
const CHILD_DRIVER: &str = "WEFT_TEST_CHILD_DRIVER";

/// Not a test of its own: what the child process of the tests below does.
#[test]
#[ignore = "run by other tests in a process of its own"]
fn child() {
    let Some(path) = std::env::var_os(CHILD_PATH).map(PathBuf::from) else {
        return;
    };
    let volume = open(&file_spec(&path, SIZE)).unwrap();
    let choice = match std::env::var(CHILD_DRIVER).as_deref() {
        Ok("io_uring") => Choice::Uring,
        _ => Choice::Epoll,
    };
    let mut files = Real::open(choice);
    write(&*volume, &mut files, 0, &[1; 4096], true).unwrap();
    write(&*volume, &mut files, 4096, &[2; 4096], false).unwrap();
    run(&*volume, &mut files, Io::Flush).unwrap();
    println!("\nREADY");
    std::io::stdout().flush().unwrap();
    loop {
        std::thread::park();
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

fn start_child(path: &Path, choice: Choice) -> Server {
    let driver = match choice {
        Choice::Uring => "io_uring",
        _ => "epoll",
    };
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "child", "--nocapture"])
        .env(CHILD_PATH, path)
        .env(CHILD_DRIVER, driver)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let server = Server(child);
    let mut lines = lines.map_while(Result::ok);
    assert!(lines.any(|line| line == "READY"), "the child died early");
    server
}

#[each_driver]
fn flushed_and_durable_data_outlives_a_killed_process(choice: Choice) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    let server = start_child(&path, choice);
    let error = open(&file_spec(&path, SIZE)).err().expect("it is locked");
    let Problem::InUse { holder, .. } = error.problem else {
        panic!("{error}");
    };
    if let Some(pid) = holder {
        assert_eq!(pid, server.0.id());
        let text = error.to_string();
        assert!(text.contains(&format!("process {pid}: stop")), "{text}");
    }
    // SIGKILL.
    drop(server);
    // The lock went with the process, or with its ring, which the kernel takes down after it.
    let deadline = Instant::now() + Duration::from_secs(30);
    let volume = loop {
        match open(&file_spec(&path, SIZE)) {
            Ok(volume) => break volume,
            Err(error) => {
                let is_held = matches!(error.problem, Problem::InUse { .. });
                assert!(is_held && Instant::now() < deadline, "{error}");
                sleep(Duration::from_millis(10));
            }
        }
    };
    let mut files = Real::open(Choice::Epoll);
    assert_eq!(read(&*volume, &mut files, 0, 4096).unwrap(), [1; 4096]);
    assert_eq!(read(&*volume, &mut files, 4096, 4096).unwrap(), [2; 4096]);
    assert_eq!(read(&*volume, &mut files, 8192, 4096).unwrap(), [0; 4096]);
}

/// A mount that goes away with the test.
struct Mount(tempfile::TempDir);

impl Mount {
    fn tmpfs(options: &str) -> Mount {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", options, "weft-test"]);
        let done = command.arg(folder.path()).status().expect("mount runs");
        assert!(done.success(), "mount: {done}");
        Mount(folder)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[each_driver(mount)]
fn a_full_disk_fails_writes_until_there_is_room(choice: Choice) {
    let mount = Mount::tmpfs("size=256k");
    let files = &mut Real::open(choice);
    let volume = open(&file_spec(&mount.0.path().join("disk"), 1 << 20)).unwrap();
    let part = 64 << 10;
    let mut written = 0;
    let full = loop {
        match write(&*volume, files, written, &[1; 64 << 10], true) {
            Ok(()) => written += part,
            Err(error) => break error,
        }
    };
    assert!(matches!(full, Error::OutOfSpace(store::Errno::NOSPC)));
    assert!((part..=256 << 10).contains(&written), "{written}");
    assert_eq!(volume.stats().errors.out_of_space, 1);
    // Neighbours in the same file, flushes and reads are not harmed.
    run(&*volume, files, Io::Flush).unwrap();
    write(&*volume, files, 0, &[2; 512], true).unwrap();
    assert_eq!(read(&*volume, files, 0, 512).unwrap(), [2; 512]);
    let (offset, len) = (0, part);
    run(&*volume, files, Io::Deallocate { offset, len }).unwrap();
    write(&*volume, files, written, &[3; 4096], true).unwrap();
    assert_eq!(read(&*volume, files, written, 4096).unwrap(), [3; 4096]);
    assert_eq!(volume.stats().errors.total(), 1);
}
