//! Files that go past the page cache, and files that have all their space.

use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use needs::{each_driver, needs};
use reactor::Choice;
use store::{Direct, Io, Spec, Volume, open};

use crate::cached::cached_bytes;
use crate::common::*;
use crate::content::{SIZE, compare_with_model};

/// On the disk of the build: the folder for temporary files may be memory.
fn direct_file() -> (tempfile::TempDir, Arc<dyn Volume>) {
    let program = std::env::current_exe().unwrap();
    let folder = tempfile::tempdir_in(program.parent().unwrap()).unwrap();
    let spec = Spec {
        direct: Direct::Always,
        block_bytes: 4096,
        ..file_spec(&folder.path().join("disk"), SIZE)
    };
    let volume = open(&spec).unwrap();
    (folder, volume)
}

/// A write and a read of what begins so many bytes into a page.
fn write_and_read(volume: &dyn Volume, files: &mut dyn Files, at: usize, byte: u8) {
    let memory = buffer(3 * 4096);
    let buf = memory.slice(at as u32, 4096);
    mem::copy_in(buf, &[byte; 4096]);
    let (offset, durable) = (8192, false);
    run(
        volume,
        files,
        Io::Write {
            offset,
            buf,
            durable,
        },
    )
    .unwrap();
    let back = memory.slice(4096 + at as u32, 4096);
    run(volume, files, Io::Read { offset, buf: back }).unwrap();
    let mut bytes = [0; 4096];
    mem::copy_out(back, &mut bytes);
    assert_eq!(bytes, [byte; 4096]);
}

#[needs(build_on_disk, program("fincore"))]
#[each_driver]
fn aligned_memory_goes_past_the_page_cache_and_other_memory_through_it(choice: Choice) {
    let (folder, volume) = direct_file();
    let mut files = Real::open(choice);
    let path = folder.path().join("disk");
    write_and_read(&*volume, &mut files, 0, 1);
    assert_eq!(cached_bytes(&path), 0);
    write_and_read(&*volume, &mut files, 24, 2);
    assert_eq!(cached_bytes(&path), 4096);
    // What the cache has is as new as what goes past it.
    write_and_read(&*volume, &mut files, 0, 3);
    let bytes = read(&*volume, &mut files, 8192, 4096).unwrap();
    assert_eq!(bytes, [3; 4096]);
}

#[needs(build_on_disk)]
#[each_driver]
fn direct_file_holds_what_was_written(choice: Choice) {
    let (_folder, volume) = direct_file();
    compare_with_model(&*volume, &mut Real::open(choice), 300, 0x5eed);
}

#[needs(build_on_disk)]
#[test]
fn preallocated_file_has_all_its_space_whatever_is_done_to_it() {
    let program = std::env::current_exe().unwrap();
    let folder = tempfile::tempdir_in(program.parent().unwrap()).unwrap();
    let path = folder.path().join("disk");
    let spec = Spec {
        preallocate: true,
        ..file_spec(&path, SIZE)
    };
    let volume = open(&spec).unwrap();
    let allocated = || std::fs::metadata(&path).unwrap().blocks() * 512;
    assert!(!volume.info().is_thin && allocated() >= SIZE);
    let mut files = Real::open(Choice::Epoll);
    write(&*volume, &mut files, 0, &[1; 8192], false).unwrap();
    let (offset, len) = (4096, 8192);
    run(&*volume, &mut files, Io::Deallocate { offset, len }).unwrap();
    assert_eq!(read(&*volume, &mut files, offset, 4096).unwrap(), [1; 4096]);
    for deallocate in [false, true] {
        let durable = false;
        let zero = Io::Zero {
            offset,
            len,
            deallocate,
            durable,
        };
        run(&*volume, &mut files, zero).unwrap();
        assert_eq!(read(&*volume, &mut files, offset, 8192).unwrap(), [0; 8192]);
        assert!(allocated() >= SIZE);
    }
    volume.resize(2 * SIZE, false).unwrap();
    assert!(allocated() >= 2 * SIZE);
}
