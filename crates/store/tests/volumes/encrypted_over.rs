//! Encrypted volumes that are made of others.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use store::{Io, Kind, Problem, Spec, Volume, open, open_over};

use crate::common::*;
use crate::encrypted::by;
use crate::fake::*;
use crate::mirror::{settle, words};

const SIZE: u64 = 1 << 20;
const S: u64 = 1_000_000_000;

/// File volumes of these names.
fn files_in(folder: &Path, names: &[&str]) -> Vec<Arc<dyn Volume>> {
    let file = |name: &&str| {
        let kind = Kind::file(folder.join(name));
        open(&Spec::new(*name, kind, SIZE, 512)).unwrap()
    };
    names.iter().map(file).collect()
}

/// A volume of that kind that is encrypted.
fn encrypted_in(folder: &Path, kind: Kind) -> Spec {
    Spec {
        state: Some(folder.join("all.state")),
        encryption: Some(by(1)),
        ..Spec::new("all", kind, 0, 512)
    }
}

#[test]
fn leg_of_an_encrypted_mirror_gets_what_it_lacks() {
    let folder = tempfile::tempdir().unwrap();
    let spec = encrypted_in(folder.path(), Kind::mirror(&["left", "right"]));
    let volume = open_over(&spec, files_in(folder.path(), &["left", "right"])).unwrap();
    assert!(volume.has_upkeep());
    let mut files = Fake::with(&[Fault::None, Fault::Errno(libc::EIO)]);
    write(&*volume, &mut files, 0, &[7; 4096], false).unwrap();
    assert_eq!(words(&*volume), ["in-sync", "out"]);
    run(&*volume, &mut files, Io::Flush).unwrap();
    settle(&*volume, &mut files, 20 * S);
    assert_eq!(words(&*volume), ["in-sync", "in-sync"]);
    let bytes = |name| fs::read(folder.path().join(name)).unwrap();
    assert!(bytes("left") == bytes("right"));
    assert!(bytes("right")[..512] != [7; 512], "it is enciphered");
    for _ in 0..4 {
        assert_eq!(read(&*volume, &mut files, 0, 4096).unwrap(), [7; 4096]);
    }
}

#[test]
fn mirror_of_which_a_leg_has_data_does_not_become_encrypted() {
    let folder = tempfile::tempdir().unwrap();
    let spec = encrypted_in(folder.path(), Kind::mirror(&["left", "right"]));
    let legs = files_in(folder.path(), &["left", "right"]);
    write(&*legs[1], &mut Fake::default(), 0, &[7; 512], true).unwrap();
    let told = open_over(&spec, legs).err().expect("it has data");
    assert!(matches!(told.problem, Problem::KeysMissing(_)), "{told}");
}

/// Its UUID and its state file are what they were, and it holds zeros.
#[test]
fn leg_that_gets_new_keys_is_copied_to_before_it_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let plain = |name: &str| Spec::new(name, Kind::file(at.join(name)), SIZE, 512);
    let mirror = Spec {
        state: Some(at.join("all.state")),
        ..Spec::new("all", Kind::mirror(&["left", "right"]), 0, 512)
    };
    let legs = |right: &Spec| vec![open(&plain("left")).unwrap(), open(right).unwrap()];
    let mut files = Fake::default();
    let volume = open_over(&mirror, legs(&plain("right"))).unwrap();
    write(&*volume, &mut files, 0, &[7; 4096], true).unwrap();
    drop(volume);
    let right = fs::OpenOptions::new()
        .write(true)
        .open(at.join("right"))
        .unwrap();
    right.set_len(0).unwrap();
    right.set_len(SIZE).unwrap();
    drop(right);
    let encrypted = Spec {
        encryption: Some(by(1)),
        ..plain("right")
    };
    let volume = open_over(&mirror, legs(&encrypted)).unwrap();
    assert_eq!(words(&*volume), ["in-sync", "behind"]);
    for _ in 0..4 {
        assert_eq!(read(&*volume, &mut files, 0, 4096).unwrap(), [7; 4096]);
    }
    settle(&*volume, &mut files, 20 * S);
    assert_eq!(words(&*volume), ["in-sync", "in-sync"]);
}
