//! INQUIRY: standard data and vital product data pages.

use wire::scsi::vpd::{association, code_set, designator, page};
use wire::scsi::{SENSE_MAX, StandardInquiry};
use zerocopy::IntoBytes;

use crate::block::WRITE_SAME_BYTES_MAX;
use crate::sense::Sense;
use crate::unit::{Addressed, PRODUCT, TargetView, Unit, VENDOR};
use crate::{third_party_copy, unmap};

/// A direct access block device, there.
const BLOCK_DEVICE: u8 = 0x00;
/// A well known logical unit, there.
const WELL_KNOWN: u8 = 0x1e;
/// Peripheral qualifier 011b and device type 1Fh: nothing is or can be there.
const NOTHING: u8 = 0x7f;

/// SAM-5, SPC-4, SBC-3, iSCSI, without version of the text (SPC-4, VERSION DESCRIPTOR).
const VERSIONS: [u16; 4] = [0x00a0, 0x0460, 0x04c0, 0x0960];

/// TPGS: implicit and explicit asymmetric access.
const TPGS: u8 = 0x30;
/// 3PC: third-party copy.
const THIRD_PARTY_COPY: u8 = 0x08;

/// PROTOCOL IDENTIFIER of iSCSI (SPC-4).
const PROTOCOL_ISCSI: u8 = 0x5;

/// Transfers that a volume handles best, in bytes at most.
const OPTIMAL_BYTES: u32 = 1 << 20;

/// A vital product data page.
struct VpdPage {
    code: u8,
    name: &'static str,
    /// Appends what follows its header.
    append: fn(&Unit, &TargetView, &mut Vec<u8>),
}

/// By page code, ascending.
static PAGES: [VpdPage; 10] = [
    VpdPage {
        code: page::SUPPORTED_PAGES,
        name: "Supported VPD Pages",
        append: |_, _, out| out.extend(PAGES.iter().map(|page| page.code)),
    },
    VpdPage {
        code: page::UNIT_SERIAL_NUMBER,
        name: "Unit Serial Number",
        append: |unit, _, out| out.extend_from_slice(unit.identity.serial.as_bytes()),
    },
    VpdPage {
        code: page::DEVICE_IDENTIFICATION,
        name: "Device Identification",
        append: device_identification,
    },
    VpdPage {
        code: page::EXTENDED_INQUIRY,
        name: "Extended INQUIRY Data",
        append: extended_inquiry,
    },
    VpdPage {
        code: page::MODE_PAGE_POLICY,
        name: "Mode Page Policy",
        append: mode_page_policy,
    },
    VpdPage {
        code: page::SCSI_PORTS,
        name: "SCSI Ports",
        append: scsi_ports,
    },
    VpdPage {
        code: page::THIRD_PARTY_COPY,
        name: "Third-party Copy",
        append: third_party_copy::page,
    },
    VpdPage {
        code: page::BLOCK_LIMITS,
        name: "Block Limits",
        append: block_limits,
    },
    VpdPage {
        code: page::BLOCK_DEVICE_CHARACTERISTICS,
        name: "Block Device Characteristics",
        append: block_device_characteristics,
    },
    VpdPage {
        code: page::LOGICAL_BLOCK_PROVISIONING,
        name: "Logical Block Provisioning",
        append: logical_block_provisioning,
    },
];

/// Code and name of every page, for the documents.
pub(crate) fn pages() -> impl Iterator<Item = (u8, &'static str)> {
    PAGES.iter().map(|page| (page.code, page.name))
}

pub(crate) fn answer(
    page: Option<u8>,
    to: Addressed<'_>,
    target: &TargetView,
    out: &mut Vec<u8>,
) -> Result<(), Sense> {
    match page {
        None => standard(to, out),
        Some(code) => vital(code, to, target, out)?,
    }
    Ok(())
}

fn standard(to: Addressed<'_>, out: &mut Vec<u8>) {
    let mut data = StandardInquiry {
        peripheral: peripheral(to),
        rmb: 0,
        version: 0x06,
        // HISUP: LUNs are numbered hierarchically.
        format: 0x12,
        additional_length: (size_of::<StandardInquiry>() - 5) as u8,
        flags5: 0,
        // MULTIP.
        flags6: 0x10,
        // CMDQUE.
        flags7: 0x02,
        vendor: text(VENDOR),
        product: text(PRODUCT),
        revision: text(""),
        vendor_specific: [0; 20],
        reserved56: [0; 2],
        versions: [0.into(); 8],
        reserved74: [0; 22],
    };
    for (place, version) in data.versions.iter_mut().zip(VERSIONS) {
        *place = version.into();
    }
    if let Addressed::Unit(unit) = to {
        data.flags5 = TPGS | THIRD_PARTY_COPY;
        data.vendor = text(&unit.identity.vendor);
        data.product = text(&unit.identity.product);
        data.revision = text(&unit.identity.revision);
    }
    out.extend_from_slice(data.as_bytes());
}

fn peripheral(to: Addressed<'_>) -> u8 {
    match to {
        Addressed::Unit(_) => BLOCK_DEVICE,
        Addressed::ReportLuns => WELL_KNOWN,
        Addressed::Nothing => NOTHING,
    }
}

/// Padded with spaces, or cut.
fn text<const N: usize>(text: &str) -> [u8; N] {
    let mut bytes = [b' '; N];
    let len = text.len().min(N);
    bytes[..len].copy_from_slice(&text.as_bytes()[..len]);
    bytes
}

/// Where there is no block device only what it is called is told.
fn vital(code: u8, to: Addressed<'_>, target: &TargetView, out: &mut Vec<u8>) -> Result<(), Sense> {
    let start = out.len();
    out.extend_from_slice(&[peripheral(to), code, 0, 0]);
    match (to, code) {
        (Addressed::Unit(unit), _) => {
            let found = PAGES.iter().find(|page| page.code == code);
            let page = found.ok_or(Sense::in_cdb(2, None))?;
            (page.append)(unit, target, out);
        }
        (Addressed::ReportLuns, page::SUPPORTED_PAGES) => {
            out.extend([page::SUPPORTED_PAGES, page::DEVICE_IDENTIFICATION]);
        }
        (Addressed::ReportLuns, page::DEVICE_IDENTIFICATION) => target_name(target, out),
        (Addressed::Nothing, page::SUPPORTED_PAGES) => out.push(page::SUPPORTED_PAGES),
        _ => return Err(Sense::in_cdb(2, None)),
    }
    let len = (out.len() - start - 4) as u16;
    out[start + 2..start + 4].copy_from_slice(&len.to_be_bytes());
    Ok(())
}

/// Appends a designation descriptor (SPC-4, section 7.8).
fn designate(out: &mut Vec<u8>, code_set: u8, of: u8, kind: u8, value: &[u8]) {
    // PIV and the protocol for what belongs to a port or to the device.
    let (protocol, piv) = match of {
        association::LOGICAL_UNIT => (0, 0),
        _ => (PROTOCOL_ISCSI << 4, 0x80),
    };
    let len = u8::try_from(value.len()).expect("a designator is at most 255 bytes");
    out.extend([protocol | code_set, piv | of << 4 | kind, 0, len]);
    out.extend_from_slice(value);
}

/// The identity that NVMe hosts see as NGUID and UUID, then the way that the
/// request came.
fn device_identification(unit: &Unit, target: &TargetView, out: &mut Vec<u8>) {
    use association::{LOGICAL_UNIT, TARGET_PORT};
    let identity = &unit.identity;
    let naa = &identity.naa;
    designate(out, code_set::BINARY, LOGICAL_UNIT, designator::NAA, naa);
    let short = identity.eui64.as_ref().map(|eui| &eui[..]);
    for eui in short.into_iter().chain([&identity.nguid[..]]) {
        designate(out, code_set::BINARY, LOGICAL_UNIT, designator::EUI_64, eui);
    }
    let mut vendor = text::<8>(&identity.vendor).to_vec();
    vendor.extend_from_slice(identity.serial.as_bytes());
    let kind = designator::T10_VENDOR_ID;
    designate(out, code_set::ASCII, LOGICAL_UNIT, kind, &vendor);
    // A locally assigned UUID, whose first byte says so (SPC-5).
    let mut uuid = [0; 18];
    uuid[0] = 0x10;
    uuid[2..].copy_from_slice(&identity.uuid);
    designate(out, code_set::BINARY, LOGICAL_UNIT, designator::UUID, &uuid);
    let port = u32::from(unit.here.id).to_be_bytes();
    let kind = designator::RELATIVE_TARGET_PORT;
    designate(out, code_set::BINARY, TARGET_PORT, kind, &port);
    let group = u32::from(unit.here.group).to_be_bytes();
    let kind = designator::TARGET_PORT_GROUP;
    designate(out, code_set::BINARY, TARGET_PORT, kind, &group);
    let name = port_name(target, unit.here.group);
    name_string(out, TARGET_PORT, &name);
    target_name(target, out);
}

/// The name of a target port of iSCSI (RFC 7143, section 4.4.1).
fn port_name(target: &TargetView, tag: u16) -> String {
    format!("{},t,0x{tag:04x}", target.name)
}

/// The name of the SCSI target device.
fn target_name(target: &TargetView, out: &mut Vec<u8>) {
    name_string(out, association::TARGET_DEVICE, &target.name);
}

/// Ends with a zero, in whole words.
fn name_string(out: &mut Vec<u8>, of: u8, name: &str) {
    let mut name = name.as_bytes().to_vec();
    name.resize((name.len() + 1).next_multiple_of(4), 0);
    designate(
        out,
        code_set::UTF_8,
        of,
        designator::SCSI_NAME_STRING,
        &name,
    );
}

/// Extended INQUIRY Data (SPC-4, section 7.8).
fn extended_inquiry(unit: &Unit, _: &TargetView, out: &mut Vec<u8>) {
    let mut page = [0; 60];
    // UASK_SUP, HEADSUP, ORDSUP, SIMPSUP.
    page[1] = 0x27;
    // V_SUP.
    page[2] = u8::from(unit.volatile_cache);
    // MAXIMUM SUPPORTED SENSE DATA LENGTH.
    page[9] = SENSE_MAX as u8;
    out.extend_from_slice(&page);
}

/// One descriptor for all pages: they are shared by all I_T nexuses, not by
/// several logical units (SPC-4, section 7.8).
fn mode_page_policy(_: &Unit, _: &TargetView, out: &mut Vec<u8>) {
    out.extend([0x3f, 0xff, 0x00, 0x00]);
}

/// SCSI Ports (SPC-4, section 7.8).
fn scsi_ports(unit: &Unit, target: &TargetView, out: &mut Vec<u8>) {
    for group in unit.groups.iter() {
        let name = port_name(target, group.tag);
        for id in &group.ports {
            out.extend_from_slice(&[0, 0]);
            out.extend_from_slice(&id.to_be_bytes());
            // No initiator port transport identifier.
            out.extend_from_slice(&[0; 6]);
            let len_at = out.len();
            out.extend_from_slice(&[0; 2]);
            name_string(out, association::TARGET_PORT, &name);
            let len = (out.len() - len_at - 2) as u16;
            out[len_at..len_at + 2].copy_from_slice(&len.to_be_bytes());
        }
    }
}

/// Block Limits (SBC-3; bytes 44 to 63: SBC-4).
fn block_limits(unit: &Unit, _: &TargetView, out: &mut Vec<u8>) {
    let block = unit.block_bytes;
    let physical = 1u32 << unit.physical_exponent;
    let write_same = WRITE_SAME_BYTES_MAX / u64::from(block);
    let (unmap_blocks, unmap_descriptors) = match unit.thin {
        true => (unmap::BLOCKS_MAX, unmap::DESCRIPTORS_MAX as u32),
        false => (0, 0),
    };
    let atomic = unit.atomic_blocks_max();
    // WSNZ.
    out.extend([1, unit.compare_and_write_blocks_max()]);
    out.extend_from_slice(&(physical as u16).to_be_bytes());
    let words = [
        unit.transfer_blocks_max(),
        unit.io_bytes_max.min(OPTIMAL_BYTES) / block,
        // MAXIMUM PREFETCH LENGTH: no limit.
        0,
        unmap_blocks,
        unmap_descriptors,
        physical,
        // UGAVALID, and an alignment of 0.
        1 << 31,
        (write_same >> 32) as u32,
        write_same as u32,
        atomic,
        // ATOMIC ALIGNMENT and ATOMIC TRANSFER LENGTH GRANULARITY: none.
        0,
        0,
        // No atomic boundaries.
        0,
        0,
    ];
    out.extend(words.iter().flat_map(|word| word.to_be_bytes()));
}

/// Block Device Characteristics (SBC-3).
fn block_device_characteristics(_: &Unit, _: &TargetView, out: &mut Vec<u8>) {
    let mut page = [0; 60];
    // MEDIUM ROTATION RATE 0001h: it does not rotate.
    page[1] = 1;
    out.extend_from_slice(&page);
}

/// Logical Block Provisioning (SBC-3).
fn logical_block_provisioning(unit: &Unit, _: &TargetView, out: &mut Vec<u8>) {
    out.extend(match unit.thin {
        // LBPU, LBPWS, LBPWS10, LBPRZ 001b; PROVISIONING TYPE thin.
        true => [unit.threshold_exponent(), 0xe4, 0x02, 0],
        false => [0; 4],
    });
}

#[cfg(test)]
mod tests;
