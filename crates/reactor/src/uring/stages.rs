//! Stages that the kernel picks from when bytes arrive for a socket that holds
//! none: a small buffer ring, so that they stay in cache.

use super::ring::Ring;
use io_uring::types::BufRingEntry;
use mem::{Pool, Region, Stage};
use std::io;
use std::sync::atomic::{AtomicU16, Ordering};

/// The only buffer group.
pub(super) const GROUP: u16 = 0;
/// Stages in the ring at most.
const ENTRIES: u16 = 32;
/// Stages in the ring at first; doubled when they did not suffice.
const OFFERED_MIN: u16 = 4;

pub(super) struct Stages {
    /// The ring, shared with the kernel.
    memory: Region,
    tail: u16,
    lent: [Option<Stage>; ENTRIES as usize],
    free: Vec<u16>,
    wanted: u16,
}

impl Stages {
    /// Registers an empty ring. The memory must outlive the registration.
    pub(super) fn register(ring: &Ring) -> io::Result<Stages> {
        let memory = Region::anonymous(4096)?;
        let at = memory.range(0, 4096).as_ptr() as u64;
        // SAFETY: page-aligned memory that stays mapped for ever.
        unsafe {
            ring.submitter()
                .register_buf_ring_with_flags(at, ENTRIES, GROUP, 0)?;
        }
        Ok(Stages {
            memory,
            tail: 0,
            lent: [const { None }; ENTRIES as usize],
            free: (0..ENTRIES).rev().collect(),
            wanted: OFFERED_MIN,
        })
    }

    fn offered(&self) -> u16 {
        ENTRIES - self.free.len() as u16
    }

    /// Offers stages up to the wanted number; whether there is at least one.
    #[inline]
    pub(super) fn refill(&mut self, pool: &Pool) -> bool {
        while self.offered() < self.wanted {
            let Some(stage) = pool.stage() else {
                return self.offered() > 0;
            };
            self.offer(stage);
        }
        true
    }

    /// Keeps what is lent to the kernel from ever going back to the pool.
    pub(super) fn lose(&mut self) {
        std::mem::forget(std::mem::replace(
            &mut self.lent,
            [const { None }; ENTRIES as usize],
        ));
    }

    /// They did not suffice.
    pub(super) fn grow(&mut self) {
        self.wanted = (self.wanted * 2).min(ENTRIES);
    }

    fn offer(&mut self, mut stage: Stage) {
        let id = self.free.pop().expect("never offers more than ENTRIES");
        let base = self.memory.range(0, 4096).as_ptr().cast::<BufRingEntry>();
        let next = self.tail.wrapping_add(1);
        // SAFETY: the entry is inside the ring and not the kernel's until the tail, which
        // lies there too and which the kernel reads, moves past it.
        unsafe {
            let entry = &mut *base.add(usize::from(self.tail & (ENTRIES - 1)));
            entry.set_addr(stage.spare_ptr() as u64);
            entry.set_len(stage.room() as u32);
            entry.set_bid(id);
            let tail = &*BufRingEntry::tail(base).cast::<AtomicU16>();
            tail.store(next, Ordering::Release);
        }
        self.tail = next;
        self.lent[usize::from(id)] = Some(stage);
    }

    /// The kernel put `len` bytes into the stage that it calls `id`.
    #[inline]
    pub(super) fn take(&mut self, id: u16, len: usize) -> Stage {
        let mut stage = self.lent[usize::from(id)]
            .take()
            .expect("the kernel names a stage that it was lent");
        self.free.push(id);
        stage.advance(len);
        stage
    }
}
