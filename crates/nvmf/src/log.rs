//! Get Log Page (NVM Express Base Specification 2.0, section 5.16).

use wire::nvme::discovery::TRTYPE_TCP;
use wire::nvme::feature::capability;
use wire::nvme::identify::{ascii, zeroed};
use wire::nvme::log::{CommandEffects, ErrorEntry, FirmwareSlot, Identifiers, Smart, effect, lid};
use wire::nvme::{NSID_ALL, Status, io};
use zerocopy::IntoBytes;

use crate::admin::{Fault, IoCounters, OPCODES, Reply, Request, at};
use crate::controller::{DISCOVERY_EVENT, ERROR_ENTRIES_MAX, NAMESPACE_EVENT};
use crate::feature::FEATURES;

/// Log pages of I/O controllers.
const LOG_PAGES: [u8; 8] = [
    lid::SUPPORTED,
    lid::ERROR,
    lid::SMART,
    lid::FIRMWARE_SLOT,
    lid::CHANGED_NAMESPACES,
    lid::COMMAND_EFFECTS,
    lid::FEATURE_EFFECTS,
    lid::MI_EFFECTS,
];

/// Log pages of discovery controllers.
const DISCOVERY_LOG_PAGES: [u8; 3] = [lid::SUPPORTED, lid::FEATURE_EFFECTS, lid::DISCOVERY];

/// I/O commands with what they change.
const IO_EFFECTS: [(u8, u32); 6] = [
    (io::FLUSH, 0),
    (io::WRITE, effect::LBCC),
    (io::READ, 0),
    (io::COMPARE, 0),
    (io::WRITE_ZEROES, effect::LBCC),
    (io::DATASET_MANAGEMENT, effect::LBCC),
];

/// Copies the part of `bytes`, which lie at `at` of a page, that falls into the
/// window of the page from `offset` which `out` is.
pub(crate) fn copy_window(bytes: &[u8], at: u64, offset: u64, out: &mut [u8]) {
    let skip = offset.saturating_sub(at);
    let start = at.saturating_sub(offset);
    if skip >= bytes.len() as u64 || start >= out.len() as u64 {
        return;
    }
    let (bytes, out) = (&bytes[skip as usize..], &mut out[start as usize..]);
    let len = bytes.len().min(out.len());
    out[..len].copy_from_slice(&bytes[..len]);
}

/// Executes Get Log Page.
pub(crate) fn get_log_page(request: &mut Request<'_>) -> Result<Reply, Fault> {
    let sqe = request.sqe;
    let (cdw10, cdw11) = (sqe.cdw10.get(), sqe.cdw11.get());
    let (page, retains_event) = (cdw10 as u8, cdw10 >> 15 & 1 != 0);
    let dwords = u64::from(cdw10 >> 16 | cdw11 << 16) + 1;
    let offset = u64::from(sqe.cdw12.get()) | u64::from(sqe.cdw13.get()) << 32;
    let pages: &[u8] = if request.controller.is_discovery {
        &DISCOVERY_LOG_PAGES
    } else {
        &LOG_PAGES
    };
    if !pages.contains(&page) {
        return Err(Fault::new(Status::INVALID_LOG_PAGE, at::CDW10));
    }
    // Offsets count bytes: no page of ours has an index (CDW14 bit 23).
    if sqe.cdw14.get() >> 23 & 1 != 0 {
        return Err(Fault::field(at::CDW14));
    }
    if offset & 3 != 0 {
        return Err(Fault::field(at::CDW12));
    }
    if page != lid::SMART {
        request.expect_no_namespace()?;
    }
    let len = dwords * 4;
    if len > request.out.len() as u64 {
        return Err(Fault::new(Status::DATA_SGL_LENGTH_INVALID, at::SGL));
    }
    let len = len as usize;
    if page == lid::DISCOVERY {
        expect_offset(offset, request.discovery.len())?;
        request.discovery.write(offset, &mut request.out[..len]);
    } else {
        let bytes = page_bytes(request, page)?;
        expect_offset(offset, bytes.len() as u64)?;
        let out = &mut request.out[..len];
        out.fill(0);
        copy_window(&bytes, 0, offset, out);
    }
    if !retains_event {
        on_read(request, page);
    }
    Ok(Reply::data(len))
}

fn expect_offset(offset: u64, page_len: u64) -> Result<(), Fault> {
    if offset > page_len {
        Err(Fault::field(at::CDW12))
    } else {
        Ok(())
    }
}

/// A page was read without Retain Asynchronous Event: its event may come again.
fn on_read(request: &mut Request<'_>, page: u8) {
    match page {
        lid::CHANGED_NAMESPACES => {
            request.controller.changed_namespaces.clear();
            request.controller.clear_event(NAMESPACE_EVENT);
        }
        lid::DISCOVERY => request.controller.clear_event(DISCOVERY_EVENT),
        _ => {}
    }
}

fn page_bytes(request: &Request<'_>, page: u8) -> Result<Vec<u8>, Fault> {
    let bytes = match page {
        lid::SUPPORTED => supported(request).as_bytes().to_vec(),
        lid::ERROR => errors(request),
        lid::SMART => smart(request)?.as_bytes().to_vec(),
        lid::FIRMWARE_SLOT => firmware_slot(request).as_bytes().to_vec(),
        lid::CHANGED_NAMESPACES => changed_namespaces(request),
        lid::COMMAND_EFFECTS => command_effects().as_bytes().to_vec(),
        lid::FEATURE_EFFECTS => feature_effects(request).as_bytes().to_vec(),
        // No NVMe-MI commands: all entries are 0.
        lid::MI_EFFECTS => vec![0; size_of::<Identifiers>()],
        other => unreachable!("log page {other:#x} is in the table"),
    };
    Ok(bytes)
}

fn supported(request: &Request<'_>) -> Identifiers {
    let pages: &[u8] = if request.controller.is_discovery {
        &DISCOVERY_LOG_PAGES
    } else {
        &LOG_PAGES
    };
    let mut log: Identifiers = zeroed();
    for page in pages {
        log.entries[usize::from(*page)] = 1.into();
    }
    log
}

/// The newest error first; entries without an error are zeros.
fn errors(request: &Request<'_>) -> Vec<u8> {
    let mut log = Vec::with_capacity(ERROR_ENTRIES_MAX * size_of::<ErrorEntry>());
    for (count, note) in &request.controller.errors {
        let mut entry: ErrorEntry = zeroed();
        entry.error_count = (*count).into();
        entry.sqid = note.qid.into();
        entry.cid = note.cid.into();
        entry.status = (note.status.0 << 1).into();
        entry.error_location = note.location.unwrap_or(0xffff).into();
        entry.lba = note.lba.into();
        entry.nsid = note.nsid.into();
        entry.trtype = TRTYPE_TCP;
        log.extend_from_slice(entry.as_bytes());
    }
    log.resize(ERROR_ENTRIES_MAX * size_of::<ErrorEntry>(), 0);
    log
}

fn smart(request: &Request<'_>) -> Result<Smart, Fault> {
    let controller = &request.controller;
    let counters = match request.sqe.nsid.get() {
        0 | NSID_ALL => (controller.subsystem.namespaces.iter())
            .map(|namespace| (request.env.counters)(namespace.nsid))
            .fold(IoCounters::default(), add),
        nsid => {
            controller
                .subsystem
                .namespace(nsid)
                .ok_or(Fault::new(Status::INVALID_NAMESPACE, at::NSID))?;
            (request.env.counters)(nsid)
        }
    };
    let mut log: Smart = zeroed();
    log.available_spare = 100;
    log.data_units_read = data_units(counters.read_bytes).into();
    log.data_units_written = data_units(counters.write_bytes).into();
    log.host_read_commands = counters.read_commands.into();
    log.host_write_commands = counters.write_commands.into();
    log.media_errors = counters.media_errors.into();
    log.error_log_entries = controller.error_count.into();
    let age = request.env.now.saturating_sub(controller.created);
    log.power_on_hours = (age / 3_600_000_000_000).into();
    log.power_cycles = 1.into();
    Ok(log)
}

fn add(sum: IoCounters, one: IoCounters) -> IoCounters {
    IoCounters {
        read_commands: sum.read_commands.saturating_add(one.read_commands),
        read_bytes: sum.read_bytes.saturating_add(one.read_bytes),
        write_commands: sum.write_commands.saturating_add(one.write_commands),
        write_bytes: sum.write_bytes.saturating_add(one.write_bytes),
        media_errors: sum.media_errors.saturating_add(one.media_errors),
    }
}

/// Thousands of 512-byte units, rounded up.
fn data_units(bytes: u64) -> u64 {
    bytes.div_ceil(512_000)
}

fn firmware_slot(request: &Request<'_>) -> FirmwareSlot {
    let mut log: FirmwareSlot = zeroed();
    log.afi = 1;
    ascii(&mut log.frs[0], &request.controller.subsystem.firmware);
    log
}

fn changed_namespaces(request: &Request<'_>) -> Vec<u8> {
    let nsids = request.controller.changed_namespaces.iter();
    let mut log: Vec<u8> = nsids.flat_map(|nsid| nsid.to_le_bytes()).collect();
    log.resize(4096, 0);
    log
}

fn command_effects() -> CommandEffects {
    let mut log: CommandEffects = zeroed();
    for opcode in OPCODES {
        log.admin[usize::from(opcode)] = (effect::CSUPP | effect::SCOPE_CONTROLLER).into();
    }
    for (opcode, changes) in IO_EFFECTS {
        // Without a scope: Linux 6.1 warns of any bit besides these two.
        log.io[usize::from(opcode)] = (effect::CSUPP | changes).into();
    }
    log
}

fn feature_effects(request: &Request<'_>) -> Identifiers {
    let mut log: Identifiers = zeroed();
    let is_discovery = request.controller.is_discovery;
    for feature in FEATURES
        .iter()
        .filter(|feature| !is_discovery || feature.of_discovery)
    {
        let scope = if feature.capabilities & capability::NAMESPACE_SPECIFIC != 0 {
            effect::SCOPE_NAMESPACE
        } else {
            effect::SCOPE_CONTROLLER
        };
        log.entries[usize::from(feature.fid)] = (1 | scope).into();
    }
    log
}
