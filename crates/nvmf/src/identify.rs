//! Identify (NVM Express Base Specification 2.0, section 5.17).

use wire::nvme::Status;
use wire::nvme::fabrics::nqn_field;
use wire::nvme::feature::async_event;
use wire::nvme::identify::{
    self as wire_id, CSI_NVM, DescriptorHeader, IDENTIFY_BYTES, LIST_CNTLIDS_MAX, LIST_NSIDS_MAX,
    LbaFormat, NamespaceIndependent, NvmController, ascii, cns, nidt, zeroed,
};
use wire::nvme::property::VS_2_0;
use zerocopy::IntoBytes;

use crate::admin::{Fault, Reply, Request, at};
use crate::command::WRITE_ZEROES_BYTES_MAX;
use crate::controller::{
    Controller, ERROR_ENTRIES_MAX, EVENT_REQUESTS_MAX, KEEP_ALIVE_GRANULARITY_MS,
};
use crate::registry::ADMIN_ENTRIES_MAX;
use crate::subsystem::{NSID_MAX, Namespace, Subsystem};

/// Unit of MDTS, WZSL: the minimum memory page (CAP.MPSMIN is 0), bytes.
const PAGE_BYTES: u32 = 4096;

/// What hosts should write at once at least, bytes: the page that stores keep.
const PREFERRED_BYTES: u32 = 4096;

/// Executes Identify.
pub(crate) fn identify(request: &mut Request<'_>) -> Result<Reply, Fault> {
    let cdw10 = request.sqe.cdw10.get();
    let (wanted, cntid) = (cdw10 as u8, (cdw10 >> 16) as u16);
    let csi = (request.sqe.cdw11.get() >> 24) as u8;
    let nsid = request.sqe.nsid.get();
    if request.out.len() < IDENTIFY_BYTES {
        return Err(Fault::new(Status::DATA_SGL_LENGTH_INVALID, at::SGL));
    }
    let controller = &*request.controller;
    let subsystem = controller.subsystem.clone();
    if controller.is_discovery && wanted != cns::CONTROLLER {
        return Err(Fault::field(at::CDW10));
    }
    let needs_nvm = matches!(
        wanted,
        cns::NAMESPACE_CSI | cns::CONTROLLER_CSI | cns::ACTIVE_NAMESPACES_CSI
    );
    if needs_nvm && csi != CSI_NVM {
        return Err(Fault::field(at::CDW11));
    }
    match wanted {
        cns::CONTROLLER => {
            let data = identify_controller(controller);
            request.put(data.as_bytes())
        }
        cns::NAMESPACE | cns::ALLOCATED_NAMESPACE => {
            let data = valid_namespace(&subsystem, nsid)?.map_or_else(zeroed, identify_namespace);
            request.put(data.as_bytes())
        }
        cns::NAMESPACE_INDEPENDENT => {
            let data = valid_namespace(&subsystem, nsid)?.map_or_else(zeroed, independent);
            request.put(data.as_bytes())
        }
        cns::NAMESPACE_CSI => {
            // No storage tags and no further formats: all fields are 0.
            valid_namespace(&subsystem, nsid)?;
            request.put(&[0; IDENTIFY_BYTES])
        }
        cns::CONTROLLER_CSI => {
            let mut data: NvmController = zeroed();
            data.wzsl = power_of_pages(WRITE_ZEROES_BYTES_MAX as u32);
            request.put(data.as_bytes())
        }
        cns::ACTIVE_NAMESPACES | cns::ACTIVE_NAMESPACES_CSI | cns::ALLOCATED_NAMESPACES => {
            namespace_list(request, &subsystem, nsid)
        }
        cns::DESCRIPTORS => {
            let (_, namespace) = subsystem
                .namespace(nsid)
                .ok_or(Fault::new(Status::INVALID_NAMESPACE, at::NSID))?;
            request.put(&descriptors(namespace))
        }
        cns::NAMESPACE_CONTROLLERS => {
            // Every namespace is attached to every controller.
            let is_active = valid_namespace(&subsystem, nsid)?.is_some();
            controller_list(request, if is_active { cntid } else { u16::MAX })
        }
        cns::CONTROLLERS => controller_list(request, cntid),
        cns::COMMAND_SETS => {
            if cntid != 0xffff && !request.cntlids.contains_key(&cntid) {
                return Err(Fault::field(at::CDW10));
            }
            // One combination: the NVM Command Set.
            let mut data = [0; IDENTIFY_BYTES];
            data[0] = 1;
            request.put(&data)
        }
        _ => Err(Fault::field(at::CDW10)),
    }
}

/// `None` for a valid identifier without a namespace (section 3.2.1).
fn valid_namespace(subsystem: &Subsystem, nsid: u32) -> Result<Option<&Namespace>, Fault> {
    if !(1..=NSID_MAX).contains(&nsid) {
        return Err(Fault::new(Status::INVALID_NAMESPACE, at::NSID));
    }
    Ok(subsystem.namespace(nsid).map(|(_, namespace)| namespace))
}

fn identify_controller(controller: &Controller) -> wire_id::Controller {
    let subsystem = &controller.subsystem;
    let limits = &subsystem.limits;
    let mut id: wire_id::Controller = zeroed();
    ascii(&mut id.sn, &subsystem.serial);
    ascii(&mut id.mn, &subsystem.model);
    ascii(&mut id.fr, &subsystem.firmware);
    id.mdts = power_of_pages(limits.io_bytes_max);
    id.cntlid = controller.cntlid.into();
    id.ver = VS_2_0.into();
    // Traffic based keep alive.
    id.ctratt = (1 << 6).into();
    id.aerl = EVENT_REQUESTS_MAX as u8 - 1;
    id.elpe = ERROR_ENTRIES_MAX as u8 - 1;
    id.kas = (KEEP_ALIVE_GRANULARITY_MS as u16 / 100).into();
    // SGLs without alignment, in-capsule offsets, transport data blocks.
    id.sgls = (1 | 1 << 20 | 1 << 21).into();
    nqn_field(&mut id.subnqn, &subsystem.nqn);
    if controller.is_discovery {
        id.cntrltype = 2;
        id.oaes = async_event::DISCOVERY_CHANGE.into();
        // Log page offsets.
        id.lpa = 1 << 2;
        id.maxcmd = ADMIN_ENTRIES_MAX.into();
        return id;
    }
    id.cntrltype = 1;
    id.rab = 6;
    // Several ports and several controllers.
    id.cmic = 1 | 1 << 1;
    id.oaes = async_event::NAMESPACE_ATTRIBUTE.into();
    // 128-bit host identifiers, traffic based keep alive.
    id.ctratt = (1 | 1 << 6).into();
    id.acl = 3;
    // One slot, read only.
    id.frmw = 1 | 1 << 1;
    // SMART by namespace, command effects, offsets, the logs that tell about logs.
    id.lpa = 1 | 1 << 1 | 1 << 2 | 1 << 5;
    id.sqes = 0x66;
    id.cqes = 0x44;
    id.maxcmd = limits.queue_entries_max.into();
    id.nn = NSID_MAX.into();
    // Compare, Dataset Management, Write Zeroes, the select field of Get Features.
    id.oncs = (1 | 1 << 2 | 1 << 3 | 1 << 4).into();
    // A Flush of all namespaces at once is refused (bits 2:1 are 10b).
    id.vwc = 2 << 1 | u8::from(subsystem.has_volatile_cache());
    id.ioccsz = ((64 + limits.in_capsule_bytes_max) / 16).into();
    id.iorcsz = 1.into();
    id.msdbd = 1;
    // Disconnect of an I/O queue.
    id.ofcs = 1.into();
    id
}

fn identify_namespace(namespace: &Namespace) -> wire_id::Namespace {
    let mut id: wire_id::Namespace = zeroed();
    let blocks = namespace.block_count;
    id.nsze = blocks.into();
    id.ncap = blocks.into();
    id.nuse = blocks.into();
    // The preferred sizes below are there.
    id.nsfeat = 1 << 4;
    // Shared: any controller of the subsystem has it.
    id.nmic = 1;
    // Deallocated blocks read as zeros; Write Zeroes may deallocate.
    id.dlfeat = 1 | 1 << 3;
    id.nvmcap = (u128::from(blocks) * u128::from(namespace.block_bytes)).to_le_bytes();
    let preferred = (PREFERRED_BYTES / namespace.block_bytes).max(1) as u16 - 1;
    for field in [
        &mut id.npwg,
        &mut id.npwa,
        &mut id.npdg,
        &mut id.npda,
        &mut id.nows,
    ] {
        *field = preferred.into();
    }
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
    id.nmic = 1;
    id.nsattr = u8::from(namespace.refuses_writes());
    id.nstat = 1;
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
fn namespace_list(
    request: &mut Request<'_>,
    subsystem: &Subsystem,
    nsid: u32,
) -> Result<Reply, Fault> {
    if nsid >= 0xffff_fffe {
        return Err(Fault::new(Status::INVALID_NAMESPACE, at::NSID));
    }
    let mut nsids: Vec<u32> = subsystem
        .namespaces
        .iter()
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

/// Controller IDs from `cntid` on, ascending, after their count.
fn controller_list(request: &mut Request<'_>, cntid: u16) -> Result<Reply, Fault> {
    let mut list = [0; IDENTIFY_BYTES];
    let mut count = 0u16;
    let from = request.cntlids.range(cntid..).map(|(cntlid, _)| cntlid);
    for (slot, cntlid) in list[2..]
        .chunks_exact_mut(2)
        .zip(from.take(LIST_CNTLIDS_MAX))
    {
        slot.copy_from_slice(&cntlid.to_le_bytes());
        count += 1;
    }
    list[..2].copy_from_slice(&count.to_le_bytes());
    request.put(&list)
}

/// `bytes` as a power of two of pages, rounded down; 0 would mean no limit.
fn power_of_pages(bytes: u32) -> u8 {
    (bytes / PAGE_BYTES).max(1).ilog2().max(1) as u8
}
