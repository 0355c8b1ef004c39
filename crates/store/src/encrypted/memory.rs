//! Memory that what is written is enciphered into: some of each volume, in parts of one size,
//! so that a volume whose disk hangs costs no other any.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use mem::{BufRange, Region};
use reactor::Ticket;

/// Bytes of a part. Larger writes go through it piece by piece.
pub(super) const PART_BYTES: u32 = 128 << 10;

/// Parts of a volume. They take memory as they are used.
const PARTS: u32 = 64;

/// See the module.
pub(super) struct CipherMemory {
    region: Region,
    parts: Mutex<Parts>,
}

struct Parts {
    /// The number used last is used next: its memory is warm.
    free: Vec<u32>,
    /// Callers that a part was kept for, and who have not come for it yet.
    called: usize,
    waiting: VecDeque<Ticket>,
}

impl CipherMemory {
    pub(super) fn new() -> io::Result<Arc<CipherMemory>> {
        let bytes = u64::from(PARTS) * u64::from(PART_BYTES);
        Ok(Arc::new(CipherMemory {
            region: Region::small_pages(bytes)?,
            parts: Mutex::new(Parts {
                free: (0..PARTS).rev().collect(),
                called: 0,
                waiting: VecDeque::new(),
            }),
        }))
    }

    fn parts(&self) -> MutexGuard<'_, Parts> {
        self.parts.lock().expect("nothing panics under this lock")
    }

    /// A part that is free; without one the caller is called when there is one for it, and
    /// comes for it with [`CipherMemory::take_called`].
    pub(super) fn take(self: &Arc<Self>, caller: impl FnOnce() -> Ticket) -> Option<MemoryPart> {
        let mut parts = self.parts();
        if parts.free.len() > parts.called {
            let number = parts.free.pop()?;
            return Some(self.part(number));
        }
        parts.waiting.push_back(caller());
        None
    }

    /// The part of one that was called.
    pub(super) fn take_called(self: &Arc<Self>) -> MemoryPart {
        let mut parts = self.parts();
        parts.called -= 1;
        let number = parts.free.pop().expect("one was kept for it");
        self.part(number)
    }

    fn part(self: &Arc<Self>, number: u32) -> MemoryPart {
        let memory = Arc::clone(self);
        MemoryPart { memory, number }
    }

    fn give_back(&self, number: u32) {
        let mut parts = self.parts();
        parts.free.push(number);
        let caller = parts.waiting.pop_front();
        parts.called += usize::from(caller.is_some());
        drop(parts);
        if let Some(caller) = caller {
            caller.ring();
        }
    }
}

/// A part that is in use. It is given back when this is dropped.
pub(super) struct MemoryPart {
    memory: Arc<CipherMemory>,
    number: u32,
}

impl MemoryPart {
    /// Its first bytes.
    pub(super) fn range(&self, len: u32) -> BufRange {
        let offset = u64::from(self.number) * u64::from(PART_BYTES);
        self.memory.region.range(offset, len)
    }
}

impl std::fmt::Debug for MemoryPart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MemoryPart({})", self.number)
    }
}

impl Drop for MemoryPart {
    fn drop(&mut self) {
        self.memory.give_back(self.number);
    }
}
