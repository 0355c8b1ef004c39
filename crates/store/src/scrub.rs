//! The scrub of a volume with checksums: how far it is, what it has found, and what a mirror is
//! to repair of that.
//!
//! It reads all blocks once, a chunk at a time (`checksummed/scrub.rs`), while hosts are served.
//! Blocks of a leg that are not what was written wait here for the mirror, which copies them from
//! another leg (`over/mirror/upkeep.rs`).

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use mem::Region;
use reactor::Nanos;
use tracing::{info, warn};

use crate::Range;
use crate::pace::pause_after;

/// Bytes that are read at a time at most.
const CHUNK_BYTES: u64 = 128 << 10;

/// Bytes that are read before the position is saved anew.
const SAVE_BYTES: u64 = 1 << 30;

/// Ranges that wait for the mirror at most; the scrub waits then.
const REPAIRS_MAX: usize = 1024;

/// Blocks that are named at most.
const NAMED_MAX: usize = 64;

/// Blocks that the event of the end names at most.
const TOLD_MAX: usize = 16;

/// First bytes of what is saved, with the version of its format.
const MAGIC: [u8; 8] = *b"scrub 1\n";

/// Bytes of what is saved: the magic, four numbers, the CRC32C of all that.
pub(crate) const SAVED_BYTES: usize = 44;

/// How a scrub stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScrubState {
    /// There was none yet.
    #[default]
    None,
    /// It goes on.
    Running,
    /// It goes on when it is resumed.
    Paused,
    /// It was ended before it had read all.
    Stopped,
    /// It has read all.
    Done,
}

impl ScrubState {
    const ALL: [ScrubState; 5] = [
        ScrubState::None,
        ScrubState::Running,
        ScrubState::Paused,
        ScrubState::Stopped,
        ScrubState::Done,
    ];

    /// One word for it.
    pub fn word(self) -> &'static str {
        match self {
            ScrubState::None => "none",
            ScrubState::Running => "running",
            ScrubState::Paused => "paused",
            ScrubState::Stopped => "stopped",
            ScrubState::Done => "done",
        }
    }
}

/// What is told of a scrub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScrubStatus {
    /// How it stands.
    pub state: ScrubState,
    /// Bytes of the volume that it has read, from the first on.
    pub position_bytes: u64,
    /// Blocks that it could not read, or that have another checksum than what was written.
    pub bad_blocks: u64,
    /// Of those, what was copied from another leg of the mirror.
    pub repaired_blocks: u64,
    /// The first of those that were not, by their LBA. None is known of what was found before a
    /// restart.
    pub bad_lbas: Vec<u64>,
    /// Bytes that are read in a second at most; 0: none.
    pub rate: u64,
    /// Bytes that scrubs have read since the volume was opened.
    pub read_bytes: u64,
}

/// What is asked of a scrub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScrubAction {
    /// It begins with the first block.
    Start,
    /// It reads nothing until it is resumed.
    Pause,
    /// It goes on where it was paused or stopped.
    Resume,
    /// It ends where it is.
    Stop,
}

/// The scrub of a volume.
#[derive(Debug)]
pub struct Scrub {
    volume: String,
    block_bytes: u64,
    rate: AtomicU64,
    read_bytes: AtomicU64,
    /// Mirrors that the volume is a leg of.
    mirrors: AtomicU32,
    now: Mutex<ScrubNow>,
}

#[derive(Debug, Default)]
struct ScrubNow {
    state: ScrubState,
    /// The first byte that is not read, and where that was when it was last saved.
    at: u64,
    saved_at: u64,
    is_saved: bool,
    /// Bytes that are read at a time now.
    chunk: u64,
    /// Bytes of the last chunk, as long as it pauses for it, and how long it has.
    paces: u64,
    paused: Nanos,
    bad: u64,
    repaired: u64,
    named: BTreeSet<u64>,
    /// What the mirror is to repair, and what it is at.
    repairs: VecDeque<Range>,
    repairing: Option<Range>,
    memory: Option<Region>,
}

/// What a scrub does next.
pub(crate) enum ScrubWork {
    /// Reads a range.
    Read(Range),
    /// Pauses.
    Pause(Nanos),
    /// Saves this beside the checksums.
    Save([u8; SAVED_BYTES]),
}

impl Scrub {
    /// Of a volume, as it was when it was saved.
    pub(crate) fn new(volume: &str, block_bytes: u32, rate: u64, saved: &[u8]) -> Scrub {
        Scrub {
            volume: volume.to_owned(),
            block_bytes: block_bytes.into(),
            rate: AtomicU64::new(rate),
            read_bytes: AtomicU64::new(0),
            mirrors: AtomicU32::new(0),
            now: Mutex::new(ScrubNow::of_bytes(saved).unwrap_or(ScrubNow {
                is_saved: true,
                chunk: CHUNK_BYTES,
                ..ScrubNow::default()
            })),
        }
    }

    fn now(&self) -> MutexGuard<'_, ScrubNow> {
        self.now.lock().expect("nothing panics under this lock")
    }

    /// Does what is asked; `false` where there is no such scrub: to pause or stop one that goes
    /// on, to resume one that does not, to start where none is under way.
    pub fn act(&self, action: ScrubAction) -> bool {
        use ScrubAction::{Pause, Resume, Start, Stop};
        use ScrubState::{Paused, Running, Stopped};
        let mut now = self.now();
        let to = match (action, now.state) {
            (Start, Running | Paused) => return false,
            (Start, _) | (Resume, Paused | Stopped) => Running,
            (Pause, Running) => Paused,
            (Stop, Running | Paused) => Stopped,
            _ => return false,
        };
        if action == Start {
            *now = ScrubNow {
                chunk: CHUNK_BYTES,
                ..ScrubNow::default()
            };
        }
        (now.state, now.is_saved) = (to, false);
        now.repairs.clear();
        match (action, to) {
            (_, Running) => info!(
                event = "scrub-begun",
                volume = self.volume,
                position_bytes = now.at,
                "a scrub reads all blocks of a volume"
            ),
            (Stop, _) => self.tell_end(&now),
            _ => {}
        }
        true
    }

    /// Reads so many bytes in a second at most from now on; 0: none.
    pub fn set_rate(&self, bytes: u64) {
        self.rate.store(bytes, Ordering::Relaxed);
    }

    /// How it stands.
    pub fn status(&self) -> ScrubStatus {
        let now = self.now();
        ScrubStatus {
            state: now.state,
            position_bytes: now.at,
            bad_blocks: now.bad,
            repaired_blocks: now.repaired,
            bad_lbas: now.named.iter().copied().collect(),
            rate: self.rate.load(Ordering::Relaxed),
            read_bytes: self.read_bytes.load(Ordering::Relaxed),
        }
    }

    /// The volume is a leg of one mirror more, which repairs what is found.
    pub(crate) fn add_mirror(&self) {
        self.mirrors.fetch_add(1, Ordering::Relaxed);
    }

    /// It is a leg of one mirror less.
    pub(crate) fn remove_mirror(&self) {
        self.mirrors.fetch_sub(1, Ordering::Relaxed);
        self.give_up_repairs();
    }

    /// The mirror repairs nothing now.
    pub(crate) fn give_up_repairs(&self) {
        let mut now = self.now();
        now.repairs.clear();
        now.repairing = None;
    }

    /// What the mirror is to repair next. What it was given before is repaired, or cannot be.
    pub(crate) fn next_repair(&self) -> Option<Range> {
        let mut now = self.now();
        now.repairing = now.repairs.pop_front();
        now.repairing
    }

    /// The mirror has written some of that anew.
    pub(crate) fn repaired(&self, Range { offset, len }: Range) {
        let mut now = self.now();
        let Some(of) = now.repairing else {
            return;
        };
        let (from, to) = (
            of.offset.max(offset),
            (of.offset + of.len).min(offset + len),
        );
        for block in from / self.block_bytes..to / self.block_bytes {
            now.repaired += 1;
            now.named.remove(&block);
        }
    }

    /// What there is to do now on a volume of this size, whose position can be saved or not.
    pub(crate) fn next_work(&self, size_bytes: u64, saves: bool) -> Option<ScrubWork> {
        let rate = self.rate.load(Ordering::Relaxed);
        let mut now = self.now();
        let waits = now.repairs.len() + usize::from(now.repairing.is_some());
        if now.state == ScrubState::Running && now.at >= size_bytes && waits == 0 {
            (now.state, now.is_saved) = (ScrubState::Done, false);
            self.tell_end(&now);
        }
        if now.state != ScrubState::Running {
            (now.memory, now.paces) = (None, 0);
        }
        if saves && (!now.is_saved || now.at - now.saved_at.min(now.at) >= SAVE_BYTES) {
            (now.is_saved, now.saved_at) = (true, now.at);
            return Some(ScrubWork::Save(now.bytes()));
        }
        if now.state != ScrubState::Running || rate == 0 {
            return None;
        }
        if let Some(pause) = (now.paces > 0).then(|| pause_after(now.paces, rate, now.paused)) {
            if let Some(pause) = pause {
                now.paused += pause;
                return Some(ScrubWork::Pause(pause));
            }
            now.paces = 0;
        }
        if now.at >= size_bytes || waits >= REPAIRS_MAX {
            return None;
        }
        let (offset, len) = (now.at, now.chunk.min(size_bytes - now.at));
        Some(ScrubWork::Read(Range { offset, len }))
    }

    /// Memory to read to.
    pub(crate) fn memory(&self) -> std::io::Result<Region> {
        match self.now().memory.take() {
            Some(memory) => Ok(memory),
            None => Region::small_pages(CHUNK_BYTES),
        }
    }

    /// A range is read, and these of its blocks are not what was written; so many others were not,
    /// and are repaired.
    pub(crate) fn has_read(&self, range: Range, (bad, repaired): (&[u64], u64), memory: Region) {
        self.read_bytes.fetch_add(range.len, Ordering::Relaxed);
        let mut now = self.now();
        now.memory = Some(memory);
        (now.paces, now.paused) = (range.len, 0);
        // It may have begun anew meanwhile.
        if now.state == ScrubState::Running && now.at == range.offset {
            now.at += range.len;
            now.chunk = CHUNK_BYTES;
            now.bad += repaired;
            now.repaired += repaired;
            self.note_bad(&mut now, bad);
        }
    }

    /// A range could not be read: its parts are, as far as they can be.
    pub(crate) fn could_not_read(&self, range: Range, memory: Region) {
        if range.len <= self.block_bytes {
            let bad = [range.offset / self.block_bytes];
            return self.has_read(range, (&bad, 0), memory);
        }
        let mut now = self.now();
        now.chunk = range.len / 2 / self.block_bytes * self.block_bytes;
        now.memory = Some(memory);
    }

    fn note_bad(&self, now: &mut ScrubNow, bad: &[u64]) {
        let repairs = self.mirrors.load(Ordering::Relaxed) > 0;
        for &block in bad {
            now.bad += 1;
            if now.named.len() < NAMED_MAX {
                now.named.insert(block);
            }
            let (offset, len) = (block * self.block_bytes, self.block_bytes);
            match now.repairs.back_mut() {
                _ if !repairs => {}
                Some(last) if last.offset + last.len == offset && last.len < CHUNK_BYTES => {
                    last.len += len;
                }
                _ => now.repairs.push_back(Range { offset, len }),
            }
        }
    }

    fn tell_end(&self, now: &ScrubNow) {
        let (state, blocks) = (now.state.word(), now.at / self.block_bytes);
        let (bad, repaired) = (now.bad, now.repaired);
        if bad == repaired {
            return info!(
                event = "scrub-ended",
                volume = self.volume,
                state,
                blocks,
                bad,
                repaired,
                "a scrub has ended, and all blocks that it has read are what was written"
            );
        }
        let first: Vec<_> = now
            .named
            .iter()
            .take(TOLD_MAX)
            .map(u64::to_string)
            .collect();
        warn!(
            event = "scrub-ended",
            volume = self.volume,
            state,
            blocks,
            bad,
            repaired,
            lbas = first.join(" "),
            "a scrub has ended, and some blocks cannot be read until they are written: bring them \
             back from a backup, and see to the disk"
        );
    }
}

impl ScrubNow {
    fn bytes(&self) -> [u8; SAVED_BYTES] {
        let mut bytes = [0; SAVED_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        let state = ScrubState::ALL
            .iter()
            .position(|state| *state == self.state);
        let numbers = [state.unwrap_or(0) as u64, self.at, self.bad, self.repaired];
        for (to, number) in bytes[8..40].chunks_exact_mut(8).zip(numbers) {
            to.copy_from_slice(&number.to_le_bytes());
        }
        let sum = mem::crc32c_bytes(&bytes[..40], 0);
        bytes[40..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// The same from there; `None` where nothing was saved, or it is damaged.
    fn of_bytes(bytes: &[u8]) -> Option<ScrubNow> {
        let bytes: &[u8; SAVED_BYTES] = bytes.try_into().ok()?;
        let sum = mem::crc32c_bytes(&bytes[..40], 0).to_le_bytes();
        if bytes[..8] != MAGIC || bytes[40..] != sum {
            return None;
        }
        let number = |n: usize| {
            let number = bytes[8 + 8 * n..][..8].try_into().expect("eight bytes");
            u64::from_le_bytes(number)
        };
        Some(ScrubNow {
            state: *ScrubState::ALL.get(usize::try_from(number(0)).ok()?)?,
            // Of whole chunks, whatever the size of a block.
            at: number(1) / CHUNK_BYTES * CHUNK_BYTES,
            saved_at: number(1),
            is_saved: true,
            chunk: CHUNK_BYTES,
            bad: number(2),
            repaired: number(3),
            ..ScrubNow::default()
        })
    }
}
