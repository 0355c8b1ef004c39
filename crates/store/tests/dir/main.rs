//! `dir` through its trait: beside `mem`, over restarts and kills, while local
//! processes change its directory, and against attempts to lead it out of that.

mod acls;
mod behind;
#[path = "../common/cached.rs"]
mod cached;
mod data;
mod direct;
mod escape;
#[path = "../common/files.rs"]
mod files;
mod idle;
mod listing;
mod open;
mod owners;
mod quotas;
#[path = "../common/real.rs"]
mod real;
mod restart;
mod same;
mod stable;
mod threads;
#[path = "../common/tree.rs"]
mod tree;
#[path = "../files/user.rs"]
mod user;

use std::cell::Cell;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use files::Files;
use needs::{each_driver, needs};
use random::Random;
use reactor::{Choice, FileIo, Token};
use real::Real;
use store::fs::{
    Acls, Attr, Dir, DirError, DirProblem, DirSpec, Error, FileId, FileSystem, FsOp, New,
    ObjectKind, Output, Owners, SetAttr,
};
use tempfile::TempDir;
use user::*;

thread_local! {
    /// What users of this thread get.
    static CHOICE: Cell<Choice> = const { Cell::new(Choice::Epoll) };
}

fn turns() -> Box<dyn Files> {
    Box::new(Real::open(CHOICE.get()))
}

/// A directory that is served, and where its state lies.
struct Place {
    served: TempDir,
    state: TempDir,
    owners: Option<Owners>,
    acls: Option<Acls>,
    direct: bool,
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
            acls: None,
            direct: false,
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
            acls: self.acls,
            direct: self.direct,
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
