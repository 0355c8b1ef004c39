//! What a snapshot holds.

use store::Range;

use super::{HostWork, seen};
use crate::checker::{CheckedOp, OpKind, SeenBlock, Verdict};
use crate::content::SECTOR_BYTES;

/// What a volume promises to read in one step.
const ATOMIC_BYTES: usize = 1 << 20;

impl HostWork {
    /// A snapshot that was made just now holds `bytes`: what a read of all blocks finds at
    /// this moment. No read finds what is `spoiled`.
    pub fn has_snapshot(&mut self, volume: usize, bytes: &[u8], spoiled: &[Range]) -> Verdict {
        let served = &self.volumes[volume];
        let block_bytes = served.block_bytes as usize;
        let blocks = served.blocks.min((bytes.len() / block_bytes) as u64);
        let is_whole = |block: &u64| {
            let (from, len) = (block * block_bytes as u64, block_bytes as u64);
            let overlaps =
                |range: &Range| range.offset < from + len && from < range.offset + range.len;
            !spoiled.iter().any(overlaps)
        };
        // Content of these names other places.
        let mut first = self.plan.stage_blocks();
        while first < blocks {
            let run = (first..blocks).take_while(is_whole);
            let run = run.take(ATOMIC_BYTES / block_bytes).count();
            if run > 0 {
                let from = first as usize * block_bytes;
                let part = &bytes[from..from + run * block_bytes];
                self.has_part_of_snapshot(volume, first, part)?;
            }
            first += (run as u64).max(1);
        }
        Ok(())
    }

    fn has_part_of_snapshot(&mut self, volume: usize, first: u64, bytes: &[u8]) -> Verdict {
        let block_bytes = self.volumes[volume].block_bytes as usize;
        let blocks = (bytes.len() / block_bytes) as u64;
        let read = CheckedOp::new(OpKind::Read, 0, volume, first, blocks);
        let value = self.checker.begin(read.clone());
        let mut bytes = bytes.to_vec();
        let sectors = bytes.chunks_exact_mut(SECTOR_BYTES).enumerate();
        for (n, sector) in sectors {
            let number = first * (block_bytes / SECTOR_BYTES) as u64 + n as u64;
            self.restore_bits(&read, number, sector);
        }
        let blocks = bytes.chunks_exact(block_bytes).enumerate();
        let seen: Vec<SeenBlock> = blocks
            .map(|(n, bytes)| seen(bytes, first + n as u64))
            .collect();
        self.checker.succeeded(value, &seen)
    }
}
