//! What hosts ask for, in the words of SCSI, and what SCSI answers, in those of
//! NVMe.

use host::iscsi::{CommandOutcome, Failure};
use wire::iscsi::RejectReason;
use wire::nvme::{CopySource, DSM_AD, DsmRange, Status, admin, cdw12, io};
use wire::scsi::cdb::{self, Cdb};
use wire::scsi::{UnmapDescriptor, UnmapHeader, asc, key, opcode, persistent_reserve_out, status};
use zerocopy::{FromBytes, IntoBytes};

use crate::announced::Told;
use crate::reserve::Ask;
use crate::target::{lun, uuid, volume_of};
use crate::work::{COPY_ABORTED, OR_WRITE, SimRequest};

/// A command to send.
pub struct ScsiAsked {
    /// Logical unit.
    pub lun: u16,
    /// Command descriptor block.
    pub cdb: Cdb,
    /// Bytes of data, in either direction.
    pub len: u32,
    /// The data to send.
    pub bytes: Vec<u8>,
}

/// The command that requests are: one, or both halves of a pair.
pub fn asked(requests: &[SimRequest]) -> ScsiAsked {
    let first = &requests[0];
    let own = first.sqe.nsid.get();
    let lun = lun(volume_of(first.asked.unwrap_or(own)));
    if let Some(ask) = first.ask {
        let (cdb, bytes) = reserve(ask);
        let len = bytes.len() as u32;
        return ScsiAsked {
            lun,
            cdb,
            len,
            bytes,
        };
    }
    if let [compare, write] = requests {
        let mut bytes = compare.bytes.clone();
        bytes.extend(&write.bytes);
        return ScsiAsked {
            lun,
            cdb: cdb::compare_and_write(fua(write), lba(write), blocks(write) as u8),
            len: bytes.len() as u32,
            bytes,
        };
    }
    let mut bytes = first.bytes.clone();
    let at = |opcode, bits| cdb::blocks16(opcode, bits, lba(first), blocks(first));
    let cdb = match first.sqe.opcode {
        io::READ => at(opcode::READ_16, 0),
        io::WRITE => at(opcode::WRITE_16, fua(first)),
        OR_WRITE => at(opcode::ORWRITE_16, fua(first)),
        admin::GET_LBA_STATUS => cdb::get_lba_status(lba(first), first.len),
        io::COPY => {
            bytes = copy_list(volume_of(own), lba(first), &first.bytes);
            cdb::extended_copy(bytes.len() as u32)
        }
        io::FLUSH => cdb::synchronize_cache16(),
        io::WRITE_ZEROES => {
            let deallocates = first.sqe.cdw12.get() & cdw12::DEAC != 0;
            let unmap = if deallocates { cdb::UNMAP_BIT } else { 0 };
            at(opcode::WRITE_SAME_16, cdb::NDOB | unmap)
        }
        io::VERIFY => at(opcode::VERIFY_16, 0),
        io::COMPARE => at(opcode::VERIFY_16, cdb::BYTCHK),
        io::DATASET_MANAGEMENT => {
            assert_eq!(first.sqe.cdw11.get(), DSM_AD);
            bytes = unmap_list(&first.bytes);
            cdb::unmap(0, bytes.len() as u16)
        }
        opcode => unreachable!("hosts ask for no {opcode:02x}h"),
    };
    let len = match bytes.len() {
        0 => first.len,
        len => len as u32,
    };
    ScsiAsked {
        lun,
        cdb,
        len,
        bytes,
    }
}

fn lba(request: &SimRequest) -> u64 {
    u64::from(request.sqe.cdw11.get()) << 32 | u64::from(request.sqe.cdw10.get())
}

fn blocks(request: &SimRequest) -> u32 {
    (request.sqe.cdw12.get() & 0xffff) + 1
}

fn fua(request: &SimRequest) -> u8 {
    match request.sqe.cdw12.get() & cdw12::FUA {
        0 => 0,
        _ => cdb::FUA,
    }
}

/// The parameter list of UNMAP for the ranges of a Dataset Management command.
fn unmap_list(ranges: &[u8]) -> Vec<u8> {
    let count = ranges.len() / size_of::<DsmRange>();
    let descriptors_len = (count * size_of::<UnmapDescriptor>()) as u16;
    let header = UnmapHeader {
        data_len: (descriptors_len + 6).into(),
        descriptors_len: descriptors_len.into(),
        reserved4: [0; 4],
    };
    let mut list = header.as_bytes().to_vec();
    for range in ranges.chunks_exact(size_of::<DsmRange>()) {
        let range = DsmRange::read_from_bytes(range).expect("its size");
        let descriptor = UnmapDescriptor {
            lba: range.slba.get().into(),
            blocks: range.length_blocks.get().into(),
            reserved12: [0; 4],
        };
        list.extend(descriptor.as_bytes());
    }
    list
}

/// The parameter list of EXTENDED COPY(LID1) to a logical unit, for the ranges of a
/// Copy (SPC-4, sections 6.4.3, 6.4.5 and 6.4.6): without a list identifier, the two
/// units named by their UUIDs.
fn copy_list(to: usize, mut to_lba: u64, ranges: &[u8]) -> Vec<u8> {
    const CSCD_BYTES: u16 = 32;
    let ranges = ranges.chunks_exact(size_of::<CopySource>());
    let ranges = ranges.map(|range| CopySource::read_from_bytes(range).expect("its size"));
    let ranges: Vec<CopySource> = ranges.collect();
    let from = volume_of(ranges[0].snsid.get());
    let mut list = vec![0, 0x18];
    list.extend((2 * CSCD_BYTES).to_be_bytes());
    list.extend([0; 4]);
    list.extend((28 * ranges.len() as u32).to_be_bytes());
    list.extend([0; 4]);
    for volume in [from, to] {
        let mut cscd = [0; CSCD_BYTES as usize];
        cscd[0] = 0xe4;
        // Binary, of the logical unit, a UUID.
        (cscd[4], cscd[5], cscd[7], cscd[8]) = (0x01, 0x0a, 18, 0x10);
        cscd[10..26].copy_from_slice(uuid(volume).as_bytes());
        list.extend(cscd);
    }
    for range in ranges {
        let blocks = range.nlb.get() + 1;
        list.extend([0x02, 0, 0, 24, 0, 0, 0, 1, 0, 0]);
        list.extend(blocks.to_be_bytes());
        list.extend(range.slba.get().to_be_bytes());
        list.extend(to_lba.to_be_bytes());
        to_lba += u64::from(blocks);
    }
    list
}

/// The blocks without data in the answer to GET LBA STATUS (SBC-3).
pub fn holes(bytes: &[u8]) -> Option<Vec<u64>> {
    let len = u32::from_be_bytes(*bytes.first_chunk::<4>()?) as usize + 4;
    let descriptors = bytes.get(8..len.min(bytes.len()))?.chunks_exact(16);
    let mut holes = Vec::new();
    for one in descriptors {
        let first = u64::from_be_bytes(*one.first_chunk()?);
        let blocks = u32::from_be_bytes(one[8..12].try_into().ok()?);
        match one[12] {
            0 => {}
            1 => holes.extend(first..first + u64::from(blocks)),
            _ => return None,
        }
    }
    Some(holes)
}

/// PERSISTENT RESERVE OUT and its parameter list (SPC-4, section 6.16).
fn reserve(ask: Ask) -> (Cdb, Vec<u8>) {
    use persistent_reserve_out as action;
    let (action, rtype, key, service_key, persist) = match ask {
        Ask::Enroll { key, new, persist } => match key {
            Some(key) => (action::REGISTER, 0, key, new, persist),
            None => (action::REGISTER_AND_IGNORE_EXISTING_KEY, 0, 0, new, persist),
        },
        Ask::Acquire { key, rtype } => (action::RESERVE, rtype, key, 0, false),
        Ask::Preempt {
            key,
            victim,
            rtype,
            aborts,
        } => {
            let action = match aborts {
                true => action::PREEMPT_AND_ABORT,
                false => action::PREEMPT,
            };
            (action, rtype, key, victim, false)
        }
        Ask::Release { key, rtype } => (action::RELEASE, rtype, key, 0, false),
        Ask::Clear { key } => (action::CLEAR, 0, key, 0, false),
        ask => unreachable!("initiators ask for no {ask:?}"),
    };
    let mut list = vec![0; 24];
    list[..8].copy_from_slice(&key.to_be_bytes());
    list[8..16].copy_from_slice(&service_key.to_be_bytes());
    list[20] = u8::from(persist);
    // The types by NVMe's numbers, 1 to 6.
    let kind = [0, 1, 3, 5, 6, 7, 8][usize::from(rtype)];
    (
        cdb::persistent_reserve_out(action, kind, list.len() as u32),
        list,
    )
}

/// What a unit attention says of the volume of a unit, as far as documents change it.
pub fn told(failure: &Failure, lun: u16) -> Option<Told> {
    let volume = usize::from(lun / 0o111);
    match failure.sense?.code {
        asc::CAPACITY_DATA_HAS_CHANGED => Some(Told::Capacity(volume)),
        asc::ASYMMETRIC_ACCESS_STATE_CHANGED => Some(Told::Access(volume)),
        _ => None,
    }
}

/// What NVMe would call this end of a command, and of the other half of a pair;
/// `None` where nothing can explain it.
pub fn statuses(failure: &Failure) -> Option<[Status; 2]> {
    let alone = |status| Some([status, Status::FUSED_FAILED]);
    let both = |status| Some([status; 2]);
    match failure.outcome {
        CommandOutcome::Aborted | CommandOutcome::Status(status::TASK_ABORTED) => {
            both(Status::ABORT_REQUESTED)
        }
        CommandOutcome::Status(status::RESERVATION_CONFLICT) => alone(Status::RESERVATION_CONFLICT),
        _ if failure.is_shortage() => alone(Status::COMMAND_INTERRUPTED),
        CommandOutcome::Status(status::CHECK_CONDITION) => {
            let sense = failure.sense?;
            match (sense.key, sense.code) {
                (key::COPY_ABORTED, _) => alone(COPY_ABORTED),
                (key::MISCOMPARE, _) => alone(Status::COMPARE_FAILURE.dnr()),
                (_, asc::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE) => alone(Status::LBA_OUT_OF_RANGE),
                (key::MEDIUM_ERROR, asc::UNRECOVERED_READ_ERROR) => alone(Status::UNRECOVERED_READ),
                (_, asc::WRITE_ERROR) => both(Status::WRITE_FAULT),
                // Data that did not match its digest: the command was not executed.
                (_, asc::PROTOCOL_SERVICE_CRC_ERROR) => alone(Status::TRANSIENT_TRANSPORT),
                (_, asc::SPACE_ALLOCATION_FAILED_WRITE_PROTECT) => both(Status::CAPACITY_EXCEEDED),
                (key::DATA_PROTECT, _) => both(Status::WRITE_PROTECTED),
                (key::ILLEGAL_REQUEST, _) => alone(Status::INVALID_FIELD),
                (
                    key::NOT_READY,
                    asc::LOGICAL_UNIT_NOT_ACCESSIBLE_TARGET_PORT_IN_STANDBY_STATE
                    | asc::LOGICAL_UNIT_NOT_ACCESSIBLE_TARGET_PORT_IN_UNAVAILABLE_STATE,
                ) => alone(Status::ANA_INACCESSIBLE),
                _ => None,
            }
        }
        // Of a read: it was executed, and what came is not what was sent.
        CommandOutcome::Damaged => alone(Status::TRANSIENT_TRANSPORT),
        // It was never received, and an abort has taken its place.
        CommandOutcome::Rejected(reason) if reason == RejectReason::DataDigestError as u8 => {
            alone(Status::TRANSIENT_TRANSPORT)
        }
        _ => None,
    }
}
