//! Get Log Page (NVM Express Base Specification 2.0, section 5.16).

use std::collections::BTreeMap;

use wire::nvme::discovery::TRTYPE_TCP;
use wire::nvme::identify::{CSI_NVM, LIST_NSIDS_MAX, ascii, zeroed};
use wire::nvme::log::{
    ANA_RGO, AnaGroup, AnaHeader, CommandEffects, ErrorEntry, FirmwareSlot, Identifiers, Smart,
    critical_warning, effect, lid,
};
use wire::nvme::{NSID_ALL, Status, io};
use zerocopy::IntoBytes;

use crate::admin::COMMANDS;
use crate::controller::{
    ANA_EVENT, Controller, DISCOVERY_EVENT, ERROR_ENTRIES_MAX, ERROR_EVENT, HEALTH_EVENT,
    NAMESPACE_EVENT, SANITIZE_EVENT, SPARE_EVENT,
};
use crate::discovery::copy_window;
use crate::feature::FEATURES;
use crate::item::NamedItem;
use crate::request::{AdminRequest, Fault, IoCounters, Reply, at};
use crate::reservation;
use crate::subsystem::{ANA_GROUPS_MAX, NSID_MAX};

/// Bytes of the largest ANA log page: NANAGRPID groups and MNAN namespaces.
const ANA_BYTES_MAX: usize = size_of::<AnaHeader>()
    + ANA_GROUPS_MAX as usize * size_of::<AnaGroup>()
    + NSID_MAX as usize * size_of::<u32>();

/// Available Spare Threshold: hosts are warned of a thin namespace where less is left below it.
const SPARE_THRESHOLD_PERCENT: u8 = 20;

/// Makes the bytes of a whole page.
type Read = fn(&AdminRequest<'_>) -> Result<Vec<u8>, Fault>;

/// A log page.
pub(crate) struct Page {
    pub item: NamedItem,
    /// There is one of each namespace, too.
    of_namespaces: bool,
    /// Whole pages; `None` where they are written piece by piece.
    read: Option<Read>,
    /// It was read without Retain Asynchronous Event: its event may come again.
    on_read: fn(&mut AdminRequest<'_>),
}

const fn page(item: NamedItem, read: Read) -> Page {
    Page {
        item,
        of_namespaces: false,
        read: Some(read),
        on_read: |_| {},
    }
}

/// Every log page there is; others are Invalid Log Page.
pub(crate) const PAGES: &[Page] = &[
    page(
        NamedItem::both(lid::SUPPORTED, "Supported Log Pages", "5.16.1.1"),
        |request| Ok(supported(request).as_bytes().to_vec()),
    ),
    Page {
        on_read: |request| request.controller.clear_event(ERROR_EVENT),
        ..page(
            NamedItem::both(lid::ERROR, "Error Information", "5.16.1.2"),
            |request| Ok(errors(request.controller)),
        )
    },
    Page {
        of_namespaces: true,
        on_read: |request| request.controller.clear_event(HEALTH_EVENT | SPARE_EVENT),
        ..page(
            NamedItem::io(lid::SMART, "SMART / Health Information", "5.16.1.3"),
            |request| Ok(smart(request)?.as_bytes().to_vec()),
        )
    },
    page(
        NamedItem::io(lid::FIRMWARE_SLOT, "Firmware Slot Information", "5.16.1.4"),
        |request| Ok(firmware_slot(request).as_bytes().to_vec()),
    ),
    Page {
        on_read: |request| {
            request.controller.changed_namespaces.clear();
            request.controller.clear_event(NAMESPACE_EVENT);
        },
        ..page(
            NamedItem::io(
                lid::CHANGED_NAMESPACES,
                "Changed Namespace List",
                "5.16.1.5",
            ),
            |request| {
                let nsids = &request.controller.changed_namespaces;
                Ok(changed_namespaces(nsids.iter().copied()))
            },
        )
    },
    page(
        NamedItem::io(
            lid::COMMAND_EFFECTS,
            "Commands Supported and Effects",
            "5.16.1.6",
        ),
        |request| {
            if (request.sqe.cdw14.get() >> 24) as u8 != CSI_NVM {
                return Err(Fault::field(at::CDW14));
            }
            Ok(command_effects().as_bytes().to_vec())
        },
    ),
    Page {
        on_read: |request| request.controller.clear_event(ANA_EVENT),
        ..page(
            NamedItem::io(lid::ANA, "Asymmetric Namespace Access", "5.16.1.13"),
            |request| Ok(ana(request)),
        )
    },
    page(
        NamedItem::both(
            lid::FEATURE_EFFECTS,
            "Feature Identifiers Supported and Effects",
            "5.16.1.18",
        ),
        |request| Ok(feature_effects(request.controller).as_bytes().to_vec()),
    ),
    page(
        NamedItem::io(
            lid::MI_EFFECTS,
            "NVMe-MI Commands Supported and Effects",
            "5.16.1.19",
        ),
        // No NVMe-MI commands: all entries are 0.
        |_| Ok(vec![0; size_of::<Identifiers>()]),
    ),
    Page {
        read: None,
        on_read: |request| request.controller.clear_event(DISCOVERY_EVENT),
        ..page(
            NamedItem::discovery(lid::DISCOVERY, "Discovery", "5.16.1.23"),
            |_| Ok(Vec::new()),
        )
    },
    Page {
        on_read: reservation::on_log_read,
        ..page(
            NamedItem::io(
                lid::RESERVATION_NOTIFICATION,
                "Reservation Notification",
                "5.16.1.24",
            ),
            |request| Ok(reservation::log_page(request)),
        )
    },
    Page {
        on_read: |request| request.controller.clear_event(SANITIZE_EVENT),
        ..page(
            NamedItem::io(lid::SANITIZE_STATUS, "Sanitize Status", "5.16.1.25"),
            |request| Ok(request.sanitize.log().as_bytes().to_vec()),
        )
    },
];

/// Every I/O command there is, with what it changes.
pub(crate) const IO_COMMANDS: &[(NamedItem, u32)] = &[
    (NamedItem::io(io::FLUSH, "Flush", "7.1"), 0),
    (NamedItem::io(io::WRITE, "Write", "NVM 3.2.6"), effect::LBCC),
    (NamedItem::io(io::READ, "Read", "NVM 3.2.4"), 0),
    (
        NamedItem::io(io::WRITE_UNCORRECTABLE, "Write Uncorrectable", "NVM 3.2.7"),
        effect::LBCC,
    ),
    (NamedItem::io(io::COMPARE, "Compare", "NVM 3.2.1"), 0),
    (
        NamedItem::io(io::WRITE_ZEROES, "Write Zeroes", "NVM 3.2.8"),
        effect::LBCC,
    ),
    (
        NamedItem::io(io::DATASET_MANAGEMENT, "Dataset Management", "NVM 3.2.3"),
        effect::LBCC,
    ),
    (NamedItem::io(io::VERIFY, "Verify", "NVM 3.2.5"), 0),
    (
        NamedItem::io(io::RESERVATION_REGISTER, "Reservation Register", "7.3"),
        0,
    ),
    (
        NamedItem::io(io::RESERVATION_REPORT, "Reservation Report", "7.5"),
        0,
    ),
    (
        NamedItem::io(io::RESERVATION_ACQUIRE, "Reservation Acquire", "7.2"),
        0,
    ),
    (
        NamedItem::io(io::RESERVATION_RELEASE, "Reservation Release", "7.4"),
        0,
    ),
    (NamedItem::io(io::COPY, "Copy", "NVM 3.2.2"), effect::LBCC),
];

/// Executes Get Log Page.
pub(crate) fn get_log_page(request: &mut AdminRequest<'_>) -> Result<Reply, Fault> {
    let sqe = request.sqe;
    let (cdw10, cdw11) = (sqe.cdw10.get(), sqe.cdw11.get());
    let (wanted, retains_event) = (cdw10 as u8, cdw10 >> 15 & 1 != 0);
    let dwords = u64::from(cdw10 >> 16 | cdw11 << 16) + 1;
    let offset = u64::from(sqe.cdw12.get()) | u64::from(sqe.cdw13.get()) << 32;
    let page = PAGES
        .iter()
        .find(|page| page.item.id == wanted)
        .filter(|page| page.item.is_for(request.controller.is_discovery))
        .ok_or(Fault::new(Status::INVALID_LOG_PAGE, at::CDW10))?;
    // Offsets count bytes: no page of ours has an index (CDW14 bit 23).
    if sqe.cdw14.get() >> 23 & 1 != 0 {
        return Err(Fault::field(at::CDW14));
    }
    if offset & 3 != 0 {
        return Err(Fault::field(at::CDW12));
    }
    if !page.of_namespaces {
        request.expect_no_namespace()?;
    }
    let len = dwords * 4;
    if len > request.out.len() as u64 {
        return Err(Fault::new(Status::DATA_SGL_LENGTH_INVALID, at::SGL));
    }
    let len = len as usize;
    if let Some(read) = page.read {
        let bytes = read(request)?;
        expect_offset(offset, bytes.len() as u64)?;
        let out = &mut request.out[..len];
        out.fill(0);
        copy_window(&bytes, 0, offset, out);
    } else {
        expect_offset(offset, request.discovery.len())?;
        request.discovery.write(offset, &mut request.out[..len]);
    }
    if !retains_event {
        (page.on_read)(request);
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

fn supported(request: &AdminRequest<'_>) -> Identifiers {
    let is_discovery = request.controller.is_discovery;
    let mut log: Identifiers = zeroed();
    for page in PAGES.iter().filter(|page| page.item.is_for(is_discovery)) {
        log.entries[usize::from(page.item.id)] = 1.into();
    }
    log
}

/// The newest error first; entries without an error are zeros.
fn errors(controller: &Controller) -> Vec<u8> {
    let mut log = Vec::with_capacity(ERROR_ENTRIES_MAX * size_of::<ErrorEntry>());
    for (count, note) in &controller.errors {
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

fn smart(request: &AdminRequest<'_>) -> Result<Smart, Fault> {
    let controller = &request.controller;
    let counters = match request.sqe.nsid.get() {
        0 | NSID_ALL => controller
            .namespaces()
            .map(|namespace| (request.env.counters)(namespace.nsid))
            .fold(IoCounters::default(), add),
        _ => (request.env.counters)(request.namespace()?.nsid),
    };
    let mut log: Smart = zeroed();
    if counters.media_errors > 0 {
        log.critical_warning |= critical_warning::RELIABILITY;
    }
    log.available_spare = 100 - counters.taken_percent.min(100);
    log.available_spare_threshold = SPARE_THRESHOLD_PERCENT;
    if log.available_spare < log.available_spare_threshold {
        log.critical_warning |= critical_warning::SPARE;
    }
    log.data_units_read = data_units(counters.read_bytes).into();
    log.data_units_written = data_units(counters.write_bytes).into();
    log.host_read_commands = counters.read_commands.into();
    log.host_write_commands = counters.write_commands.into();
    log.media_errors = counters.media_errors.into();
    log.error_log_entries = controller.error_count.into();
    let age = request.env.now.saturating_sub(request.env.started);
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
        taken_percent: sum.taken_percent.max(one.taken_percent),
    }
}

/// Thousands of 512-byte units, rounded up.
fn data_units(bytes: u64) -> u64 {
    bytes.div_ceil(512_000)
}

fn firmware_slot(request: &AdminRequest<'_>) -> FirmwareSlot {
    let mut log: FirmwareSlot = zeroed();
    log.afi = 1;
    ascii(&mut log.frs[0], &request.controller.subsystem.firmware);
    log
}

/// Ascending identifiers; FFFFFFFFh alone where they are more than the page holds.
fn changed_namespaces(nsids: impl ExactSizeIterator<Item = u32>) -> Vec<u8> {
    let mut log: Vec<u8> = if nsids.len() > LIST_NSIDS_MAX {
        NSID_ALL.to_le_bytes().to_vec()
    } else {
        nsids.flat_map(u32::to_le_bytes).collect()
    };
    log.resize(LIST_NSIDS_MAX * 4, 0);
    log
}

fn command_effects() -> CommandEffects {
    let mut log: CommandEffects = zeroed();
    for command in COMMANDS {
        log.admin[usize::from(command.item.id)] = (effect::CSUPP | command.scope).into();
    }
    for (item, changes) in IO_COMMANDS {
        // Without a scope: Linux 6.1 warns of any bit besides these two.
        log.io[usize::from(item.id)] = (effect::CSUPP | changes).into();
    }
    log
}

fn feature_effects(controller: &Controller) -> Identifiers {
    let mut log: Identifiers = zeroed();
    for feature in FEATURES.iter().filter(|feature| feature.is_of(controller)) {
        log.entries[usize::from(feature.item.id)] = feature.effects_entry().into();
    }
    log
}

/// The groups with namespaces that the host sees; namespaces ascend, as Linux
/// hosts rely on.
fn ana(request: &AdminRequest<'_>) -> Vec<u8> {
    let controller = &*request.controller;
    let groups_only = (request.sqe.cdw10.get() >> 8) as u8 & ANA_RGO != 0;
    let mut groups: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for namespace in controller.namespaces() {
        let nsids = groups.entry(namespace.ana_group).or_default();
        nsids.push(namespace.nsid);
    }
    let mut header: AnaHeader = zeroed();
    header.chgcnt = controller.ana.total.into();
    header.ngrps = (groups.len() as u16).into();
    let mut log = header.as_bytes().to_vec();
    for (id, mut nsids) in groups {
        nsids.sort_unstable();
        if groups_only {
            nsids.clear();
        }
        let mut group: AnaGroup = zeroed();
        group.agid = id.into();
        group.nnsids = (nsids.len() as u32).into();
        // Counts start at 1: 0 would say that changes are not counted.
        let changes = controller.ana.groups.get(&id).copied().unwrap_or(0) + 1;
        group.chgcnt = changes.into();
        group.state = controller.subsystem.ana_state(controller.listener, id) as u8;
        log.extend_from_slice(group.as_bytes());
        log.extend(nsids.into_iter().flat_map(u32::to_le_bytes));
    }
    // Hosts read what the page may grow to (section 5.16.1.13), in pieces.
    log.resize(ANA_BYTES_MAX, 0);
    log
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::is_io;

    #[test]
    fn too_many_changed_namespaces_become_all() {
        let list = changed_namespaces((1..=1024).collect::<Vec<_>>().into_iter());
        assert_eq!(
            (list.len(), &list[..8]),
            (4096, &[1, 0, 0, 0, 2, 0, 0, 0][..])
        );
        let list = changed_namespaces((1..=1025).collect::<Vec<_>>().into_iter());
        assert_eq!(
            (list.len(), &list[..8]),
            (4096, &[255, 255, 255, 255, 0, 0, 0, 0][..])
        );
    }

    /// The table says what the decoder takes.
    #[test]
    fn io_commands_are_the_ones_decoded() {
        for opcode in 0..=255u8 {
            let is_reservation = matches!(
                opcode,
                io::RESERVATION_REGISTER
                    | io::RESERVATION_REPORT
                    | io::RESERVATION_ACQUIRE
                    | io::RESERVATION_RELEASE
            );
            let listed = IO_COMMANDS.iter().any(|(item, _)| item.id == opcode);
            let is_known = is_io(opcode) || is_reservation;
            assert_eq!(is_known, listed, "opcode {opcode:#x}");
        }
    }
}
