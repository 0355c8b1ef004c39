//! The commands of operations.

use wire::nvme::lba_status::atype;
use wire::nvme::{DSM_AD, DsmRange, Sqe, admin, cdw12, io};
use zerocopy::IntoBytes;

use super::{CheckedIo, CommandPart, HostWork, LBA_STATUS_BYTES, OR_WRITE, SimRequest};
use crate::checker::{CheckedOp, OpKind, Value, ZEROS};
use crate::content::{self, SECTOR_BYTES};

impl HostWork {
    pub(super) fn request(&self, opcode: u8, volume: usize, op: Value) -> SimRequest {
        let mut sqe = Sqe::new(opcode);
        sqe.nsid = self.nsid(self.checker.op(op).host, volume).into();
        SimRequest {
            sqe,
            asked: None,
            len: 0,
            bytes: Vec::new(),
            io: CheckedIo {
                ops: vec![op],
                part: CommandPart::Whole,
                reserve: None,
            },
            ask: None,
        }
    }

    pub(super) fn read(
        &mut self,
        host: usize,
        volume: usize,
        first: u64,
        blocks: u64,
    ) -> SimRequest {
        let op = self.begin(CheckedOp::new(OpKind::Read, host, volume, first, blocks));
        let mut request = self.request(io::READ, volume, op);
        request.sqe.set_blocks(first, blocks as u32);
        request.len = blocks as u32 * self.volumes[volume].block_bytes;
        request
    }

    pub(super) fn write(
        &mut self,
        host: usize,
        volume: usize,
        first: u64,
        blocks: u64,
    ) -> SimRequest {
        let durable = self.durable();
        let op = self.begin(CheckedOp::new(
            OpKind::Write { durable },
            host,
            volume,
            first,
            blocks,
        ));
        self.write_of(op, durable)
    }

    /// The Write command of an operation, with the content that names it.
    pub(super) fn write_of(&self, op: Value, durable: bool) -> SimRequest {
        let CheckedOp {
            volume,
            first,
            blocks,
            ..
        } = *self.checker.op(op);
        let mut request = self.request(io::WRITE, volume, op);
        request.sqe.set_blocks(first, blocks as u32);
        if durable {
            request.sqe.cdw12 = (request.sqe.cdw12.get() | cdw12::FUA).into();
        }
        let block_bytes = self.volumes[volume].block_bytes;
        request.len = blocks as u32 * block_bytes;
        request.bytes = vec![0; request.len as usize];
        let sectors = u64::from(block_bytes) / SECTOR_BYTES as u64;
        content::fill(op, first * sectors, &mut request.bytes);
        request
    }

    pub(super) fn flush(&mut self, host: usize, volume: usize) -> SimRequest {
        let op = self.begin(CheckedOp::new(OpKind::Flush, host, volume, 0, 0));
        self.request(io::FLUSH, volume, op)
    }

    pub(super) fn zero(
        &mut self,
        host: usize,
        volume: usize,
        first: u64,
        blocks: u64,
    ) -> SimRequest {
        // WRITE SAME has no FUA.
        let durable = self.durable() && self.plan.hosts[host].iscsi.is_none();
        let op = self.begin(CheckedOp::new(
            OpKind::Zero { durable },
            host,
            volume,
            first,
            blocks,
        ));
        let mut request = self.request(io::WRITE_ZEROES, volume, op);
        request.sqe.set_blocks(first, blocks as u32);
        let mut dword12 = request.sqe.cdw12.get();
        if durable {
            dword12 |= cdw12::FUA;
        }
        if self.random.percent(50) {
            dword12 |= cdw12::DEAC;
        }
        request.sqe.cdw12 = dword12.into();
        request
    }

    pub(super) fn trim(&mut self, host: usize, volume: usize) -> SimRequest {
        // TRIM has one.
        let most = if self.plan.hosts[host].nbd.is_some() {
            1
        } else {
            3
        };
        let ranges = self.random.between(1, most);
        let mut ops = Vec::new();
        let mut bytes = Vec::new();
        for _ in 0..ranges {
            let (first, blocks) = self.extent(volume);
            ops.push(self.begin(CheckedOp::new(OpKind::Trim, host, volume, first, blocks)));
            let range = DsmRange {
                cattr: 0.into(),
                length_blocks: (blocks as u32).into(),
                slba: first.into(),
            };
            bytes.extend_from_slice(range.as_bytes());
        }
        let mut request = self.request(io::DATASET_MANAGEMENT, volume, ops[0]);
        request.sqe.cdw10 = (ranges as u32 - 1).into();
        request.sqe.cdw11 = DSM_AD.into();
        request.len = bytes.len() as u32;
        request.bytes = bytes;
        request.io.ops = ops;
        request
    }

    pub(super) fn verify(
        &mut self,
        host: usize,
        volume: usize,
        first: u64,
        blocks: u64,
    ) -> SimRequest {
        let op = self.begin(CheckedOp::new(OpKind::Verify, host, volume, first, blocks));
        let mut request = self.request(io::VERIFY, volume, op);
        request.sqe.set_blocks(first, blocks as u32);
        request
    }

    /// ORWRITE of zeros leaves every block as it is: what is written between its
    /// reading and its writing would be lost.
    pub(super) fn or_write(
        &mut self,
        host: usize,
        volume: usize,
        first: u64,
        blocks: u64,
    ) -> SimRequest {
        let op = self.begin(CheckedOp::new(OpKind::OrWrite, host, volume, first, blocks));
        let mut request = self.request(OR_WRITE, volume, op);
        request.sqe.set_blocks(first, blocks as u32);
        if self.durable() {
            request.sqe.cdw12 = (request.sqe.cdw12.get() | cdw12::FUA).into();
        }
        request.len = blocks as u32 * self.volumes[volume].block_bytes;
        request.bytes = vec![0; request.len as usize];
        request
    }

    /// Get LBA Status: which blocks hold data.
    pub(super) fn lba_status(
        &mut self,
        host: usize,
        volume: usize,
        first: u64,
        blocks: u64,
    ) -> SimRequest {
        let op = self.begin(CheckedOp::new(
            OpKind::LbaStatus,
            host,
            volume,
            first,
            blocks,
        ));
        let mut request = self.request(admin::GET_LBA_STATUS, volume, op);
        request.sqe.cdw10 = (first as u32).into();
        request.sqe.cdw12 = (LBA_STATUS_BYTES / 4 - 1).into();
        request.sqe.cdw13 = (u32::from(atype::ALLOCATED) << 24 | blocks as u32).into();
        request.len = LBA_STATUS_BYTES;
        request
    }

    /// A compare with what was last seen there, perhaps fused with a write.
    pub(super) fn compare(
        &mut self,
        host: usize,
        volume: usize,
        first: u64,
        blocks: u64,
        is_fused: bool,
    ) -> Vec<SimRequest> {
        let mut blocks = blocks.min(self.volumes[volume].atomic_blocks);
        if is_fused && self.plan.hosts[host].iscsi.is_some() {
            // Both halves are the data of one command.
            let most = self.plan.io_bytes_max / 2 / self.volumes[volume].block_bytes;
            blocks = blocks.min(most.max(1).into());
        }
        let here = first as usize..(first + blocks) as usize;
        let guess: Option<Vec<Value>> = self.guess[volume][here].iter().copied().collect();
        let Some(expected) = guess else {
            return vec![self.read(host, volume, first, blocks)];
        };
        let durable = self.durable();
        let kind = match is_fused {
            true => OpKind::CompareAndWrite { durable },
            false => OpKind::Compare,
        };
        let mut op = CheckedOp::new(kind, host, volume, first, blocks);
        op.expected = expected.clone();
        let op = self.begin(op);
        let mut compare = self.compare_of(op, &expected);
        if !is_fused {
            return vec![compare];
        }
        let mut write = self.write_of(op, durable);
        compare.sqe.flags |= Sqe::FUSE_FIRST;
        compare.io.part = CommandPart::First;
        write.sqe.flags |= Sqe::FUSE_SECOND;
        write.io.part = CommandPart::Second;
        vec![compare, write]
    }

    pub(super) fn compare_of(&self, op: Value, expected: &[Value]) -> SimRequest {
        let CheckedOp { volume, first, .. } = *self.checker.op(op);
        let mut request = self.request(io::COMPARE, volume, op);
        request.sqe.set_blocks(first, expected.len() as u32);
        let block_bytes = self.volumes[volume].block_bytes as usize;
        let sectors = (block_bytes / SECTOR_BYTES) as u64;
        request.bytes = vec![0; expected.len() * block_bytes];
        request.len = request.bytes.len() as u32;
        let blocks = request.bytes.chunks_exact_mut(block_bytes);
        for (n, (bytes, &value)) in blocks.zip(expected).enumerate() {
            if value != ZEROS {
                content::fill(value, (first + n as u64) * sectors, bytes);
            }
        }
        request
    }
}
