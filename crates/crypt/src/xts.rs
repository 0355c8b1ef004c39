//! AES-256-XTS (IEEE Std 1619-2018) over the blocks of a volume: each logical block is a data
//! unit, and its number the tweak.
//!
//! A sector of which every byte is zero as it lies on the disk was never written, or was
//! deallocated: it is left as it is and reads as zeros. No plaintext becomes such a sector but
//! by a chance of one in 2^4096. Sectors, not blocks: where the power fails in the first write
//! of a block, those that are not there read as what was there before.

use std::fmt;
use std::os::raw::c_int;
use std::ptr::{NonNull, null, null_mut};
use std::sync::{Mutex, PoisonError};

use aws_lc_sys as lc;
use faults::Fault;
use mem::BufRange;
use zeroize::Zeroize;

/// Bytes of a data key: one key for the data, and one for the tweak.
pub const DATA_KEY_BYTES: usize = 64;

/// Bytes of a sector: disks write one whole or not at all.
const SECTOR_BYTES: u32 = 512;

/// Bytes of a tweak.
const TWEAK_BYTES: usize = 16;

/// What the blocks of a volume are enciphered by. Nothing shows it, and it is wiped.
#[derive(Clone, PartialEq, Eq)]
pub struct DataKey([u8; DATA_KEY_BYTES]);

impl DataKey {
    /// That of random bytes; `None` if their halves are the same (IEEE Std 1619-2018,
    /// section 5.1: the keys of an XTS-AES key are different).
    #[must_use]
    pub fn new(bytes: [u8; DATA_KEY_BYTES]) -> Option<DataKey> {
        let key = DataKey(bytes);
        let (data, tweak) = key.0.split_at(DATA_KEY_BYTES / 2);
        (data != tweak).then_some(key)
    }

    pub(crate) fn bytes(&self) -> &[u8; DATA_KEY_BYTES] {
        &self.0
    }
}

impl Drop for DataKey {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for DataKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DataKey(..)")
    }
}

/// A data key that is at work, on any number of threads.
pub struct Xts {
    key: DataKey,
    /// Schedules of the key that no thread is at: as many of each as were ever at work at a
    /// time.
    encrypting: Schedules,
    decrypting: Schedules,
}

impl Xts {
    /// By this key.
    #[must_use]
    pub fn new(key: DataKey) -> Xts {
        Xts {
            key,
            encrypting: Schedules::new(CipherDirection::Encrypt),
            decrypting: Schedules::new(CipherDirection::Decrypt),
        }
    }

    /// Enciphers whole blocks of `block_bytes`, of which the first has the number `first`, from
    /// `from` to `to`: the same bytes, or others. Panics if their lengths differ or are no
    /// whole blocks.
    pub fn encrypt(&self, from: BufRange, to: BufRange, block_bytes: u32, first: u64) {
        self.encrypting.with(&self.key, |schedule| {
            schedule.each_block((from, to), block_bytes, first);
        });
    }

    /// Deciphers whole blocks where they lie, but for sectors that were never written.
    pub fn decrypt(&self, data: BufRange, block_bytes: u32, first: u64) {
        self.decrypting.with(&self.key, |schedule| {
            schedule.each_block((data, data), block_bytes, first);
        });
    }
}

/// Which direction a schedule works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CipherDirection {
    Encrypt,
    Decrypt,
}

struct Schedules {
    direction: CipherDirection,
    idle: Mutex<Vec<Schedule>>,
}

impl Schedules {
    fn new(direction: CipherDirection) -> Schedules {
        let idle = Mutex::default();
        Schedules { direction, idle }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Schedule>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with(&self, key: &DataKey, work: impl FnOnce(&mut Schedule)) {
        let idle = self.idle().pop();
        let mut schedule = idle.unwrap_or_else(|| Schedule::new(key, self.direction));
        work(&mut schedule);
        self.idle().push(schedule);
    }
}

/// The schedule of a key for one direction.
struct Schedule {
    context: NonNull<lc::EVP_CIPHER_CTX>,
    direction: CipherDirection,
}

// SAFETY: the context is plain memory of its own, used by one thread at a time.
unsafe impl Send for Schedule {}

impl Schedule {
    fn new(key: &DataKey, direction: CipherDirection) -> Schedule {
        // SAFETY: a new context is taken by nothing else.
        let context = NonNull::new(unsafe { lc::EVP_CIPHER_CTX_new() });
        let mut schedule = Schedule {
            context: context.expect("memory for a key"),
            direction,
        };
        schedule.init(Some(key), None);
        schedule
    }

    /// Takes a key, or the tweak of the next block.
    fn init(&mut self, key: Option<&DataKey>, tweak: Option<&[u8; TWEAK_BYTES]>) {
        let encrypts = c_int::from(self.direction == CipherDirection::Encrypt);
        let bytes = key.map_or(null(), |key| key.bytes().as_ptr());
        let tweak = tweak.map_or(null(), |tweak| tweak.as_ptr());
        // SAFETY: the cipher is static, the key as long as it reads (64 bytes), and so is the
        // tweak (16); without a cipher and a key those that the context has stay.
        let ok = unsafe {
            let cipher = key.map_or(null(), |_| lc::EVP_aes_256_xts());
            let context = self.context.as_ptr();
            lc::EVP_CipherInit_ex(context, cipher, null_mut(), bytes, tweak, encrypts)
        };
        assert!(ok == 1, "a key or a tweak that the cipher takes");
    }

    fn each_block(&mut self, (from, to): (BufRange, BufRange), block_bytes: u32, first: u64) {
        assert!(from.len() == to.len() && from.len().is_multiple_of(block_bytes));
        let blocks = (0..from.len()).step_by(block_bytes as usize);
        for (at, number) in blocks.zip(first..) {
            let (from, to) = (from.slice(at, block_bytes), to.slice(at, block_bytes));
            let tweak = u128::from(number).to_le_bytes();
            match self.direction {
                CipherDirection::Encrypt => self.block(from, to, &tweak),
                CipherDirection::Decrypt => self.written_block(from, &tweak),
            }
        }
    }

    /// A block where it lies, but for sectors that were never written.
    fn written_block(&mut self, data: BufRange, tweak: &[u8; TWEAK_BYTES]) {
        let sectors = data.len() / SECTOR_BYTES;
        let sector = |at| data.slice(at * SECTOR_BYTES, SECTOR_BYTES);
        let is_blank = |at| mem::is_zero(sector(at)) && !faults::is(Fault::DecipherHoles);
        let blank = (0..sectors).filter(|&at| is_blank(at));
        let blank = blank.fold(0u32, |blank, at| blank | 1 << at);
        if blank.count_ones() == sectors {
            return;
        }
        self.block(data, data, tweak);
        let blank = (0..sectors).filter(|at| blank >> at & 1 != 0);
        blank.for_each(|at| mem::zero(sector(at)));
    }

    fn block(&mut self, from: BufRange, to: BufRange, tweak: &[u8; TWEAK_BYTES]) {
        self.init(None, Some(tweak));
        self.update(from, to);
    }

    fn update(&mut self, from: BufRange, to: BufRange) {
        let mut len = 0;
        // SAFETY: both ranges can be read and written for their length, which is the same, as
        // long as the process lives; they are the same memory or do not overlap.
        let ok = unsafe {
            lc::EVP_CipherUpdate(
                self.context.as_ptr(),
                to.as_ptr(),
                &raw mut len,
                from.as_ptr(),
                from.len() as c_int,
            )
        };
        assert!(ok == 1 && len as u32 == from.len(), "a block");
    }
}

impl Drop for Schedule {
    fn drop(&mut self) {
        // SAFETY: it is ours, and used no more; its memory is wiped.
        unsafe { lc::EVP_CIPHER_CTX_free(self.context.as_ptr()) };
    }
}

#[cfg(test)]
mod tests;
