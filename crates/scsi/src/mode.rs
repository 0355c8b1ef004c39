//! Mode parameters: MODE SENSE and MODE SELECT (SPC-4,
//! section 7.5; SBC-3).
//!
//! Current values are the logical unit's ([`Unit::modes`]); none can be saved.

use wire::scsi::{SENSE_MAX, asc};

use crate::command::{ModeSelect, ModeSense};
use crate::provisioning::{AVAILABLE, Threshold, USED};
use crate::sense::{AVAILABLE_AT, Sense, USED_AT};
use crate::unit::{Modes, Unit};

/// Bytes of a MODE SELECT parameter list at most: more than all pages together.
pub const LIST_BYTES_MAX: u16 = 1 << 10;

/// The page code that asks for all pages.
const ALL_PAGES: u8 = 0x3f;
/// The subpage code that asks for all subpages.
const ALL_SUBPAGES: u8 = 0xff;

/// PC, page control.
const CHANGEABLE: u8 = 1;
const DEFAULT: u8 = 2;
const SAVED: u8 = 3;

/// Bytes of parameters of the longest page.
const PAGE_BYTES_MAX: usize = 28;

type Parameters = [u8; PAGE_BYTES_MAX];

/// A mode page. Parameters are what follows PAGE LENGTH.
struct ModePage {
    name: &'static str,
    code: u8,
    subpage: u8,
    /// Bytes of parameters.
    len: usize,
    /// Writes values into zeros.
    values: fn(&Unit, &Modes, &mut Parameters),
    /// Sets the bits that MODE SELECT may change.
    changeable: fn(&Unit, &mut Parameters),
    /// Takes those bits.
    take: fn(&Parameters, &mut Modes),
    /// Which they are, for the documents.
    settings: &'static str,
    /// Of thin units alone.
    is_thin: bool,
}

/// By code and subpage; a host that asks for all wants this order.
static PAGES: [ModePage; 6] = [
    // Nothing is retried or reallocated that a host could have a say in.
    ModePage {
        name: "Read-Write Error Recovery",
        code: 0x01,
        subpage: 0,
        len: 10,
        // LBPERE: thresholds of thin provisioning are told.
        values: |unit, _, page| page[5] = u8::from(unit.has_thresholds()) * LBPERE,
        changeable: |_, _| {},
        take: |_, _| {},
        settings: "",
        is_thin: false,
    },
    ModePage {
        name: "Caching",
        code: 0x08,
        subpage: 0,
        len: 18,
        values: |unit, modes, page| {
            let is_on = unit.volatile_cache && modes.write_cache;
            page[0] = u8::from(is_on) * WCE;
        },
        changeable: |unit, page| page[0] = u8::from(unit.volatile_cache) * WCE,
        take: |page, modes| modes.write_cache = page[0] & WCE != 0,
        settings: "WCE, where there is a volatile write cache",
        is_thin: false,
    },
    ModePage {
        name: "Control",
        code: 0x0a,
        subpage: 0,
        len: 10,
        values: |_, modes, page| {
            // TST 001b: a task set for each I_T nexus.
            page[0] = 0x20 | GLTSD | (u8::from(modes.descriptor_sense) * D_SENSE);
            // QUEUE ALGORITHM MODIFIER 1h: unrestricted reordering; QERR 00b.
            page[1] = 0x10;
            page[2] = u8::from(modes.write_protected) * SWP;
            // BUSY TIMEOUT PERIOD: unlimited.
            page[6..8].copy_from_slice(&[0xff, 0xff]);
        },
        changeable: |_, page| {
            page[0] = D_SENSE;
            page[2] = SWP;
        },
        take: |page, modes| {
            modes.descriptor_sense = page[0] & D_SENSE != 0;
            modes.write_protected = page[2] & SWP != 0;
        },
        settings: "D_SENSE, SWP",
        is_thin: false,
    },
    ModePage {
        name: "Control Extension",
        code: 0x0a,
        subpage: 0x01,
        len: 28,
        values: |_, _, page| {
            // IALUAE: access states may change by themselves.
            page[0] = 0x01;
            // MAXIMUM SENSE DATA LENGTH.
            page[2] = SENSE_MAX as u8;
        },
        changeable: |_, _| {},
        take: |_, _| {},
        settings: "",
        is_thin: false,
    },
    // DEXCPT: none are reported.
    ModePage {
        name: "Informational Exceptions Control",
        code: 0x1c,
        subpage: 0,
        len: 10,
        values: |_, _, page| page[0] = 0x08,
        changeable: |_, _| {},
        take: |_, _| {},
        settings: "",
        is_thin: false,
    },
    // SITUA is 0: every nexus is told.
    ModePage {
        name: "Logical Block Provisioning",
        code: 0x1c,
        subpage: 0x02,
        len: 28,
        values: |_, modes, page| {
            for (at, resource, arming, threshold) in [
                (
                    AVAILABLE_AT,
                    AVAILABLE,
                    DECREASING,
                    modes.thresholds.available,
                ),
                (USED_AT, USED, INCREASING, modes.thresholds.used),
            ] {
                let descriptor = &mut page[usize::from(at) - SUBPAGE_HEADER_BYTES..][..8];
                descriptor[0] = (u8::from(threshold.enabled) * ENABLED) | arming;
                descriptor[1] = resource;
                descriptor[4..].copy_from_slice(&threshold.count.to_be_bytes());
            }
        },
        changeable: |_, page| {
            for at in [AVAILABLE_AT, USED_AT] {
                let descriptor = &mut page[usize::from(at) - SUBPAGE_HEADER_BYTES..][..8];
                descriptor[0] = ENABLED;
                descriptor[4..].fill(0xff);
            }
        },
        take: |page, modes| {
            let threshold = |at: u8| {
                let descriptor = &page[usize::from(at) - SUBPAGE_HEADER_BYTES..][..8];
                let count = [descriptor[4], descriptor[5], descriptor[6], descriptor[7]];
                Threshold {
                    enabled: descriptor[0] & ENABLED != 0,
                    count: u32::from_be_bytes(count),
                }
            };
            modes.thresholds.available = threshold(AVAILABLE_AT);
            modes.thresholds.used = threshold(USED_AT);
        },
        settings: "ENABLED and THRESHOLD COUNT of two thresholds; of thin units",
        is_thin: true,
    },
];

/// Name, code, subpage and what can be changed of every page, for the documents.
pub(crate) fn pages() -> impl Iterator<Item = (&'static str, u8, u8, &'static str)> {
    PAGES
        .iter()
        .map(|page| (page.name, page.code, page.subpage, page.settings))
}

const LBPERE: u8 = 0x80;
const WCE: u8 = 0x04;
const D_SENSE: u8 = 0x04;
const GLTSD: u8 = 0x02;
const SWP: u8 = 0x08;

/// Of threshold descriptors (SBC-3, section 6.5.9.2): ENABLED, THRESHOLD ARMING.
const ENABLED: u8 = 0x80;
const DECREASING: u8 = 0b000;
const INCREASING: u8 = 0b001;

/// What stands before the parameters of a page with a subpage code.
const SUBPAGE_HEADER_BYTES: usize = 4;

/// DEVICE-SPECIFIC PARAMETER (SBC-3).
const WRITE_PROTECT: u8 = 0x80;
const DPOFUA: u8 = 0x10;

/// LONGLBA of the 10-byte header.
const LONG_LBA: u8 = 0x01;

impl ModePage {
    fn is_offered(&self, unit: &Unit) -> bool {
        !self.is_thin || unit.has_thresholds()
    }

    fn values(&self, control: u8, unit: &Unit) -> Parameters {
        let mut parameters = [0; PAGE_BYTES_MAX];
        match control {
            CHANGEABLE => (self.changeable)(unit, &mut parameters),
            DEFAULT => (self.values)(unit, &unit.default_modes, &mut parameters),
            _ => (self.values)(unit, &unit.modes, &mut parameters),
        }
        parameters
    }

    /// Bytes of the page with its header, which is longer for subpages.
    fn append(&self, control: u8, unit: &Unit, out: &mut Vec<u8>) {
        match self.subpage {
            0 => out.extend([self.code, self.len as u8]),
            subpage => out.extend([self.code | 0x40, subpage, 0, self.len as u8]),
        }
        out.extend_from_slice(&self.values(control, unit)[..self.len]);
    }
}

/// Appends the answer to MODE SENSE, without regard to its ALLOCATION LENGTH.
pub(crate) fn sense(command: &ModeSense, unit: &Unit, out: &mut Vec<u8>) -> Result<(), Sense> {
    if command.control == SAVED {
        return Err(Sense::illegal(asc::SAVING_PARAMETERS_NOT_SUPPORTED));
    }
    let start = out.len();
    let write_protect = u8::from(unit.is_write_protected()) * WRITE_PROTECT;
    let specific = write_protect | DPOFUA;
    let descriptor_len = match (command.no_block_descriptor, command.long_lba) {
        (true, _) => 0,
        (false, false) => 8,
        (false, true) => 16,
    };
    if command.long {
        let long_lba = u8::from(descriptor_len == 16) * LONG_LBA;
        out.extend([0, 0, 0, specific, long_lba, 0, 0, descriptor_len]);
    } else {
        out.extend([0, 0, specific, descriptor_len]);
    }
    block_descriptor(descriptor_len, unit, out);
    let all = command.page == ALL_PAGES;
    let offered = || PAGES.iter().filter(|page| page.is_offered(unit));
    let matches = |page: &&ModePage| {
        (all || page.code == command.page)
            && (command.subpage == ALL_SUBPAGES || page.subpage == command.subpage)
    };
    let mut found = offered().filter(matches).peekable();
    if found.peek().is_none() {
        let is_known = all || offered().any(|page| page.code == command.page);
        let at = if is_known { (3, None) } else { (2, Some(5)) };
        return Err(Sense::in_cdb(at.0, at.1));
    }
    found.for_each(|page| page.append(command.control, unit, out));
    let len = out.len() - start;
    if command.long {
        out[start..start + 2].copy_from_slice(&(len as u16 - 2).to_be_bytes());
    } else {
        out[start] = len as u8 - 1;
    }
    Ok(())
}

/// Short or long LBA mode parameter block descriptor (SBC-3).
fn block_descriptor(len: u8, unit: &Unit, out: &mut Vec<u8>) {
    match len {
        8 => {
            let blocks = u32::try_from(unit.block_count).unwrap_or(u32::MAX);
            out.extend_from_slice(&blocks.to_be_bytes());
            // Three bytes of length behind a reserved one.
            out.extend_from_slice(&unit.block_bytes.to_be_bytes());
        }
        16 => {
            out.extend_from_slice(&unit.block_count.to_be_bytes());
            out.extend_from_slice(&[0; 4]);
            out.extend_from_slice(&unit.block_bytes.to_be_bytes());
        }
        _ => {}
    }
}

/// Reads the parameter list of MODE SELECT: what the modes shall be. Everything
/// that cannot be changed must stand in the list as MODE SENSE tells it; a
/// mistake anywhere changes nothing (SPC-4).
pub fn select(command: &ModeSelect, list: &[u8], unit: &Unit) -> Result<Modes, Sense> {
    let mut modes = unit.modes;
    if list.is_empty() {
        return Ok(modes);
    }
    let header_len = if command.long { 8 } else { 4 };
    if list.len() < header_len {
        return Err(Sense::list_length());
    }
    let (is_long_lba, descriptor_len) = match command.long {
        true => (
            list[4] & LONG_LBA != 0,
            usize::from(u16::from_be_bytes([list[6], list[7]])),
        ),
        false => (false, usize::from(list[3])),
    };
    let mut expected = Vec::new();
    let long = if is_long_lba { 16 } else { 8 };
    let at_len = if command.long { 6 } else { 3 };
    if descriptor_len != 0 && descriptor_len != long {
        return Err(Sense::in_list(at_len, None));
    }
    block_descriptor(descriptor_len as u8, unit, &mut expected);
    let Some(descriptor) = list.get(header_len..header_len + descriptor_len) else {
        return Err(Sense::list_length());
    };
    check_descriptor(descriptor, &expected, header_len)?;
    let mut at = header_len + descriptor_len;
    while at < list.len() {
        at += select_page(&list[at..], at, unit, &mut modes)?;
    }
    Ok(modes)
}

/// A capacity of 0 leaves it as it is (SBC-3); the length of a
/// block cannot be changed at all.
fn check_descriptor(descriptor: &[u8], expected: &[u8], at: usize) -> Result<(), Sense> {
    let (count, length) = descriptor.split_at(descriptor.len() / 2);
    let (expected_count, expected_length) = expected.split_at(expected.len() / 2);
    let is_kept = count == expected_count || count.iter().all(|byte| *byte == 0);
    if !is_kept {
        return Err(Sense::in_list(at as u16, None));
    }
    if length != expected_length {
        return Err(Sense::in_list((at + count.len()) as u16, None));
    }
    Ok(())
}

/// Takes one page, which begins `at` bytes into the list; how long it is.
fn select_page(list: &[u8], at: usize, unit: &Unit, modes: &mut Modes) -> Result<usize, Sense> {
    let at = at as u16;
    // PS is reserved here.
    if list[0] & 0x80 != 0 {
        return Err(Sense::in_list(at, Some(7)));
    }
    let has_subpage = list[0] & 0x40 != 0;
    let header_len = if has_subpage { 4 } else { 2 };
    if list.len() < header_len {
        return Err(Sense::list_length());
    }
    let subpage = if has_subpage { list[1] } else { 0 };
    let found = PAGES
        .iter()
        .find(|page| page.code == list[0] & 0x3f && page.subpage == subpage)
        .filter(|page| page.is_offered(unit));
    let page = found.ok_or(Sense::in_list(at, Some(5)))?;
    let len_at = at + header_len as u16 - 1;
    let is_long = has_subpage && list[2] != 0;
    if is_long || usize::from(list[header_len - 1]) != page.len {
        return Err(Sense::in_list(len_at, None));
    }
    let Some(parameters) = list.get(header_len..header_len + page.len) else {
        return Err(Sense::list_length());
    };
    let current = page.values(0, unit);
    let mask = page.values(CHANGEABLE, unit);
    let mut new = [0; PAGE_BYTES_MAX];
    for (n, byte) in parameters.iter().enumerate() {
        let wrong = (byte ^ current[n]) & !mask[n];
        if wrong != 0 {
            let bit = 7 - wrong.leading_zeros() as u8;
            let byte = at + (header_len + n) as u16;
            return Err(Sense::in_list(byte, Some(bit)));
        }
        new[n] = *byte;
    }
    if mask != [0; PAGE_BYTES_MAX] {
        (page.take)(&new, modes);
    }
    Ok(header_len + page.len)
}

#[cfg(test)]
mod tests;
