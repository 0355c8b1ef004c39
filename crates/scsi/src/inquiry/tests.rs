use super::*;
use crate::testing::{target, unit};

fn asked(page: Option<u8>, to: Addressed<'_>) -> Result<Vec<u8>, Sense> {
    let mut out = Vec::new();
    answer(page, to, &target(), &mut out).map(|()| out)
}

/// What follows the header of a page of `unit`.
fn page(code: u8, unit: &Unit) -> Vec<u8> {
    let out = asked(Some(code), Addressed::Unit(unit)).unwrap();
    assert_eq!(out[..2], [0, code]);
    assert_eq!(
        usize::from(u16::from_be_bytes([out[2], out[3]])),
        out.len() - 4
    );
    out[4..].to_vec()
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

#[test]
fn standard_inquiry_data_lies_as_spc_has_it() {
    let unit = unit();
    let data = asked(None, Addressed::Unit(&unit)).unwrap();
    assert_eq!(data.len(), 96);
    assert_eq!(data[..8], [0x00, 0x00, 0x06, 0x12, 91, 0x38, 0x10, 0x02]);
    assert_eq!(&data[8..36], b"WEFT    volume          0.1 ");
    let versions = [0x00, 0xa0, 0x04, 0x60, 0x04, 0xc0, 0x09, 0x60, 0, 0];
    assert_eq!(data[58..68], versions);
    assert!(
        data[36..58]
            .iter()
            .chain(&data[66..])
            .all(|byte| *byte == 0)
    );
}

#[test]
fn inquiry_where_there_is_no_unit() {
    let nothing = asked(None, Addressed::Nothing).unwrap();
    assert_eq!((nothing[0], nothing[5], nothing.len()), (0x7f, 0, 96));
    let well_known = asked(None, Addressed::ReportLuns).unwrap();
    assert_eq!((well_known[0], well_known[5]), (0x1e, 0));
    let pages = asked(Some(0), Addressed::Nothing);
    assert_eq!(pages, Ok(vec![0x7f, 0, 0, 1, 0]));
    assert_eq!(
        asked(Some(0x83), Addressed::Nothing),
        Err(Sense::in_cdb(2, None))
    );
    let pages = asked(Some(0), Addressed::ReportLuns);
    assert_eq!(pages, Ok(vec![0x1e, 0, 0, 2, 0, 0x83]));
    assert_eq!(
        asked(Some(0xb0), Addressed::ReportLuns),
        Err(Sense::in_cdb(2, None))
    );
}

#[test]
fn every_page_that_is_listed_is_there() {
    let unit = unit();
    let listed = page(0, &unit);
    assert_eq!(
        listed,
        [0x00, 0x80, 0x83, 0x86, 0x87, 0x88, 0x8f, 0xb0, 0xb1, 0xb2]
    );
    for code in 0..=255 {
        let answer = asked(Some(code), Addressed::Unit(&unit));
        assert_eq!(answer.is_ok(), listed.contains(&code), "{code:02x}");
    }
}

/// Association, type, code set and bytes of each designator.
fn designators(mut page: &[u8]) -> Vec<(u8, u8, u8, Vec<u8>)> {
    let mut all = Vec::new();
    while let [first, second, 0, len, rest @ ..] = page {
        let (value, rest) = rest.split_at((*len).into());
        // PIV and iSCSI with what is not the unit's.
        let of = *second >> 4 & 3;
        let protocol = if of == 0 { (0, 0) } else { (5, 0x80) };
        assert_eq!((first >> 4, second & 0x80), protocol);
        all.push((of, second & 0x0f, first & 0x0f, value.to_vec()));
        page = rest;
    }
    assert!(page.is_empty());
    all
}

#[test]
fn identification_is_that_of_nvme_and_names_the_way() {
    let unit = unit();
    let designators = designators(&page(0x83, &unit));
    let identity = &unit.identity;
    let naa = [0x30, 0x65, 0x39, 0x2e, 0xcc, 0x3a, 0x5c, 0xfe];
    assert_eq!(designators[0], (0, 3, 1, naa.to_vec()));
    assert_eq!(designators[1], (0, 2, 1, identity.nguid.to_vec()));
    assert_eq!(
        designators[2],
        (0, 1, 2, b"WEFT    8a2f1ab9fb975a348df3".to_vec())
    );
    let mut uuid = vec![0x10, 0];
    uuid.extend_from_slice(&identity.uuid);
    assert_eq!(designators[3], (0, 0xa, 1, uuid));
    assert_eq!(designators[4], (1, 4, 1, vec![0, 0, 0, 1]));
    assert_eq!(designators[5], (1, 5, 1, vec![0, 0, 0, 1]));
    let mut name = b"iqn.2026-01.io.weft:test,t,0x0001".to_vec();
    name.resize(36, 0);
    assert_eq!(designators[6], (1, 8, 3, name));
    let mut name = b"iqn.2026-01.io.weft:test".to_vec();
    name.resize(28, 0);
    assert_eq!(designators[7], (2, 8, 3, name));
    assert_eq!(designators.len(), 8);
}

#[test]
fn the_unit_is_the_same_through_every_port() {
    let here = unit();
    let mut there = unit();
    there.here = crate::Port { group: 7, id: 3 };
    let of_unit = |unit: &Unit| {
        let mut all = designators(&page(0x83, unit));
        all.retain(|designator| designator.0 != 1);
        all
    };
    assert_eq!(of_unit(&here), of_unit(&there));
    assert_ne!(page(0x83, &here), page(0x83, &there));
    assert_eq!(page(0x80, &here), b"8a2f1ab9fb975a348df3");
    assert_eq!(page(0x80, &here), page(0x80, &there));
}

/// A volume that comes from another target is what it was there.
#[test]
fn configured_names_are_told_in_every_page_that_has_them() {
    let mut unit = unit();
    unit.identity.eui64 = Some([2; 8]);
    unit.identity.naa = vec![0x60; 16];
    unit.identity.serial = "other serial".to_owned();
    unit.identity.vendor = "OTHER".to_owned();
    unit.identity.product = "disk".to_owned();
    unit.identity.revision = "4.0".to_owned();
    let designators = designators(&page(0x83, &unit));
    assert_eq!(designators[0], (0, 3, 1, vec![0x60; 16]));
    assert_eq!(designators[1], (0, 2, 1, vec![2; 8]));
    assert_eq!(designators[2], (0, 2, 1, unit.identity.nguid.to_vec()));
    let vendor = b"OTHER   other serial".to_vec();
    assert_eq!(designators[3], (0, 1, 2, vendor));
    assert_eq!(page(0x80, &unit), b"other serial");
    let standard = asked(None, Addressed::Unit(&unit)).expect("always there");
    assert_eq!(&standard[8..36], b"OTHER   disk            4.0 ");
}

#[test]
fn block_limits_page_shows_limits_of_the_unit() {
    let mut unit = unit();
    let limits = page(0xb0, &unit);
    assert_eq!(limits.len(), 0x3c);
    assert_eq!(limits[..4], [1, 255, 0, 8]);
    // Offsets as in the page, whose header has four bytes.
    let at = |limits: &[u8], at: usize| word(limits, at - 4);
    assert_eq!(at(&limits, 8), 1024);
    assert_eq!(at(&limits, 12), 1024);
    assert_eq!((at(&limits, 20), at(&limits, 24)), (1 << 20, 256));
    assert_eq!((at(&limits, 28), at(&limits, 32)), (8, 1 << 31));
    assert_eq!((at(&limits, 36), at(&limits, 40)), (0, 16 << 11));
    assert_eq!(at(&limits, 44), 256);
    assert_eq!(limits[44..], [0; 16]);
    unit.thin = false;
    unit.block_bytes = 4096;
    unit.physical_exponent = 0;
    unit.atomic_bytes = 4096;
    unit.atomic_power_fail_bytes = 4096;
    unit.io_bytes_max = 4 << 20;
    let limits = page(0xb0, &unit);
    assert_eq!(limits[..4], [1, 1, 0, 1]);
    assert_eq!((at(&limits, 8), at(&limits, 12)), (1024, 256));
    assert_eq!(
        (at(&limits, 20), at(&limits, 24), at(&limits, 44)),
        (0, 0, 0)
    );
}

/// What the page says and what decoding takes are the same.
#[test]
fn commands_beyond_the_block_limits_page_are_refused() {
    let unit = unit();
    let limits = page(0xb0, &unit);
    let write_same = u32::from_be_bytes(limits[36..40].try_into().unwrap());
    for (opcode, len, max) in [
        (0x88, 10, word(&limits, 4)),
        (0x9c, 12, word(&limits, 40)),
        (0x89, 13, limits[1].into()),
        (0x93, 10, write_same),
    ] {
        let mut unit = unit.clone();
        unit.block_count = 1 << 32;
        let decoded = |blocks: u32| {
            let mut cdb = [0; 16];
            cdb[0] = opcode;
            let bytes = blocks.to_be_bytes();
            cdb[len..14].copy_from_slice(&bytes[len - 10..]);
            crate::decode(&cdb, &unit)
        };
        assert!(decoded(max).is_ok(), "{opcode:02x}: {max}");
        if max < 255 || opcode != 0x89 {
            assert!(decoded(max + 1).is_err(), "{opcode:02x}: {max}");
        }
    }
}

#[test]
fn provisioning_and_other_pages_show_properties_of_the_unit() {
    let mut unit = unit();
    // A threshold set is 1 MiB.
    assert_eq!(page(0xb2, &unit), [11, 0xe4, 2, 0]);
    assert_eq!(
        page(0x86, &unit)[..12],
        [0, 0x27, 1, 0, 0, 0, 0, 0, 0, 44, 0, 0]
    );
    assert_eq!(page(0x86, &unit).len(), 0x3c);
    assert_eq!(page(0x87, &unit), [0x3f, 0xff, 0, 0]);
    assert_eq!((page(0xb1, &unit).len(), page(0xb1, &unit)[1]), (0x3c, 1));
    unit.block_bytes = 4096;
    assert_eq!(page(0xb2, &unit)[0], 8);
    unit.thin = false;
    unit.volatile_cache = false;
    assert_eq!(page(0xb2, &unit), [0; 4]);
    assert_eq!(page(0x86, &unit)[2], 0);
}

#[test]
fn scsi_ports_page_lists_ports_with_their_names() {
    let ports = page(0x88, &unit());
    assert_eq!(ports.len(), 3 * (12 + 4 + 36));
    for (descriptor, (id, name)) in ports.chunks(52).zip([
        (1, "iqn.2026-01.io.weft:test,t,0x0001"),
        (2, "iqn.2026-01.io.weft:test,t,0x0001"),
        (3, "iqn.2026-01.io.weft:test,t,0x0007"),
    ]) {
        assert_eq!(descriptor[..12], [0, 0, 0, id, 0, 0, 0, 0, 0, 0, 0, 40]);
        assert_eq!(descriptor[12..16], [0x53, 0x98, 0, 36]);
        assert_eq!(&descriptor[16..16 + name.len()], name.as_bytes());
    }
}

/// SPC-4, section 7.8.17; SBC-4, section 6.6.9.
#[test]
fn third_party_copy_page_tells_what_is_done_with_tokens() {
    let page = page(0x8f, &unit());
    let mut descriptors = Vec::new();
    let mut rest = &page[..];
    while let [a, b, c, d, behind @ ..] = rest {
        let len = usize::from(u16::from_be_bytes([*c, *d]));
        assert!(len.is_multiple_of(4));
        descriptors.push((u16::from_be_bytes([*a, *b]), &behind[..len]));
        rest = &behind[len..];
    }
    let kinds: Vec<u16> = descriptors.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, [0, 1, 4, 8, 0x0c, 0x106, 0x108, 0x8001]);
    let body = |n: usize| descriptors[n].1;
    // 64 ranges, timeouts of 600 s and 60 s, 256 MiB in blocks.
    let mut limits = vec![0; 6];
    limits.extend([0, 64, 0, 0, 0x02, 0x58, 0, 0, 0, 60]);
    limits.extend([[0, 0, 0, 0, 0, 8, 0, 0]; 2].concat());
    assert_eq!(body(0), limits);
    let commands = [12, 0x83, 3, 0, 0x10, 0x11, 0x84, 5, 0, 1, 3, 4, 7];
    assert_eq!(body(1)[..13], commands);
    assert_eq!((word(body(5), 20), word(body(5), 40)), (600, 48));
    // Point in time copies out and in, zeros in.
    assert_eq!(body(6)[..9], [0, 0, 0, 128, 0, 0x80, 0, 0, 3]);
    assert_eq!(body(6)[68..73], [0xff, 0xff, 0, 1, 2]);
}
