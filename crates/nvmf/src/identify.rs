//! Identify (NVM Express Base Specification 2.0, section 5.17).

use wire::nvme::fabrics::nqn_field;
use wire::nvme::feature::async_event;
use wire::nvme::identify::{
    self as wire_id, CSI_NVM, DescriptorHeader, IDENTIFY_BYTES, LIST_CNTLIDS_MAX, LIST_NSIDS_MAX,
    LbaFormat, NamespaceIndependent, NvmController, NvmNamespace, ascii, cns, nidt, zeroed,
};
use wire::nvme::property::VS_2_0;
use wire::nvme::{Sqe, Status, admin};
use zerocopy::IntoBytes;

use crate::command::{
    COPY_BYTES_MAX, COPY_RANGE_BYTES_MAX, COPY_RANGES_MAX, VERIFY_BYTES_MAX,
    WRITE_UNCORRECTABLE_BYTES_MAX, WRITE_ZEROES_BYTES_MAX,
};
use crate::controller::{
    ABORTS_MAX, Controller, ERROR_ENTRIES_MAX, EVENT_REQUESTS_MAX, KEEP_ALIVE_GRANULARITY_MS,
};
use crate::item::NamedItem;
use crate::request::{AdminRequest, Fault, Reply, at};
use crate::reservation::rescap;
use crate::sanitize;
use crate::subsystem::{ADMIN_ENTRIES_MAX, ANA_GROUPS_MAX, NSID_MAX, Namespace, Subsystem};
use crate::transport::Transport;

/// Unit of MDTS, VSL, WZSL and WUSL: the minimum memory page (CAP.MPSMIN is 0),
/// bytes.
const PAGE_BYTES: u32 = 4096;

/// Command Retry Delay Times 1 to 3 (CRDT), in units of 100 ms.
const RETRY_DELAYS_100MS: [u16; 3] = [1, 10, 50];

/// How long an ANA group may be in ANA Change state, seconds (ANATT).
const ANA_TRANSITION_S: u8 = 10;

/// NMIC: any controller of the subsystem may have the namespace.
const NMIC_SHARED: u8 = 1;

/// An Identify data structure.
pub(crate) struct Structure {
    pub item: NamedItem,
    /// It is one of an I/O command set, which CSI names: NVM is the only one.
    of_command_set: bool,
    run: fn(&mut AdminRequest<'_>) -> Result<Reply, Fault>,
}

const fn structure(
    item: NamedItem,
    run: fn(&mut AdminRequest<'_>) -> Result<Reply, Fault>,
) -> Structure {
    Structure {
        item,
        of_command_set: false,
        run,
    }
}

/// Every structure there is; others are Invalid Field in Command.
pub(crate) const STRUCTURES: &[Structure] = &[
    structure(
        NamedItem::io(cns::NAMESPACE, "Identify Namespace", "NVM 4.1.5.1"),
        namespace,
    ),
    structure(
        NamedItem::both(cns::CONTROLLER, "Identify Controller", "5.17.2.1"),
        |request| {
            let data = identify_controller(request.controller);
            request.put(data.as_bytes())
        },
    ),
    structure(
        NamedItem::io(
            cns::ACTIVE_NAMESPACES,
            "Active Namespace ID list",
            "5.17.2.2",
        ),
        namespace_list,
    ),
    structure(
        NamedItem::io(
            cns::DESCRIPTORS,
            "Namespace Identification Descriptor list",
            "5.17.2.3",
        ),
        |request| {
            let data = descriptors(request.namespace()?);
            request.put(&data)
        },
    ),
    Structure {
        of_command_set: true,
        ..structure(
            NamedItem::io(
                cns::NAMESPACE_CSI,
                "I/O Command Set specific Identify Namespace",
                "NVM 4.1.5.3",
            ),
            |request| {
                let data = valid_namespace(request)?.map_or_else(zeroed, nvm_namespace);
                request.put(data.as_bytes())
            },
        )
    },
    Structure {
        of_command_set: true,
        ..structure(
            NamedItem::io(
                cns::CONTROLLER_CSI,
                "I/O Command Set specific Identify Controller",
                "NVM 4.1.5.4",
            ),
            |request| request.put(nvm_controller().as_bytes()),
        )
    },
    Structure {
        of_command_set: true,
        ..structure(
            NamedItem::io(
                cns::ACTIVE_NAMESPACES_CSI,
                "I/O Command Set specific Active Namespace ID list",
                "5.17.2.7",
            ),
            namespace_list,
        )
    },
    structure(
        NamedItem::io(
            cns::NAMESPACE_INDEPENDENT,
            "I/O Command Set Independent Identify Namespace",
            "5.17.2.8",
        ),
        |request| {
            let data = valid_namespace(request)?.map_or_else(zeroed, independent);
            request.put(data.as_bytes())
        },
    ),
    structure(
        NamedItem::io(
            cns::ALLOCATED_NAMESPACES,
            "Allocated Namespace ID list",
            "5.17.2.9",
        ),
        namespace_list,
    ),
    structure(
        NamedItem::io(
            cns::ALLOCATED_NAMESPACE,
            "Identify Namespace for an allocated namespace",
            "5.17.2.10",
        ),
        namespace,
    ),
    structure(
        NamedItem::io(
            cns::NAMESPACE_CONTROLLERS,
            "Controller list of a namespace",
            "5.17.2.11",
        ),
        namespace_controllers,
    ),
    structure(
        NamedItem::io(
            cns::CONTROLLERS,
            "Controller list of the NVM subsystem",
            "5.17.2.12",
        ),
        |request| {
            let from = cntid(request);
            let cntlids = request.controllers.range(from..).map(|(cntlid, _)| *cntlid);
            let list = controller_list(cntlids);
            request.put(&list)
        },
    ),
    structure(
        NamedItem::io(cns::COMMAND_SETS, "I/O Command Set", "5.17.2.21"),
        |request| {
            let cntid = cntid(request);
            if cntid != 0xffff && !request.controllers.contains_key(&cntid) {
                return Err(Fault::field(at::CDW10));
            }
            // One combination: the NVM Command Set.
            let mut data = [0; IDENTIFY_BYTES];
            data[0] = 1;
            request.put(&data)
        },
    ),
];

/// Executes Identify.
pub(crate) fn identify(request: &mut AdminRequest<'_>) -> Result<Reply, Fault> {
    if request.out.len() < IDENTIFY_BYTES {
        return Err(Fault::new(Status::DATA_SGL_LENGTH_INVALID, at::SGL));
    }
    let wanted = request.sqe.cdw10.get() as u8;
    let csi = (request.sqe.cdw11.get() >> 24) as u8;
    let structure = STRUCTURES
        .iter()
        .find(|structure| structure.item.id == wanted)
        .filter(|structure| structure.item.is_for(request.controller.is_discovery))
        .ok_or(Fault::field(at::CDW10))?;
    if structure.of_command_set && csi != CSI_NVM {
        return Err(Fault::field(at::CDW11));
    }
    (structure.run)(request)
}

/// Whether a command is an Identify that looks at other controllers.
pub(crate) fn lists_controllers(sqe: &Sqe) -> bool {
    let wanted = sqe.cdw10.get() as u8;
    sqe.opcode == admin::IDENTIFY
        && matches!(
            wanted,
            cns::NAMESPACE_CONTROLLERS | cns::CONTROLLERS | cns::COMMAND_SETS
        )
}

/// Controller Identifier, CDW10 bits 31:16.
fn cntid(request: &AdminRequest<'_>) -> u16 {
    (request.sqe.cdw10.get() >> 16) as u16
}

/// `None` for a valid identifier without a namespace (section 3.2.1).
fn valid_namespace<'a>(request: &'a AdminRequest<'_>) -> Result<Option<&'a Namespace>, Fault> {
    let nsid = request.sqe.nsid.get();
    if !(1..=NSID_MAX).contains(&nsid) {
        return Err(Fault::new(Status::INVALID_NAMESPACE, at::NSID));
    }
    Ok(request.controller.namespace(nsid))
}

fn namespace(request: &mut AdminRequest<'_>) -> Result<Reply, Fault> {
    let mut data: wire_id::Namespace = zeroed();
    if let Some(namespace) = valid_namespace(request)? {
        data = identify_namespace(namespace);
        if namespace.is_thin {
            let used_bytes = (request.env.used_bytes)(namespace.nsid);
            let used = used_bytes.div_ceil(namespace.block_bytes.into());
            data.nuse = used.min(namespace.block_count).into();
        }
        if !request.controller.ana_state(namespace).is_accessible() {
            // What is in use cannot be seen from here (section 8.1.3.3).
            data.nuse = 0.into();
        }
    }
    request.put(data.as_bytes())
}

fn identify_controller(controller: &Controller) -> wire_id::Controller {
    let subsystem = &controller.subsystem;
    let mut id: wire_id::Controller = zeroed();
    ascii(&mut id.sn, &subsystem.serial);
    ascii(&mut id.mn, &subsystem.model);
    ascii(&mut id.fr, &subsystem.firmware);
    id.mdts = power_of_pages(subsystem.limits.io_bytes_max);
    id.cntlid = controller.cntlid.into();
    id.ver = VS_2_0.into();
    // Traffic based keep alive.
    id.ctratt = (1 << 6).into();
    id.aerl = EVENT_REQUESTS_MAX as u8 - 1;
    id.elpe = ERROR_ENTRIES_MAX as u8 - 1;
    id.kas = (KEEP_ALIVE_GRANULARITY_MS as u16 / 100).into();
    // SGLs without alignment, in-capsule offsets, and what carries other data: keyed data
    // blocks or transport data blocks.
    let carries = match controller.arrival.transport {
        Transport::Rdma => 1 << 2,
        Transport::Tcp => 1 << 21,
    };
    id.sgls = (1 | 1 << 20 | carries).into();
    nqn_field(&mut id.subnqn, &subsystem.nqn);
    if controller.is_discovery {
        id.cntrltype = 2;
        id.oaes = async_event::DISCOVERY_CHANGE.into();
        // Log page offsets, the logs that tell about logs.
        id.lpa = 1 << 2 | 1 << 5;
        id.maxcmd = ADMIN_ENTRIES_MAX.into();
        return id;
    }
    identify_io_controller(&mut id, subsystem);
    id.sanicap = sanitize::capabilities(controller).into();
    identify_ana(&mut id);
    id
}

/// What only I/O controllers have.
fn identify_io_controller(id: &mut wire_id::Controller, subsystem: &Subsystem) {
    let limits = &subsystem.limits;
    id.cntrltype = 1;
    id.rab = 6;
    // Several ports, several controllers, ANA reporting.
    id.cmic = 1 | 1 << 1 | 1 << 3;
    id.oaes = (async_event::NAMESPACE_ATTRIBUTE | async_event::ANA_CHANGE).into();
    // 128-bit host identifiers, traffic based keep alive.
    id.ctratt = (1 | 1 << 6).into();
    for (field, delay_100ms) in id.crdt.iter_mut().zip(RETRY_DELAYS_100MS) {
        *field = delay_100ms.into();
    }
    // Format NVM, Get LBA Status.
    id.oacs = (1 << 1 | 1 << 9).into();
    // A Format NVM is of one namespace, and erases by cryptography.
    id.fna = 1 << 2 | 1 << 3;
    id.acl = ABORTS_MAX as u8 - 1;
    // One slot, read only.
    id.frmw = 1 | 1 << 1;
    // SMART by namespace, command effects, offsets, the logs that tell about logs.
    id.lpa = 1 | 1 << 1 | 1 << 2 | 1 << 5;
    id.sqes = 0x66;
    id.cqes = 0x44;
    id.maxcmd = limits.queue_entries_max.into();
    id.nn = NSID_MAX.into();
    id.mnan = NSID_MAX.into();
    // Compare, Write Uncorrectable, Dataset Management, Write Zeroes, the select
    // field of Get Features, reservations, Timestamp, Verify, Copy.
    id.oncs = 0x1ff.into();
    // Compare and Write.
    id.fuses = 1.into();
    // A Flush of all namespaces at once is done (bits 2:1 are 11b).
    id.vwc = 3 << 1 | u8::from(subsystem.has_volatile_cache());
    // AWUN, AWUPF and ACWU stay at one block, which namespaces added later have
    // too: each says itself what more it has.
    id.nwpc = 1 | 1 << 1;
    if subsystem.namespaces.iter().any(|one| one.persists_state) {
        id.nwpc |= 1 << 2;
    }
    // Copy descriptor formats 0h to 3h.
    id.cdfs = 0xf.into();
    id.ioccsz = ((64 + limits.in_capsule_bytes_max) / 16).into();
    id.iorcsz = 1.into();
    id.msdbd = 1;
    // Disconnect of an I/O queue.
    id.ofcs = 1.into();
}

/// Asymmetric Namespace Access (section 8.1). Linux makes room for the log page
/// of so many groups and namespaces, and gives ANA up where MNAN is 0.
fn identify_ana(id: &mut wire_id::Controller) {
    id.anatt = ANA_TRANSITION_S;
    // Every state can be reported; namespaces may change their group.
    id.anacap = 0x1f;
    id.anagrpmax = ANA_GROUPS_MAX.into();
    id.nanagrpid = ANA_GROUPS_MAX.into();
}

/// Limits of the commands of the NVM Command Set.
fn nvm_controller() -> NvmController {
    let mut data: NvmController = zeroed();
    data.vsl = power_of_pages(VERIFY_BYTES_MAX as u32);
    data.wzsl = power_of_pages(WRITE_ZEROES_BYTES_MAX as u32);
    data.wusl = power_of_pages(WRITE_UNCORRECTABLE_BYTES_MAX as u32);
    // Get LBA Status tells allocated blocks.
    data.aocs = 1.into();
    data
}

/// No storage tags and no further formats.
fn nvm_namespace(namespace: &Namespace) -> NvmNamespace {
    let mut data: NvmNamespace = zeroed();
    let blocks = u32::from(namespace.blocks_0s_based(namespace.preferred_bytes)) + 1;
    data.tlbaag = blocks.into();
    data
}

fn identify_namespace(namespace: &Namespace) -> wire_id::Namespace {
    let mut id: wire_id::Namespace = zeroed();
    let blocks = namespace.block_count;
    id.nsze = blocks.into();
    id.ncap = blocks.into();
    id.nuse = blocks.into();
    // Thin provisioning, atomicity and preferred sizes of its own; its
    // identifiers are never another's (UIDREUSE).
    id.nsfeat = u8::from(namespace.is_thin) | 1 << 1 | 1 << 3 | 1 << 4;
    id.nmic = NMIC_SHARED;
    id.rescap = rescap(namespace.persists_state);
    // Deallocated blocks read as zeros; Write Zeroes may deallocate.
    id.dlfeat = 1 | 1 << 3;
    let atomic = namespace.blocks_0s_based(namespace.atomic_bytes);
    id.nawun = atomic.into();
    id.nacwu = atomic.into();
    let power_fail = namespace.blocks_0s_based(namespace.atomic_power_fail_bytes);
    id.nawupf = power_fail.into();
    id.nvmcap = (u128::from(blocks) * u128::from(namespace.block_bytes)).to_le_bytes();
    let preferred = namespace.blocks_0s_based(namespace.preferred_bytes);
    for field in [
        &mut id.npwg,
        &mut id.npwa,
        &mut id.npdg,
        &mut id.npda,
        &mut id.nows,
    ] {
        *field = preferred.into();
    }
    let in_blocks = |bytes: u64| bytes / u64::from(namespace.block_bytes);
    id.mssrl = u16::try_from(in_blocks(COPY_RANGE_BYTES_MAX))
        .unwrap_or(u16::MAX)
        .into();
    id.mcl = (in_blocks(COPY_BYTES_MAX) as u32).into();
    id.msrc = (COPY_RANGES_MAX - 1) as u8;
    id.anagrpid = namespace.ana_group.into();
    id.nsattr = u8::from(namespace.refuses_writes());
    id.nguid = namespace.nguid;
    id.eui64 = namespace.eui64.unwrap_or_default();
    id.lbaf[0] = LbaFormat {
        ms: 0.into(),
        lbads: namespace.block_bytes.trailing_zeros() as u8,
        rp: 0,
    };
    id
}

fn independent(namespace: &Namespace) -> NamespaceIndependent {
    let mut id: NamespaceIndependent = zeroed();
    // UIDREUSE stands where it does in Identify Namespace.
    id.nsfeat = 1 << 3;
    id.nmic = NMIC_SHARED;
    id.rescap = rescap(namespace.persists_state);
    id.anagrpid = namespace.ana_group.into();
    id.nsattr = u8::from(namespace.refuses_writes());
    id.nstat = u8::from(namespace.is_ready);
    id
}

fn descriptors(namespace: &Namespace) -> [u8; IDENTIFY_BYTES] {
    let mut list = [0; IDENTIFY_BYTES];
    let mut at = 0;
    let mut add = |nidt: u8, id: &[u8]| {
        let header = DescriptorHeader::new(nidt, id.len() as u8);
        for part in [header.as_bytes(), id] {
            list[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
    };
    if let Some(eui64) = &namespace.eui64 {
        add(nidt::EUI64, eui64);
    }
    if namespace.nguid != [0; 16] {
        add(nidt::NGUID, &namespace.nguid);
    }
    if namespace.uuid != [0; 16] {
        add(nidt::UUID, &namespace.uuid);
    }
    add(nidt::CSI, &[CSI_NVM]);
    list
}

/// Identifiers above `nsid`, ascending.
fn namespace_list(request: &mut AdminRequest<'_>) -> Result<Reply, Fault> {
    let nsid = request.sqe.nsid.get();
    if nsid >= 0xffff_fffe {
        return Err(Fault::new(Status::INVALID_NAMESPACE, at::NSID));
    }
    let mut nsids: Vec<u32> = request
        .controller
        .namespaces()
        .map(|namespace| namespace.nsid)
        .filter(|other| *other > nsid)
        .collect();
    nsids.sort_unstable();
    let mut list = [0; IDENTIFY_BYTES];
    for (slot, nsid) in list
        .chunks_exact_mut(4)
        .zip(nsids.into_iter().take(LIST_NSIDS_MAX))
    {
        slot.copy_from_slice(&nsid.to_le_bytes());
    }
    request.put(&list)
}

/// The controllers whose hosts see a namespace.
fn namespace_controllers(request: &mut AdminRequest<'_>) -> Result<Reply, Fault> {
    let mut list = [0; IDENTIFY_BYTES];
    if let Some(namespace) = valid_namespace(request)? {
        let cntlids = request
            .controllers
            .range(cntid(request)..)
            .filter(|(_, hostnqn)| namespace.is_visible_to(hostnqn))
            .map(|(cntlid, _)| *cntlid);
        list = controller_list(cntlids);
    }
    request.put(&list)
}

/// Controller IDs after their count.
fn controller_list(cntlids: impl Iterator<Item = u16>) -> [u8; IDENTIFY_BYTES] {
    let mut list = [0; IDENTIFY_BYTES];
    let mut count = 0u16;
    for (slot, cntlid) in list[2..]
        .chunks_exact_mut(2)
        .zip(cntlids.take(LIST_CNTLIDS_MAX))
    {
        slot.copy_from_slice(&cntlid.to_le_bytes());
        count += 1;
    }
    list[..2].copy_from_slice(&count.to_le_bytes());
    list
}

/// `bytes` as a power of two of pages, rounded down; 0 would mean no limit.
fn power_of_pages(bytes: u32) -> u8 {
    (bytes / PAGE_BYTES).max(1).ilog2().max(1) as u8
}
