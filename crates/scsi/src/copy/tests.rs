use proptest::prelude::*;

use super::*;

fn identity() -> UnitIdentity {
    let uuid = core::array::from_fn(|n| n as u8);
    let nguid = core::array::from_fn(|n| 0xf0 | n as u8);
    UnitIdentity {
        uuid,
        nguid,
        eui64: Some([9; 8]),
        naa: vec![0x60; 16],
        ..crate::testing::unit().identity
    }
}

/// A CSCD descriptor with a designator of this kind.
fn cscd(kind: u8, designator: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0xe4, 0, 0, 0, 0x01, kind, 0, designator.len() as u8];
    bytes.extend(designator);
    bytes.resize(28, 0);
    bytes.extend([0, 0, 0x02, 0x00]);
    bytes
}

fn segment(dc: bool, source: u16, destination: u16, blocks: u16) -> Vec<u8> {
    let mut bytes = vec![0x02, u8::from(dc) << 1, 0, 0x18];
    bytes.extend(source.to_be_bytes());
    bytes.extend(destination.to_be_bytes());
    bytes.extend([0, 0]);
    bytes.extend(blocks.to_be_bytes());
    bytes.extend(7_u64.to_be_bytes());
    bytes.extend(9_u64.to_be_bytes());
    bytes
}

/// A parameter list: identifier, usage, descriptors.
fn list(id: u8, usage: u8, cscds: &[Vec<u8>], segments: &[Vec<u8>]) -> Vec<u8> {
    let (cscds, segments) = (cscds.concat(), segments.concat());
    let mut bytes = vec![id, usage << 3];
    bytes.extend((cscds.len() as u16).to_be_bytes());
    bytes.extend([0; 4]);
    bytes.extend((segments.len() as u32).to_be_bytes());
    bytes.extend([0; 4]);
    bytes.extend(cscds);
    bytes.extend(segments);
    bytes
}

fn naa() -> Vec<u8> {
    cscd(3, &identity().naa)
}

fn code(list: &[u8]) -> u16 {
    let sense = List::parse(list).expect_err("not to be read");
    assert_eq!(sense.key, key::ILLEGAL_REQUEST);
    sense.code
}

#[test]
fn parameter_list_of_extended_copy_is_parsed() {
    let bytes = list(
        7,
        0,
        &[naa()],
        &[segment(false, 0, 0xffff, 5), segment(true, 1, 0, 6)],
    );
    let read = List::parse(&bytes).unwrap();
    assert_eq!((read.id, read.keeps), (Some(7), true));
    assert_eq!(read.cscds.len(), 1);
    assert_eq!(read.cscds[0].block_bytes, 512);
    let expected = Segment {
        source: CopyEnd::Cscd(0),
        destination: CopyEnd::Here,
        blocks: 5,
        counts_destination: false,
        source_lba: 7,
        destination_lba: 9,
    };
    assert_eq!(read.segments[0], expected);
    let second = read.segments[1];
    assert_eq!(
        (second.source, second.destination),
        (CopyEnd::Unknown, CopyEnd::Cscd(0))
    );
    assert!(second.counts_destination);
    for (usage, id, expected) in [(2, 7, (Some(7), false)), (3, 0, (None, false))] {
        let read = List::parse(&list(id, usage, &[], &[])).unwrap();
        assert_eq!((read.id, read.keeps), expected);
    }
    for (usage, id) in [(1, 0), (3, 7)] {
        let refused = code(&list(id, usage, &[], &[]));
        assert_eq!(refused, asc::INVALID_FIELD_IN_PARAMETER_LIST);
    }
}

/// The order of these is what conformance tests look at.
#[test]
fn a_copy_beyond_the_limits_is_refused() {
    let many = |cscds, segments| {
        list(
            0,
            0,
            &vec![naa(); cscds],
            &vec![segment(false, 0, 0, 1); segments],
        )
    };
    let most = many(CSCDS_MAX, SEGMENTS_MAX);
    assert_eq!(most.len(), LIST_BYTES_MAX as usize);
    List::parse(&most).unwrap();
    assert_eq!(
        code(&many(CSCDS_MAX + 1, 1)),
        asc::TOO_MANY_TARGET_DESCRIPTORS
    );
    assert_eq!(
        code(&many(1, SEGMENTS_MAX + 1)),
        asc::TOO_MANY_SEGMENT_DESCRIPTORS
    );
    let both = many(CSCDS_MAX + 1, SEGMENTS_MAX + 1);
    assert_eq!(code(&both), asc::PARAMETER_LIST_LENGTH_ERROR);
    let mut inline = many(1, 1);
    inline[15] = 1;
    assert_eq!(code(&inline), asc::INLINE_DATA_LENGTH_EXCEEDED);
    let whole = many(1, 1);
    for cut in 0..whole.len() {
        assert_eq!(
            code(&whole[..cut]),
            asc::PARAMETER_LIST_LENGTH_ERROR,
            "{cut}"
        );
    }
}

#[test]
fn descriptors_of_other_kinds_are_refused() {
    let mut fibre_channel = naa();
    fibre_channel[0] = 0xe0;
    let refused = code(&list(
        0,
        0,
        &[naa(), fibre_channel],
        &[segment(false, 0, 0, 1)],
    ));
    assert_eq!(refused, asc::UNSUPPORTED_TARGET_DESCRIPTOR_TYPE_CODE);
    let mut stream = segment(false, 0, 0, 1);
    stream[0] = 0x03;
    let refused = code(&list(0, 0, &[naa()], &[stream]));
    assert_eq!(refused, asc::UNSUPPORTED_SEGMENT_DESCRIPTOR_TYPE_CODE);
    let mut short = segment(false, 0, 0, 1);
    short[3] = 0x14;
    let refused = List::parse(&list(0, 0, &[naa()], &[short])).unwrap_err();
    assert_eq!(refused, Sense::in_list(16 + 32 + 2, None));
    let mut long = naa();
    long[7] = 21;
    let refused = List::parse(&list(0, 0, &[long], &[])).unwrap_err();
    assert_eq!(refused, Sense::in_list(16 + 7, None));
}

#[test]
fn a_designator_names_one_identity() {
    let identity = identity();
    let uuid = [&UUID_HEAD[..], &identity.uuid].concat();
    let parse = |bytes: Vec<u8>| List::parse(&list(0, 0, &[bytes], &[])).unwrap().cscds[0];
    for (kind, designator) in [
        (2, &identity.nguid[..]),
        (2, &[9; 8]),
        (3, &identity.naa),
        (0xa, &uuid),
    ] {
        let named = parse(cscd(kind, designator));
        assert!(named.names(&identity), "{kind}");
        assert_eq!(named.fault(), None);
        let mut other = designator.to_vec();
        *other.last_mut().unwrap() ^= 1;
        assert!(!parse(cscd(kind, &other)).names(&identity), "{kind}");
        let cut = &designator[..designator.len() - 1];
        assert!(!parse(cscd(kind, cut)).names(&identity), "{kind}");
        // Of the target port, in ASCII.
        assert!(!parse(cscd(kind | 0x10, designator)).names(&identity));
        let mut ascii = cscd(kind, designator);
        ascii[4] = 0x02;
        assert!(!parse(ascii).names(&identity));
    }
    assert!(!parse(cscd(3, &[])).names(&identity));
    let mut tape = naa();
    tape[1] = 1;
    assert_eq!(
        parse(tape).fault(),
        Some(asc::INCORRECT_COPY_TARGET_DEVICE_TYPE)
    );
    let mut by_port = naa();
    by_port[3] = 1;
    assert_eq!(parse(by_port).fault(), Some(asc::UNREACHABLE_COPY_TARGET));
    // LU ID TYPE and NUL are obsolete.
    let mut old = naa();
    old[1] = 0xe0;
    assert_eq!(parse(old).fault(), None);
}

#[test]
fn a_segment_counts_in_blocks_of_either_side() {
    let parse = |dc, blocks| {
        let bytes = list(0, 0, &[], &[segment(dc, 0, 0, blocks)]);
        List::parse(&bytes).unwrap().segments[0]
    };
    let bytes = |source, destination, len| {
        Ok(Bytes {
            source,
            destination,
            len,
        })
    };
    assert_eq!(
        parse(false, 8).bytes(512, 4096),
        bytes(7 * 512, 9 * 4096, 4096)
    );
    assert_eq!(
        parse(true, 8).bytes(512, 4096),
        bytes(7 * 512, 9 * 4096, 8 * 4096)
    );
    let inexact = Err(asc::UNEXPECTED_INEXACT_SEGMENT);
    assert_eq!(parse(false, 7).bytes(512, 4096), inexact);
    assert_eq!(parse(true, 7).bytes(4096, 512), inexact);
    let mut far = parse(false, 1);
    far.source_lba = u64::MAX;
    assert!(far.bytes(512, 512).is_err());
    far.source_lba = u64::MAX / 512;
    assert!(far.bytes(512, 512).is_err());
}

#[test]
fn a_copy_is_told_of_while_it_runs_and_afterwards() {
    let mut copies = NexusCopies::default();
    let list = |id, usage| List::parse(&list(id, usage, &[], &[])).unwrap();
    let unknown = Err(Sense::in_cdb(2, None));
    assert_eq!(copies.results(results::COPY_STATUS, 3, 100), unknown);
    copies.begin(&list(3, 0)).unwrap();
    let busy = copies.begin(&list(3, 2)).unwrap_err();
    assert_eq!(busy.code, asc::OPERATION_IN_PROGRESS);
    copies.advance(Some(3), 2, 5 << 30);
    let status = |copies: &mut NexusCopies| copies.results(results::COPY_STATUS, 3, 100).unwrap();
    assert_eq!(status(&mut copies), [0, 0, 0, 8, 0, 0, 2, 1, 0, 0x50, 0, 0]);
    copies.advance(Some(3), 3, 4096);
    copies.end(Some(3), None);
    assert_eq!(status(&mut copies), [0, 0, 0, 8, 1, 0, 3, 0, 0, 0, 0x10, 0]);
    assert_eq!(
        copies.results(results::FAILED_SEGMENT_DETAILS, 3, 100),
        unknown
    );
    // Another one with its identifier takes its place.
    copies.begin(&list(3, 0)).unwrap();
    let mut sense = SenseBytes::EMPTY;
    aborted(1, asc::COPY_TARGET_DEVICE_NOT_REACHABLE).encode(false, &mut sense);
    copies.end(Some(3), Some(sense));
    assert_eq!(status(&mut copies)[4], 2);
    let told = copies
        .results(results::FAILED_SEGMENT_DETAILS, 3, 1000)
        .unwrap();
    assert_eq!(told[..4], [0, 0, 0, 56 + 18]);
    assert_eq!(told[56..60], [2, 0, 0, 18]);
    assert_eq!(&told[60..], sense.as_slice());
    assert_eq!(told[60 + 2], key::COPY_ABORTED);
    assert_eq!(told[60 + 8..60 + 14], [0, 0, 0, 1, 0x0d, 0x02]);
    assert_eq!(copies.results(results::COPY_STATUS, 3, 100), unknown);
    // What need not be kept is not.
    copies.begin(&list(4, 2)).unwrap();
    assert_eq!(copies.results(results::COPY_STATUS, 4, 100).unwrap()[4], 0);
    copies.end(Some(4), None);
    assert_eq!(copies.results(results::COPY_STATUS, 4, 100), unknown);
}

#[test]
fn no_more_is_remembered_than_there_is_room_for() {
    let mut copies = NexusCopies::default();
    let list = |id: usize| List::parse(&list(id as u8, 0, &[], &[])).unwrap();
    for id in 0..HELD_MAX {
        copies.begin(&list(id)).unwrap();
    }
    let full = copies.begin(&list(HELD_MAX)).unwrap_err();
    assert_eq!(full.code, asc::SYSTEM_RESOURCE_FAILURE);
    copies.end(Some(5), None);
    copies.begin(&list(HELD_MAX)).unwrap();
    assert!(copies.results(results::COPY_STATUS, 5, 12).is_err());
    assert!(copies.results(results::COPY_STATUS, 4, 12).is_ok());
    assert_eq!(copies.held.len(), HELD_MAX);
}

#[test]
fn operating_parameters_say_what_is_refused() {
    let told = NexusCopies::default().results(results::OPERATING_PARAMETERS, 0, 1000);
    let told = told.unwrap();
    assert_eq!(told.len(), 46);
    assert_eq!(told[..12], [0, 0, 0, 42, 1, 0, 0, 0, 0, 16, 0, 64]);
    assert_eq!(told[12..16], (16_u32 * 32 + 64 * 28).to_be_bytes());
    assert_eq!(told[43..], [2, 0x02, 0xe4]);
    let cut = NexusCopies::default().results(results::OPERATING_PARAMETERS, 0, 9);
    assert_eq!(cut.unwrap(), told[..9]);
    let unknown = NexusCopies::default().results(results::RECEIVE_DATA, 0, 9);
    assert_eq!(unknown, Err(Sense::in_cdb(1, Some(4))));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    #[test]
    fn no_list_is_read_past_its_end(mut bytes in prop::collection::vec(any::<u8>(), 0..300), lens in any::<[u8; 2]>()) {
        if bytes.len() > 16 {
            bytes[1] &= 0x10;
            bytes[2..16].fill(0);
            (bytes[3], bytes[11]) = (lens[0], lens[1]);
            bytes[16] = 0xe4;
        }
        if let Ok(list) = List::parse(&bytes) {
            prop_assert!(16 + list.cscds.len() * 32 + list.segments.len() * 28 <= bytes.len());
        }
    }
}
