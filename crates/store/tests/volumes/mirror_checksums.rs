//! Mirrors of checksummed volumes: each block is read from a leg that has it right, and copied to
//! those that have not.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use store::{Error, Io, Kind, Spec, Volume, open, open_over};

use crate::checksummed::{WRONG, flip};
use crate::common::*;
use crate::compare::compare;
use crate::fake::*;
use crate::mirror::{S, settle, words};

pub const SIZE: u64 = 1 << 20;

/// A file volume with checksums, which is a leg of a mirror.
fn leg_of(folder: &Path, leg: usize) -> Arc<dyn Volume> {
    let name = format!("leg{leg}");
    let kind = Kind::file(folder.join(&name));
    let checksum = true;
    open(&Spec {
        checksum,
        ..Spec::new(name, kind, SIZE, 512)
    })
    .unwrap()
}

/// A mirror of two of them, and where they lie.
pub fn mirror_of(folder: &Path) -> (Arc<dyn Volume>, impl Fn(usize) -> PathBuf) {
    let spec = Spec {
        state: Some(folder.join("state")),
        ..Spec::new("disk", Kind::mirror(&["leg0", "leg1"]), SIZE, 512)
    };
    let legs = (0..2).map(|leg| leg_of(folder, leg)).collect();
    let volume = open_over(&spec, legs).unwrap();
    let folder = folder.to_owned();
    (volume, move |leg| folder.join(format!("leg{leg}")))
}

#[test]
fn mirror_reads_another_leg_and_mends_the_one_that_has_other_data() {
    let folder = tempfile::tempdir().unwrap();
    let (volume, path) = mirror_of(folder.path());
    let mut files = Fake::default();
    write(&*volume, &mut files, 0, &[7; 4096], true).unwrap();
    // Both have alone what lies beside that.
    flip(&path(0), 700, 1);
    flip(&path(1), 2100, 1);
    for _ in 0..4 {
        assert_eq!(read(&*volume, &mut files, 512, 512).unwrap(), [7; 512]);
        assert_eq!(read(&*volume, &mut files, 2048, 512).unwrap(), [7; 512]);
    }
    let status = volume.as_mirror().unwrap().status();
    assert!(status.is_whole(), "no leg lacks anything: {status:?}");
    settle(&*volume, &mut files, 10 * S);
    for leg in 0..2 {
        let mended = fs::read(path(leg)).unwrap();
        assert!(mended[..4096] == [7; 4096] && mended[4096..] == vec![0; SIZE as usize - 4096]);
    }
    let mismatches = || -> u64 {
        let legs = volume.as_mirror().unwrap().volumes();
        legs.iter()
            .map(|leg| leg.stats().errors.checksum_mismatch)
            .sum()
    };
    let before = mismatches();
    assert!(before >= 2);
    for _ in 0..4 {
        assert_eq!(read(&*volume, &mut files, 0, 4096).unwrap(), [7; 4096]);
    }
    assert_eq!(mismatches(), before);
    // What no leg has is an error, and the rest of it is mended all the same.
    flip(&path(0), 700, 1);
    flip(&path(1), 700, 1);
    flip(&path(1), 2100, 1);
    assert_eq!(read(&*volume, &mut files, 512, 512).map(drop), WRONG);
    for _ in 0..4 {
        assert_eq!(read(&*volume, &mut files, 1024, 2048).unwrap(), [7; 2048]);
    }
    settle(&*volume, &mut files, 100 * S);
    assert_eq!(fs::read(path(1)).unwrap()[2048..4096], [7; 2048]);
}

#[test]
fn mirror_reads_what_each_leg_has_of_a_range_that_none_has_as_a_whole() {
    let folder = tempfile::tempdir().unwrap();
    let (volume, path) = mirror_of(folder.path());
    let mut files = Fake::default();
    write(&*volume, &mut files, 0, &[7; 65536], true).unwrap();
    flip(&path(0), 700, 1);
    flip(&path(1), 2100, 1);
    flip(&path(0), 60_000, 1);
    assert!(read(&*volume, &mut files, 0, 65536).unwrap() == [7; 65536]);
    run(&*volume, &mut files, compare(0, &[7; 4096])).unwrap();
    settle(&*volume, &mut files, 10 * S);
    for leg in 0..2 {
        assert!(fs::read(path(leg)).unwrap()[..65536] == [7; 65536]);
    }
    // A block that no leg has is an error, and no other one.
    flip(&path(0), 700, 1);
    flip(&path(1), 700, 1);
    assert_eq!(read(&*volume, &mut files, 0, 4096).map(drop), WRONG);
    assert_eq!(read(&*volume, &mut files, 1024, 4096).unwrap(), [7; 4096]);
}

#[test]
fn leg_gets_what_it_lacks_from_the_leg_that_has_it_right() {
    let folder = tempfile::tempdir().unwrap();
    let (volume, path) = mirror_of(folder.path());
    let mut files = Fake::default();
    write(&*volume, &mut files, 0, &[7; 65536], true).unwrap();
    flip(&path(0), 700, 1);
    flip(&path(1), 60_000, 1);
    let mirror = volume.as_mirror().unwrap();
    let mut legs = mirror.volumes();
    legs.push(leg_of(folder.path(), 2));
    mirror.set_legs(legs).unwrap();
    settle(&*volume, &mut files, 10 * S);
    assert!(fs::read(path(2)).unwrap()[..65536] == [7; 65536]);
    assert!(volume.as_mirror().unwrap().status().is_whole());
}

#[test]
fn leg_that_was_out_comes_back_whatever_its_first_block_holds() {
    for is_marked in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let (volume, path) = mirror_of(folder.path());
        let mut files = Fake::default();
        write(&*volume, &mut files, 0, &[7; 65536], true).unwrap();
        let (offset, len) = (0, 512);
        match is_marked {
            true => run(&*volume, &mut files, Io::MarkUnreadable { offset, len }).unwrap(),
            false => flip(&path(1), 10, 1),
        }
        files.faults.extend([Fault::None, Fault::Errno(libc::EIO)]);
        write(&*volume, &mut files, 4096, &[8; 512], false).unwrap();
        assert_eq!(words(&*volume), ["in-sync", "out"]);
        settle(&*volume, &mut files, 20 * S);
        assert_eq!(words(&*volume), ["in-sync", "in-sync"]);
        let told = read(&*volume, &mut files, 0, 512);
        match is_marked {
            true => assert_eq!(told, Err(Error::Unreadable)),
            false => assert_eq!(told.unwrap(), [7; 512]),
        }
        let there = fs::read(path(1)).unwrap();
        assert!(there[4096..4608] == [8; 512] && there[4608..65536] == [7; 65536 - 4608]);
    }
}
