//! CDBs of SBC-3 (and WRITE ATOMIC of SBC-4).

use crate::cdb::Cdb;
use crate::command::{Check, Command, IoKind, ScsiIo};
use crate::sense::Sense;
use crate::unit::Unit;

/// What one WRITE SAME writes at most: long enough that a command is worth its
/// while, short enough to end while others wait (Block Limits, MAXIMUM WRITE SAME
/// LENGTH).
pub(crate) const WRITE_SAME_BYTES_MAX: u64 = 16 << 20;

type Decoded = Result<Command, Sense>;

/// A range of logical blocks and where the CDB names it, for sense data.
#[derive(Clone, Copy)]
struct Blocks {
    lba: u64,
    count: u64,
    /// Byte of the CDB where the transfer length begins.
    count_at: u16,
}

#[inline]
fn of_10(cdb: Cdb<'_>) -> Blocks {
    Blocks {
        lba: cdb.u32(2).into(),
        count: cdb.u16(7).into(),
        count_at: 7,
    }
}

#[inline]
fn of_12(cdb: Cdb<'_>) -> Blocks {
    Blocks {
        lba: cdb.u32(2).into(),
        count: cdb.u32(6).into(),
        count_at: 6,
    }
}

#[inline]
fn of_16(cdb: Cdb<'_>) -> Blocks {
    Blocks {
        lba: cdb.u64(2),
        count: cdb.u32(10).into(),
        count_at: 10,
    }
}

/// 0 blocks are 256 (SBC-3).
fn of_6(cdb: Cdb<'_>) -> Blocks {
    Blocks {
        lba: (cdb.u32(0) & 0x1f_ffff).into(),
        count: match cdb.byte(4) {
            0 => 256,
            count => count.into(),
        },
        count_at: 4,
    }
}

impl Blocks {
    /// It lies within the medium. Zero blocks may begin right behind its end.
    #[inline]
    fn on_medium(self, unit: &Unit) -> Result<Blocks, Sense> {
        match self.lba.checked_add(self.count) {
            Some(end) if end <= unit.block_count => Ok(self),
            _ => Err(self.outside(unit)),
        }
    }

    /// The INFORMATION field has the first block that is not there.
    #[cold]
    fn outside(self, unit: &Unit) -> Sense {
        Sense::out_of_range().with_information(self.lba.max(unit.block_count))
    }

    /// And is not longer than `max` blocks.
    #[inline]
    fn at_most(self, max: u64) -> Result<Blocks, Sense> {
        if self.count <= max {
            Ok(self)
        } else {
            Err(Sense::in_cdb(self.count_at, None))
        }
    }

    /// The same in bytes.
    #[inline]
    fn io(self, kind: IoKind, fua: bool, unit: &Unit) -> Decoded {
        let shift = unit.block_bytes.trailing_zeros();
        Ok(Command::Io(ScsiIo {
            kind,
            offset: self.lba << shift,
            len: self.count << shift,
            fua,
        }))
    }

    /// To the end of the medium where the CDB says 0 blocks.
    fn or_to_the_end(mut self, unit: &Unit) -> Blocks {
        if self.count == 0 {
            self.count = unit.block_count.saturating_sub(self.lba);
        }
        self
    }
}

/// A command that transfers its blocks. That they are not there goes before that
/// they are too many, which is what initiators expect.
#[inline]
fn transfer(kind: IoKind, blocks: Blocks, fua: bool, unit: &Unit) -> Decoded {
    let max = match kind {
        IoKind::Read | IoKind::Write => unit.transfer_blocks_max(),
        _ => unit.step_blocks_max(),
    };
    blocks
        .on_medium(unit)?
        .at_most(max.into())?
        .io(kind, fua, unit)
}

/// One that writes them.
#[inline]
fn write(kind: IoKind, blocks: Blocks, fua: bool, unit: &Unit) -> Decoded {
    transfer(kind, blocks, fua || unit.writes_through(), unit)
}

#[inline]
fn fua(cdb: Cdb<'_>) -> bool {
    cdb.bit(1, 3)
}

pub(crate) fn read_6(cdb: Cdb<'_>, unit: &Unit) -> Decoded {
    transfer(IoKind::Read, of_6(cdb), false, unit)
}

pub(crate) fn read_10(cdb: Cdb<'_>, unit: &Unit) -> Decoded {
    transfer(IoKind::Read, of_10(cdb), fua(cdb), unit)
}

pub(crate) fn read_12(cdb: Cdb<'_>, unit: &Unit) -> Decoded {
    transfer(IoKind::Read, of_12(cdb), fua(cdb), unit)
}

pub(crate) fn read_16(cdb: Cdb<'_>, unit: &Unit) -> Decoded {
    transfer(IoKind::Read, of_16(cdb), fua(cdb), unit)
}

pub(crate) fn write_6(cdb: Cdb<'_>, unit: &Unit) -> Decoded {
    write(IoKind::Write, of_6(cdb), false, unit)
}

pub(crate) fn write_10(cdb: Cdb<'_>, unit: &Unit) -> Decoded {
    write(IoKind::Write, of_10(cdb), fua(cdb), unit)
}

pub(crate) fn write_12(cdb: Cdb<'_>, unit: &Unit) -> Decoded {
    write(IoKind::Write, of_12(cdb), fua(cdb), unit)
}

pub(crate) fn write_16(cdb: Cdb<'_>, unit: &Unit) -> Decoded {
    write(IoKind::Write, of_16(cdb), fua(cdb), unit)
}

pub(crate) fn orwrite_16(cdb: Cdb<'_>, unit: &Unit) -> Decoded {
    let max = unit.atomic_bytes / unit.block_bytes;
    let blocks = of_16(cdb).on_medium(unit)?.at_most(max.into())?;
    write(IoKind::OrWrite, blocks, fua(cdb), unit)
}

pub(crate) fn write_atomic_16(cdb: Cdb<'_>, unit: &Unit) -> Decoded {
    let blocks = Blocks {
        lba: cdb.u64(2),
        count: cdb.u16(12).into(),
        count_at: 12,
    };
    let max = unit.atomic_blocks_max();
    let blocks = blocks.on_medium(unit)?.at_most(max.into())?;
    write(IoKind::WriteAtomic, blocks, fua(cdb), unit)
}

/// BYTCHK 00b and 01b (SBC-37).
fn write_and_verify(cdb: Cdb<'_>, blocks: Blocks, unit: &Unit) -> Decoded {
    let compare = match bytchk(cdb) {
        0b00 => false,
        0b01 => true,
        _ => return Err(Sense::in_cdb(1, Some(2))),
    };
    write(IoKind::WriteAndVerify { compare }, blocks, true, unit)
}

pub(crate) fn write_and_verify_10(cdb: Cdb<'_>, unit: &Unit) -> Decoded {
    write_and_verify(cdb, of_10(cdb), unit)
}

pub(crate) fn write_and_verify_12(cdb: Cdb<'_>, unit: &Unit) -> Decoded {
    write_and_verify(cdb, of_12(cdb), unit)
}

pub(crate) fn write_and_verify_16(cdb: Cdb<'_>, unit: &Unit) -> Decoded {
    write_and_verify(cdb, of_16(cdb), unit)
}

/// BYTCHK 00b, 01b and 11b (SBC-32).
fn verify(cdb: Cdb<'_>, blocks: Blocks, unit: &Unit) -> Decoded {
    let check = match bytchk(cdb) {
        0b00 => Check::Medium,
        0b01 => Check::Data,
        0b11 => Check::SameBlock,
        _ => return Err(Sense::in_cdb(1, Some(2))),
    };
    transfer(IoKind::Verify(check), blocks, false, unit)
}

pub(crate) fn verify_10(cdb: Cdb<'_>, unit: &Unit) -> Decoded {
    verify(cdb, of_10(cdb), unit)
}

pub(crate) fn verify_12(cdb: Cdb<'_>, unit: &Unit) -> Decoded {
    verify(cdb, of_12(cdb), unit)
}

pub(crate) fn verify_16(cdb: Cdb<'_>, unit: &Unit) -> Decoded {
    verify(cdb, of_16(cdb), unit)
}

fn bytchk(cdb: Cdb<'_>) -> u8 {
    cdb.byte(1) >> 1 & 0b11
}

pub(crate) fn compare_and_write(cdb: Cdb<'_>, unit: &Unit) -> Decoded {
    let blocks = Blocks {
        lba: cdb.u64(2),
        count: cdb.byte(13).into(),
        count_at: 13,
    };
    let max = unit.compare_and_write_blocks_max();
    let blocks = blocks.on_medium(unit)?.at_most(max.into())?;
    write(IoKind::CompareAndWrite, blocks, fua(cdb), unit)
}

fn write_same(cdb: Cdb<'_>, blocks: Blocks, zeros: bool, unit: &Unit) -> Decoded {
    let unmap = cdb.bit(1, 3);
    if unmap && !unit.thin {
        return Err(Sense::in_cdb(1, Some(3)));
    }
    // WSNZ of the Block Limits page: 0 blocks do not mean the whole medium.
    if blocks.count == 0 {
        return Err(Sense::in_cdb(blocks.count_at, None));
    }
    let max = WRITE_SAME_BYTES_MAX / u64::from(unit.block_bytes);
    blocks.on_medium(unit)?.at_most(max)?.io(
        IoKind::WriteSame { unmap, zeros },
        unit.writes_through(),
        unit,
    )
}

pub(crate) fn write_same_10(cdb: Cdb<'_>, unit: &Unit) -> Decoded {
    write_same(cdb, of_10(cdb), false, unit)
}

pub(crate) fn write_same_16(cdb: Cdb<'_>, unit: &Unit) -> Decoded {
    write_same(cdb, of_16(cdb), cdb.bit(1, 0), unit)
}

pub(crate) fn unmap(cdb: Cdb<'_>, _: &Unit) -> Decoded {
    Ok(Command::Unmap {
        list_len: cdb.u16(7),
    })
}

/// IMMED changes nothing: it takes no time to speak of. There is no failure mode to exit from
/// (AUSE), and no zone (ZNR).
pub(crate) fn cryptographic_erase(cdb: Cdb<'_>, _: &Unit) -> Decoded {
    match cdb.u16(7) {
        0 => Ok(Command::CryptographicErase),
        _ => Err(Sense::in_cdb(7, None)),
    }
}

fn synchronize_cache(cdb: Cdb<'_>, blocks: Blocks, unit: &Unit) -> Decoded {
    let immediate = cdb.bit(1, 1);
    let blocks = blocks.on_medium(unit)?.or_to_the_end(unit);
    blocks.io(IoKind::Flush { immediate }, true, unit)
}

pub(crate) fn synchronize_cache_10(cdb: Cdb<'_>, unit: &Unit) -> Decoded {
    synchronize_cache(cdb, of_10(cdb), unit)
}

pub(crate) fn synchronize_cache_16(cdb: Cdb<'_>, unit: &Unit) -> Decoded {
    synchronize_cache(cdb, of_16(cdb), unit)
}

pub(crate) fn pre_fetch_10(cdb: Cdb<'_>, unit: &Unit) -> Decoded {
    of_10(cdb)
        .on_medium(unit)?
        .io(IoKind::PreFetch, false, unit)
}

pub(crate) fn pre_fetch_16(cdb: Cdb<'_>, unit: &Unit) -> Decoded {
    of_16(cdb)
        .on_medium(unit)?
        .io(IoKind::PreFetch, false, unit)
}

pub(crate) fn read_capacity_10(_: Cdb<'_>, _: &Unit) -> Decoded {
    Ok(Command::ReadCapacity10)
}

pub(crate) fn read_capacity_16(cdb: Cdb<'_>, _: &Unit) -> Decoded {
    Ok(Command::ReadCapacity16 {
        allocation_len: cdb.u32(10),
    })
}

pub(crate) fn get_lba_status(cdb: Cdb<'_>, unit: &Unit) -> Decoded {
    let first = Blocks {
        lba: cdb.u64(2),
        count: 1,
        count_at: 2,
    };
    let lba = first.on_medium(unit)?.lba;
    Ok(Command::GetLbaStatus {
        offset: lba << unit.block_bytes.trailing_zeros(),
        allocation_len: cdb.u32(10),
    })
}

pub(crate) fn read_defect_data_10(cdb: Cdb<'_>, _: &Unit) -> Decoded {
    Ok(Command::ReadDefectData {
        long: false,
        lists: cdb.byte(2),
        allocation_len: cdb.u16(7).into(),
    })
}

pub(crate) fn read_defect_data_12(cdb: Cdb<'_>, _: &Unit) -> Decoded {
    Ok(Command::ReadDefectData {
        long: true,
        lists: cdb.byte(1),
        allocation_len: cdb.u32(6),
    })
}
