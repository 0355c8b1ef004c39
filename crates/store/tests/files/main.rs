//! File systems through their trait: what clients see of them, against a model,
//! by many threads at once, and what it costs.

mod content;
mod counts;
#[path = "../common/files.rs"]
mod files;
mod labels;
mod limits;
mod model;
mod names;
mod quotas;
mod threads;
#[path = "../common/tree.rs"]
mod tree;
mod units;
mod user;

use std::io;
use std::sync::Arc;

use files::Files;
use mem::BufRange;
use random::Random;
use reactor::{Bell, Completion, DiskFile, FallocateMode, FileIo, Ticket, Token};
use store::fs::{
    Attr, Error, FileId, FileSystem, FsOp, Listing, Memory, New, Output, Progress, Removable,
    SetAttr, Time,
};
use user::*;

/// Counts for the tests that nothing is allocated.
#[global_allocator]
static ALLOCATOR: mem::counters::CountingAllocator = mem::counters::CountingAllocator;

/// A reactor of which nothing is wanted but tickets.
struct Tickets(Arc<Bell>);

fn turns() -> Box<dyn Files> {
    Box::new(Tickets(Bell::new(None)))
}

impl Files for Tickets {
    fn io(&mut self) -> &mut dyn FileIo {
        self
    }
    fn completion(&mut self) -> (Token, io::Result<u32>) {
        let mut out = Vec::new();
        self.0.take(&mut out);
        match out.pop() {
            Some(Completion::File { token, result }) if out.is_empty() => (token, result),
            other => panic!("one completion for a task: {other:?}"),
        }
    }
}

impl FileIo for Tickets {
    fn read_at(&mut self, _: &Arc<DiskFile>, _: BufRange, _: u64, _: Token) {
        panic!("memory reads no file")
    }
    fn write_at(&mut self, _: &Arc<DiskFile>, _: BufRange, _: u64, _: bool, _: Token) {
        panic!("memory writes no file")
    }
    fn sync_data(&mut self, _: &Arc<DiskFile>, _: Token) {
        panic!("memory syncs no file")
    }
    fn fallocate(&mut self, _: &Arc<DiskFile>, _: FallocateMode, _: u64, _: u64, _: Token) {
        panic!("memory changes no file")
    }
    fn ticket(&mut self, token: Token) -> Ticket {
        self.0.ticket(token)
    }
    fn cancel_file(&mut self, _: Token) {}
}

fn memory(size_bytes: u64) -> Memory {
    Memory::new("files", size_bytes, 77, Time::default()).unwrap()
}

/// Content that is gone with its process is not taken for what was written.
#[test]
fn verifier_is_of_the_instance() {
    let verifier = |instance| {
        let fs = Memory::new("files", 1 << 20, instance, at(0)).unwrap();
        (fs.verifier(), fs.info().verifier)
    };
    assert_eq!(verifier(77), (77, 77));
    assert_eq!(verifier(78), (78, 78));
}

#[test]
fn a_file_system_that_is_too_small_is_refused() {
    assert!(Memory::new("x", 1, 1, at(0)).is_err());
    let fs = memory(1 << 20);
    let mut user = User::root(&fs);
    let root = user.attr(user.top()).unwrap();
    assert_eq!((root.mode, root.links, root.uid), (0o1777, 2, 0));
    assert_eq!(user.statfs().bytes, 1 << 20);
}
