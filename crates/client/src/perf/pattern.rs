//! Blocks that say themselves whether they are what was written.
//!
//! A block: magic (8), byte offset on the namespace (8), generation (4),
//! filling that differs by both, and at the end the CRC32C of all before it
//! (4); little endian.

use mem::BufRange;
use random::Random;

/// "weftperf".
const MAGIC: u64 = 0x6672_6570_7466_6577;
const HEADER_BYTES: usize = 20;
const CRC_BYTES: u32 = 4;

/// What is wrong with a block that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// The bytes do not belong together.
    Checksum,
    /// It was never written by a load with `--verify` of this block size.
    NotOurs,
    /// Another block's content: the offset for which it was written.
    Offset(u64),
    /// Content from another time: the generation found.
    Generation(u32),
}

impl std::fmt::Display for Mismatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Mismatch::Checksum => f.write_str("its checksum is wrong"),
            Mismatch::NotOurs => f.write_str("it was not written by --verify with this --bs"),
            Mismatch::Offset(offset) => write!(f, "it was written for offset {offset}"),
            Mismatch::Generation(found) => write!(f, "it holds generation {found}"),
        }
    }
}

/// Fills and checks blocks; holds one block's worth of scratch.
#[derive(Debug)]
pub struct BlockPattern {
    scratch: Vec<u8>,
}

impl BlockPattern {
    /// For blocks of `block_bytes`, at least 512.
    #[must_use]
    pub fn new(block_bytes: u32) -> Self {
        BlockPattern {
            scratch: vec![0; (block_bytes - CRC_BYTES) as usize],
        }
    }

    /// Makes `block` the content of byte `offset` in `generation`.
    pub fn fill(&mut self, block: BufRange, offset: u64, generation: u32) {
        let (header, filling) = self.scratch.split_at_mut(HEADER_BYTES);
        header[..8].copy_from_slice(&MAGIC.to_le_bytes());
        header[8..16].copy_from_slice(&offset.to_le_bytes());
        header[16..].copy_from_slice(&generation.to_le_bytes());
        let mut random = Random::new(offset ^ u64::from(generation) << 40);
        for word in filling.chunks_mut(8) {
            word.copy_from_slice(&random.next_u64().to_le_bytes()[..word.len()]);
        }
        let end = block.len() - CRC_BYTES;
        let crc = mem::copy_in_crc(block.slice(0, end), &self.scratch, 0);
        mem::copy_in(block.slice(end, CRC_BYTES), &crc.to_le_bytes());
    }

    /// Whether `block` is what [`BlockPattern::fill`] made for `offset`, and for
    /// `generation` where one is given.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(block: BufRange, offset: u64, generation: Option<u32>) -> Result<(), Mismatch> {
        let mut header = [0; HEADER_BYTES];
        mem::copy_out(block.slice(0, HEADER_BYTES as u32), &mut header);
        let word = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("8 bytes"));
        let found = u32::from_le_bytes(header[16..].try_into().expect("4 bytes"));
        if word(0) != MAGIC {
            return Err(Mismatch::NotOurs);
        }
        let end = block.len() - CRC_BYTES;
        let mut crc = [0; CRC_BYTES as usize];
        mem::copy_out(block.slice(end, CRC_BYTES), &mut crc);
        if mem::crc32c(block.slice(0, end), 0) != u32::from_le_bytes(crc) {
            return Err(Mismatch::Checksum);
        }
        if word(8) != offset {
            return Err(Mismatch::Offset(word(8)));
        }
        match generation {
            Some(wanted) if wanted != found => Err(Mismatch::Generation(found)),
            _ => Ok(()),
        }
    }
}

/// What is known of the blocks of one job: whether an I/O uses each, and what it
/// holds.
#[derive(Debug)]
pub struct Ledger {
    /// Generation last written, 0 if never; the top bit while an I/O is under way.
    blocks: Vec<u32>,
    /// Where a read-back stands.
    cursor: usize,
}

const BUSY: u32 = 1 << 31;

impl Ledger {
    /// `blocks` blocks of which nothing is known.
    #[must_use]
    pub fn new(blocks: usize) -> Self {
        Ledger {
            blocks: vec![0; blocks],
            cursor: 0,
        }
    }

    /// Takes `wanted`, or the next block after it that no I/O is using. There
    /// must be one.
    pub fn take(&mut self, wanted: u64) -> u64 {
        let count = self.blocks.len();
        let first = wanted as usize;
        let free = (first..count)
            .chain(0..first)
            .find(|i| self.blocks[*i] & BUSY == 0);
        let free = free.expect("fewer I/Os than blocks");
        self.blocks[free] |= BUSY;
        free as u64
    }

    /// The generation that a block held, or will hold, when it was taken.
    #[must_use]
    pub fn generation(&self, block: u64) -> u32 {
        self.blocks[block as usize] & !BUSY
    }

    /// Gives a block back, holding `generation` (0: unknown).
    pub fn put(&mut self, block: u64, generation: u32) {
        self.blocks[block as usize] = generation & !BUSY;
    }

    /// Takes the next written block of a read-back from the first to the last.
    pub fn take_written(&mut self) -> Option<u64> {
        while let Some(entry) = self.blocks.get_mut(self.cursor) {
            self.cursor += 1;
            if *entry != 0 && *entry & BUSY == 0 {
                *entry |= BUSY;
                return Some(self.cursor as u64 - 1);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mem::Region;

    #[test]
    fn every_kind_of_damage_is_told_apart() {
        let region = Region::anonymous(8192).expect("memory");
        let (a, b) = (region.range(0, 4096), region.range(4096, 4096));
        let mut pattern = BlockPattern::new(4096);
        assert_eq!(BlockPattern::check(a, 0, None), Err(Mismatch::NotOurs));
        pattern.fill(a, 8192, 7);
        assert_eq!(BlockPattern::check(a, 8192, Some(7)), Ok(()));
        assert_eq!(BlockPattern::check(a, 8192, None), Ok(()));
        assert_eq!(
            BlockPattern::check(a, 8192, Some(8)),
            Err(Mismatch::Generation(7))
        );
        assert_eq!(
            BlockPattern::check(a, 4096, Some(7)),
            Err(Mismatch::Offset(8192))
        );
        pattern.fill(b, 8192, 8);
        assert!(
            !mem::equal(a.slice(20, 4000), b.slice(20, 4000)),
            "fillings differ"
        );
        // Half of each: a torn write.
        mem::copy(a.slice(2048, 2048), b.slice(2048, 2048));
        assert_eq!(
            BlockPattern::check(a, 8192, Some(7)),
            Err(Mismatch::Checksum)
        );
        mem::copy_in(b.slice(4000, 1), &[0x55]);
        mem::copy_in(b.slice(4001, 1), &[0xaa]);
        assert_eq!(
            BlockPattern::check(b, 8192, Some(8)),
            Err(Mismatch::Checksum)
        );
    }

    #[test]
    fn a_block_has_one_io_at_a_time() {
        let mut ledger = Ledger::new(3);
        assert_eq!(ledger.take(1), 1);
        assert_eq!(ledger.take(1), 2);
        assert_eq!(ledger.take(1), 0);
        ledger.put(2, 5);
        assert_eq!(ledger.generation(2), 5);
        assert_eq!(ledger.take(0), 2);
        ledger.put(2, 6);
        ledger.put(0, 0);
        ledger.put(1, 1);
        assert_eq!(ledger.take_written(), Some(1));
        assert_eq!(ledger.take_written(), Some(2));
        assert_eq!(ledger.take_written(), None);
        assert_eq!(ledger.generation(2), 6);
    }
}
