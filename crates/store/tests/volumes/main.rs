//! Volumes of every kind, through a file layer that fails on demand and through
//! the reactor's drivers.

#[path = "../common/cached.rs"]
mod cached;
#[path = "../common/mod.rs"]
mod common;

mod checksummed;
mod compare;
mod content;
mod direct;
mod encrypted;
mod encrypted_over;
mod fake;
mod faults;
mod identity;
mod mirror;
mod mirror_changes;
mod mirror_checksums;
mod opening;
mod over;
mod ram;
mod ranges;
mod remote;
mod resizing;
mod scrub;
mod snapshots;
mod stacked;

/// Counts for the test that nothing is allocated.
#[global_allocator]
static ALLOCATOR: mem::counters::CountingAllocator = mem::counters::CountingAllocator;

use std::path::PathBuf;
use std::sync::Arc;

use common::{Files, Real, file_spec};
use fake::Fake;
use reactor::Choice;
use store::{Volume, open};

/// The fake and a driver.
fn file_layers(choice: Choice) -> [Box<dyn Files>; 2] {
    [Box::new(Fake::default()), Box::new(Real::open(choice))]
}

/// A fresh folder with a file volume of `size_bytes` in it.
fn file_volume(size_bytes: u64) -> (tempfile::TempDir, PathBuf, Arc<dyn Volume>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    let volume = open(&file_spec(&path, size_bytes)).unwrap();
    (folder, path, volume)
}
