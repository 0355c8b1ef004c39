//! `dir` through its trait: beside `mem`, over restarts and kills, behind its
//! back, and against whoever would lead it out of its directory.

mod behind;
mod data;
mod escape;
mod idle;
mod listing;
mod open;
mod owners;
mod restart;
mod same;
mod threads;
#[path = "../files/user.rs"]
mod user;

use std::cell::Cell;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use reactor::{AnyDriver, Choice, Completion, Driver, DriverConfig, FileIo, Token, Wait};
use store::fs::{
    Attr, Dir, DirError, DirProblem, DirSpec, Error, FileId, FileSystem, Kind, New, Op, Output,
    Owners, SetAttr,
};
use tempfile::TempDir;
use user::*;

thread_local! {
    /// What users of this thread get.
    static CHOICE: Cell<Choice> = const { Cell::new(Choice::Epoll) };
}

/// One of the reactor's drivers.
struct Real {
    driver: AnyDriver,
    done: Vec<Completion>,
}

fn turns() -> Box<dyn Turns> {
    let pool = mem::Pool::new(mem::Budget::new(64 << 20)).unwrap();
    let driver = reactor::open(CHOICE.get(), &DriverConfig::default(), pool);
    Box::new(Real {
        driver: driver.unwrap(),
        done: Vec::new(),
    })
}

impl Turns for Real {
    fn io(&mut self) -> &mut dyn FileIo {
        &mut self.driver
    }
    fn completion(&mut self) -> (Token, io::Result<u32>) {
        loop {
            match self.done.pop() {
                Some(Completion::File { token, result }) => return (token, result),
                Some(_) => panic!("a completion that nobody asked for"),
                None => {
                    let for_ever = Wait::Until(u64::MAX);
                    self.driver.poll(for_ever, &mut self.done).unwrap();
                }
            }
        }
    }
}

/// A directory that is served, and where its state lies.
struct Place {
    served: TempDir,
    state: TempDir,
    owners: Option<Owners>,
}

impl Place {
    /// In memory where that can be had: nothing is waited for.
    fn new() -> Place {
        let served = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        Place {
            served: served.unwrap(),
            ..Place::on_disk()
        }
    }

    fn on_disk() -> Place {
        let state = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        Place {
            served: tempfile::tempdir().unwrap(),
            state: state.unwrap(),
            owners: None,
        }
    }

    fn recorded() -> Place {
        Place {
            owners: Some(Owners::Recorded),
            ..Place::new()
        }
    }

    fn spec(&self) -> DirSpec {
        DirSpec {
            name: "files".into(),
            path: self.served.path().into(),
            state: self.state.path().into(),
            read_only: false,
            owners: self.owners,
        }
    }

    fn open(&self) -> Dir {
        Dir::open(&self.spec()).unwrap()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.served.path().join(name)
    }
}

/// Whether this may give files away: most tests as they run in a container.
fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self").unwrap().uid() == 0
}

/// Says that a test could not run here, past the capture of its output.
fn skipped(why: &str) {
    let line = format!("SKIPPED: {why}\n");
    io::stderr().write_all(line.as_bytes()).unwrap();
}
