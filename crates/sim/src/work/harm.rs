//! What bits do that are flipped where no digest guards them.

use super::{CheckedIo, HostWork, Unsettled};
use crate::checker::{CheckedOp, Value, Verdict, ZEROS};
use crate::content::{self, SECTOR_BYTES, Sector};
use crate::plan::{Harm, SHARDS_MAX};

impl HostWork {
    /// Whether it is of a host whose commands may have become any others. Nothing is
    /// asked of the answers it gets, nor of its own volume.
    pub(super) fn is_of_altered_host(&self, io: &CheckedIo) -> bool {
        let mut ops = io.ops.iter();
        ops.any(|op| self.plan.harm(self.checker.op(*op).host) == Harm::Anything)
    }

    /// A command of such a host is over: what the disks do for it may go on.
    pub(super) fn over(&mut self, io: CheckedIo, connection: Option<usize>) -> Verdict {
        self.unsettled.push(Unsettled {
            ops: io.ops,
            connection,
            work: None,
            reserve: None,
        });
        Ok(())
    }

    /// Bits that may be wrong in the data of a host.
    fn flips(&self, host: usize) -> u64 {
        match self.plan.harm(host) {
            Harm::Data => self.world.borrow_mut().net.driver(SHARDS_MAX + host).flips,
            _ => 0,
        }
    }

    /// Turns the bits of a sector back that may have been flipped: as many at most as
    /// were, on the way from the host that wrote it and to the one that reads it.
    pub(super) fn restore_bits(&self, read: &CheckedOp, number: u64, sector: &mut [u8]) {
        if self.plan.net.flips == 0 || content::read(number, sector) != Sector::Garbage {
            return;
        }
        let block_bytes = self.volumes[read.volume].block_bytes as usize;
        let block = number / (block_bytes / SECTOR_BYTES) as u64;
        let here = self.flips(read.host);
        let is_it = |value: &Value| {
            let op = self.checker.op(*value);
            let wrong = u64::from(content::wrong_bits(*value, number, sector));
            match *value {
                ZEROS => wrong <= here,
                _ => op.writes_to(read.volume, block) && wrong <= here + self.flips(op.host),
            }
        };
        match (ZEROS..=self.checker.begun() as Value).find(is_it) {
            Some(ZEROS) => sector.fill(0),
            Some(value) => content::fill(value, number, sector),
            None => {}
        }
    }

    /// A compare found something else. Whether that was so cannot be told where bits of
    /// what it expected may be wrong.
    pub(super) fn miscompared(&mut self, value: Value) -> Verdict {
        let expected = &self.checker.op(value).expected;
        let writes = expected.iter().filter(|value| **value != ZEROS);
        let mut writers = writes.map(|value| self.checker.op(*value).host);
        match writers.any(|host| self.flips(host) > 0) {
            true => self.checker.refused(value),
            false => self.checker.miscompared(value),
        }
    }
}
