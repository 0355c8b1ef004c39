//! Files whose data goes past the page cache.

use super::*;
use cached::cached_bytes;
use mem::BufRange;
use reactor::{DiskFile, FallocateMode, Ticket};
use rustix::fs::{OFlags, fcntl_getfl};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const BYTES: usize = 256 << 10;

/// On the disk of the build: the folder for temporary files may be memory.
fn direct_place() -> Place {
    let program = std::env::current_exe().unwrap();
    Place {
        served: tempfile::tempdir_in(program.parent().unwrap()).unwrap(),
        direct: true,
        ..Place::on_disk()
    }
}

#[needs(build_on_disk, program("fincore"))]
#[each_driver]
fn aligned_data_goes_past_the_page_cache_and_other_data_through_it(choice: Choice) {
    CHOICE.set(choice);
    let place = direct_place();
    let fs = place.open();
    let mut user = User::root(&fs);
    let top = user.top();
    let file = user.file(top, b"f");
    let path = place.path("f");
    user.write(file, 4096, &[1; 8192]).unwrap();
    let read = user.read(file, 0, 16_384).unwrap();
    assert_eq!(read, ([vec![0; 4096], vec![1; 8192]].concat(), true));
    assert_eq!(cached_bytes(&path), 0);
    user.write(file, 4100, &[2; 100]).unwrap();
    assert_eq!(cached_bytes(&path), 4096);
    // Of a page that one client writes in part through the cache another writes nothing past it,
    // even where the disk has smaller sectors.
    user.write(file, 4608, &[5; 512]).unwrap();
    assert_eq!(cached_bytes(&path), 4096);
    // What the cache has is as new as what goes past it, and is told of.
    user.write(file, 4096, &[3; 4096]).unwrap();
    assert_eq!(user.read(file, 4100, 10).unwrap(), (vec![3; 10], false));
    assert_eq!(fs::read(&path).unwrap()[4096..8192], [3; 4096]);
    // As large as what is written, no larger.
    user.write(file, 12_288, &[4; 100]).unwrap();
    assert_eq!(user.attr(file).unwrap().size, 12_388);
}

#[needs(build_on_disk)]
#[each_driver]
fn direct_data_is_what_was_written_last(choice: Choice) {
    CHOICE.set(choice);
    let place = direct_place();
    let fs = place.open();
    let mut user = User::root(&fs);
    let top = user.top();
    let file = user.file(top, b"f");
    user.open(file).unwrap();
    let mut model = Vec::new();
    let mut random = Random::new(0x5eed);
    for _ in 0..300 {
        let unit = random.pick(&[1, 512, 4096]);
        let offset = random.below((BYTES / unit) as u64) as usize * unit;
        let len = (1 + random.below((65_536 / unit) as u64) as usize) * unit;
        if random.below(2) == 0 {
            let bytes = bytes(&mut random, len);
            let written = user.write(file, offset as u64, &bytes).unwrap();
            assert_eq!(written.len as usize, len);
            model.resize(model.len().max(offset + len), 0);
            model[offset..offset + len].copy_from_slice(&bytes);
        } else {
            let end = model.len().min(offset + len);
            let expected = model.get(offset..end).unwrap_or_default();
            let (found, is_end) = user.read(file, offset as u64, len as u32).unwrap();
            assert!(found == expected, "{offset} {len}");
            assert_eq!(is_end, offset + len >= model.len(), "{offset} {len}");
        }
    }
    assert!(fs::read(place.path("f")).unwrap() == model);
}

/// A kernel that refuses what goes past the page cache, after an open that it has not refused.
struct Refuses {
    real: Box<dyn Files>,
    /// The operation under way is refused.
    is_refused: bool,
    refused: Arc<AtomicUsize>,
}

impl Refuses {
    fn is_direct(&mut self, file: &Arc<DiskFile>, token: Token) -> bool {
        self.is_refused = fcntl_getfl(file).unwrap().contains(OFlags::DIRECT);
        if self.is_refused {
            self.refused.fetch_add(1, Ordering::Relaxed);
            self.real.io().ticket(token).ring();
        }
        self.is_refused
    }
}

impl Files for Refuses {
    fn io(&mut self) -> &mut dyn FileIo {
        self
    }

    fn completion(&mut self) -> (Token, io::Result<u32>) {
        let (token, result) = self.real.completion();
        match std::mem::take(&mut self.is_refused) {
            true => (token, Err(rustix::io::Errno::INVAL.into())),
            false => (token, result),
        }
    }
}

impl FileIo for Refuses {
    fn read_at(&mut self, file: &Arc<DiskFile>, buf: BufRange, offset: u64, token: Token) {
        if !self.is_direct(file, token) {
            self.real.io().read_at(file, buf, offset, token);
        }
    }

    fn write_at(
        &mut self,
        file: &Arc<DiskFile>,
        buf: BufRange,
        offset: u64,
        durable: bool,
        token: Token,
    ) {
        if !self.is_direct(file, token) {
            self.real.io().write_at(file, buf, offset, durable, token);
        }
    }

    fn sync_data(&mut self, file: &Arc<DiskFile>, token: Token) {
        self.real.io().sync_data(file, token);
    }

    fn fallocate(
        &mut self,
        file: &Arc<DiskFile>,
        mode: FallocateMode,
        offset: u64,
        len: u64,
        token: Token,
    ) {
        self.real.io().fallocate(file, mode, offset, len, token);
    }

    fn ticket(&mut self, token: Token) -> Ticket {
        self.real.io().ticket(token)
    }

    fn cancel_file(&mut self, token: Token) {
        self.real.io().cancel_file(token);
    }
}

#[needs(build_on_disk)]
#[each_driver]
fn data_that_the_kernel_does_not_move_past_the_page_cache_goes_through_it(choice: Choice) {
    CHOICE.set(choice);
    let place = direct_place();
    let fs = place.open();
    let mut user = User::root(&fs);
    let refused = Arc::new(AtomicUsize::new(0));
    user.files = Box::new(Refuses {
        real: turns(),
        is_refused: false,
        refused: refused.clone(),
    });
    let top = user.top();
    let file = user.file(top, b"f");
    user.open(file).unwrap();
    for part in 0..3 {
        let written = user.write(file, part * 4096, &[1; 4096]).unwrap();
        assert_eq!(written.len, 4096);
    }
    assert_eq!(user.read(file, 0, 8192).unwrap(), (vec![1; 8192], false));
    assert_eq!(refused.load(Ordering::Relaxed), 1);
    let other = user.file(top, b"g");
    fs::write(place.path("g"), [2; 4096]).unwrap();
    assert_eq!(user.read(other, 0, 4096).unwrap(), (vec![2; 4096], true));
    assert_eq!(refused.load(Ordering::Relaxed), 2);
}
