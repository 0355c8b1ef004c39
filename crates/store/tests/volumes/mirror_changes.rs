//! Mirrors that become others while they serve or between two starts: legs that go and come,
//! sizes, backups, encryption.

use store::{Io, encrypted};

use crate::common::*;
use crate::encrypted::by;
use crate::fake::*;
use crate::mirror::*;

/// An encrypted mirror is a mirror, and does what a mirror does by itself.
#[test]
fn leg_of_an_encrypted_mirror_gets_what_it_lacks() {
    let room = Room::new(2);
    let volume = encrypted(room.open(), &by(1), None).unwrap();
    let mut files = Fake::default();
    files.faults.extend([Fault::None, Fault::Errno(libc::EIO)]);
    write(&*volume, &mut files, 0, &[1; 4096], false).unwrap();
    assert_eq!(words(&*volume), ["in-sync", "out"]);
    assert!(volume.has_upkeep());
    settle(&*volume, &mut files, 20 * S);
    assert_eq!(words(&*volume), ["in-sync", "in-sync"]);
    assert_eq!(room.bytes(0), room.bytes(1));
    run(&*volume, &mut files, Io::Flush).unwrap();
    for _ in 0..2 {
        assert_eq!(read(&*volume, &mut files, 0, 4096).unwrap(), [1; 4096]);
    }
}
